// SPDX-License-Identifier: Apache-2.0
// The own matrix product against plain loops: all transposes, edges, leading dimensions, thread counts.
#include "ops/matmul/cpu/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/cpu/parallel.h"
#include "core/error.h"
#include "core/random.h"
#include "tests/support/kept_threads.h"

namespace hearth::cpu::gemm_test {
namespace {

template <class T>
std::vector<T> random_values(std::int64_t size, std::uint64_t seed) {
  std::vector<T> values(static_cast<std::size_t>(size));
  Random random(seed, 0);
  for (T& v : values) v = static_cast<T>(random.uniform(-1.0, 1.0));
  return values;
}

template <class T>
struct Case {
  bool ta, tb, accumulate;
  std::int64_t m, n, k, lda, ldb, ldc;
  std::vector<T> a, b, c;

  Case(bool transpose_a, bool transpose_b, bool add, std::int64_t rows, std::int64_t columns, std::int64_t terms,
       std::int64_t gap)
      : ta(transpose_a),
        tb(transpose_b),
        accumulate(add),
        m(rows),
        n(columns),
        k(terms),
        lda((ta ? m : k) + gap),
        ldb((tb ? k : n) + gap),
        ldc(n + gap),
        a(random_values<T>((ta ? k : m) * lda, 1)),
        b(random_values<T>((tb ? n : k) * ldb, 2)),
        c(random_values<T>(m * ldc, 3)) {}

  double product(std::int64_t i, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t p = 0; p < k; ++p)
      sum += static_cast<double>(a[static_cast<std::size_t>(ta ? p * lda + i : i * lda + p)]) *
             static_cast<double>(b[static_cast<std::size_t>(tb ? j * ldb + p : p * ldb + j)]);
    return sum;
  }
  std::vector<T> run() const {
    std::vector<T> result = c;
    gemm<T>(ta, tb, m, n, k, a.data(), lda, b.data(), ldb, accumulate, result.data(), ldc);
    return result;
  }
};

template <class T>
class OwnGemm : public testing::Test {
 protected:
  static void check(const Case<T>& test) {
    const std::vector<T> found = test.run();
    const double allowed = (std::is_same_v<T, float> ? 3e-6 : 1e-14) * (std::sqrt(static_cast<double>(test.k)) + 1);
    for (std::int64_t i = 0; i < test.m; ++i)
      for (std::int64_t j = 0; j < test.ldc; ++j) {
        const auto at = static_cast<std::size_t>(i * test.ldc + j);
        const double before = static_cast<double>(test.c[at]);
        if (j >= test.n) {
          ASSERT_EQ(found[at], test.c[at]) << "wrote between the rows";
          continue;
        }
        ASSERT_NEAR(static_cast<double>(found[at]), (test.accumulate ? before : 0.0) + test.product(i, j), allowed)
            << test.m << "x" << test.n << "x" << test.k << (test.ta ? " T" : " N") << (test.tb ? "T" : "N")
            << (test.accumulate ? " accumulate" : "") << " at " << i << "," << j;
      }
  }

 private:
  const test::KeptThreads threads_;
};
using GemmTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(OwnGemm, GemmTypes);

TYPED_TEST(OwnGemm, MatchesPlainLoops) {
  const std::int64_t sizes[][3] = {{1, 1, 1},    {1, 70, 3},   {14, 32, 8},     {37, 21, 45},
                                   {5, 300, 17}, {340, 9, 33}, {100, 129, 257}, {13, 40, 600}};
  for (const auto& s : sizes)
    for (int bits = 0; bits < 8; ++bits)
      for (const std::int64_t gap : {0, 5})
        this->check(Case<TypeParam>(bits & 1, bits & 2, bits & 4, s[0], s[1], s[2], gap));
}

TYPED_TEST(OwnGemm, MatchesPlainLoopsForEveryRemainderOfRowsAndTerms) {
  for (std::int64_t rows = 1; rows <= 29; ++rows)
    for (int bits = 0; bits < 8; ++bits)
      this->check(Case<TypeParam>(bits & 1, bits & 2, bits & 4, rows, 30 + rows, 16 + rows, 1));
}

TYPED_TEST(OwnGemm, MatchesPlainLoopsOverSeveralTilesAndShares) {
  for (int bits = 0; bits < 8; ++bits) {
    this->check(Case<TypeParam>(bits & 1, bits & 2, bits & 4, 700, 530, 20, 1));
    this->check(Case<TypeParam>(bits & 1, bits & 2, bits & 4, 20, 30, 5000, 3));
  }
}

TYPED_TEST(OwnGemm, EmptySizes) {
  for (const bool accumulate : {false, true}) {
    const Case<TypeParam> no_terms(false, false, accumulate, 4, 5, 0, 2);
    this->check(no_terms);
    this->check(Case<TypeParam>(true, false, accumulate, 0, 5, 3, 2));
    this->check(Case<TypeParam>(false, true, accumulate, 4, 0, 3, 2));
  }
}

TYPED_TEST(OwnGemm, SameBitsForEveryThreadCount) {
  const std::int64_t sizes[][3] = {{700, 530, 300}, {24, 48, 9000}, {64, 64, 512}};
  for (const auto& s : sizes) {
    const Case<TypeParam> test(true, false, true, s[0], s[1], s[2], 0);
    set_threads(1);
    const auto expected = test.run();
    for (const int pool : {2, 3, 5}) {
      set_threads(pool);
      EXPECT_TRUE(test.run() == expected) << pool << " threads";
    }
    parallel_chunks(2, [&](std::int64_t) { EXPECT_TRUE(test.run() == expected) << "nested"; });
  }
}

TYPED_TEST(OwnGemm, RefusesShortRows) {
  TypeParam x[12] = {};
  EXPECT_THROW(gemm<TypeParam>(false, false, 2, 3, 2, x, 1, x, 3, false, x, 3), ShapeError);
  EXPECT_THROW(gemm<TypeParam>(false, true, 2, 3, 2, x, 2, x, 1, false, x, 3), ShapeError);
  EXPECT_THROW(gemm<TypeParam>(false, false, 2, 3, 2, x, 2, x, 3, false, x, 2), ShapeError);
  EXPECT_THROW(gemm<TypeParam>(false, false, -2, 3, 2, x, 2, x, 3, false, x, 3), ShapeError);
}

}  // namespace
}  // namespace hearth::cpu::gemm_test
