// SPDX-License-Identifier: Apache-2.0
// Matrix products on raw pointers, each implementation against plain loops in double, over odd shapes, types, layouts
// and deterministic mode.
#include "ops/matmul/cpu/matmul_cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cpu/amx.h"
#include "core/cpu/isa.h"
#include "core/cpu/parallel.h"
#include "core/error.h"
#include "core/half.h"
#include "core/profiler.h"
#include "core/random.h"
#include "ops/conv/conv2d.h"
#include "ops/linear/linear.h"
#include "ops/matmul/cpu/matmul_amx.h"
#include "ops/matmul/cpu/matmul_avx512_bf16.h"
#include "ops/matmul/cpu/matmul_gemm.h"
#include "ops/matmul/cpu/matmul_onednn.h"
#include "ops/matmul/product.h"
#include "ops/onednn/onednn.h"
#include "tests/ops/emulate_tiles.h"

namespace hearth::cpu::matmul_cpu_test {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Values held in the type under test; all are numbers that bf16 holds, so that no implementation rounds an operand.
struct Values {
  DType dtype;
  std::vector<std::byte> bytes;

  Values(DType type, std::int64_t size, std::uint64_t seed) : dtype(type), bytes(at(size) * size_of(type)) {
    Random random(seed, 0);
    for (std::int64_t i = 0; i < size; ++i)
      set(i, static_cast<float>(bf16(static_cast<float>(random.uniform(-1.0, 1.0)))));
  }
  std::int64_t size() const { return static_cast<std::int64_t>(bytes.size() / size_of(dtype)); }
  void* data() { return bytes.data(); }
  const void* data() const { return bytes.data(); }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(bytes.data());
  }
  void set(std::int64_t i, float value) {
    if (dtype == DType::f64)
      as<double>()[i] = value;
    else if (dtype == DType::bf16)
      as<bf16>()[i] = bf16(value);
    else
      as<float>()[i] = value;
  }
  double get(std::int64_t i) const {
    if (dtype == DType::f64) return reinterpret_cast<const double*>(bytes.data())[i];
    if (dtype == DType::bf16) return static_cast<float>(reinterpret_cast<const bf16*>(bytes.data())[i]);
    return reinterpret_cast<const float*>(bytes.data())[i];
  }
};

struct Operands {
  MatmulProblem p;
  Values a, b, c, bias;
};

// With gaps between rows and between matrices.
Operands make_operands(MatmulProblem p) {
  const std::int64_t rows_a = p.transpose_a ? p.k : p.m, rows_b = p.transpose_b ? p.n : p.k;
  p.lda = (p.transpose_a ? p.m : p.k) + 3;
  p.ldb = (p.transpose_b ? p.k : p.n) + 2;
  p.ldc = p.n + 5;
  p.batch_stride_a = p.batch_stride_a == 0 ? 0 : rows_a * p.lda + 7;
  p.batch_stride_b = p.batch_stride_b == 0 ? 0 : rows_b * p.ldb + 1;
  p.batch_stride_c = p.m * p.ldc + 11;
  return {p, Values(p.a, (p.batch_stride_a ? p.batch : 1) * (rows_a * p.lda + 7), 1),
          Values(p.b, (p.batch_stride_b ? p.batch : 1) * (rows_b * p.ldb + 1), 2),
          Values(p.c, p.batch * p.batch_stride_c, 3),
          Values(p.a == DType::f64 ? DType::f64 : DType::f32, std::max<std::int64_t>(p.n, 1), 4)};
}

struct Implementation {
  const char* name;
  using Run = void (*)(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c);
  Run run;
};

void PrintTo(const Implementation& of, std::ostream* out) { *out << of.name; }

void by_emulated_tiles(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c) {
  const test::EmulateTiles emulate;
  matmul_by_amx(problem, a, b, bias, c);
}

class CpuMatmul : public testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override {
    if (is_library() && !dnn::available()) GTEST_SKIP() << "built without oneDNN";
    if (is_vectors() && !amx::has_bf16_vectors()) GTEST_SKIP() << "no AVX-512 products of bf16";
    if (GetParam().run == matmul_by_amx && !amx::unsupported().empty()) GTEST_SKIP() << amx::unsupported();
  }
  void TearDown() override { set_threads(threads_); }

  bool is_library() const { return GetParam().run == dnn::matmul; }
  bool is_tiles() const { return GetParam().run == matmul_by_amx || GetParam().run == by_emulated_tiles; }
  bool is_vectors() const { return GetParam().run == matmul_by_avx512_bf16; }
  bool takes(DType dtype) const {
    if (is_vectors()) return dtype == DType::bf16;
    if (is_tiles()) return dtype != DType::f64;
    if (!is_library()) return true;
    return dtype == DType::f32 || (dtype == DType::bf16 && dnn::has_hardware_bf16());
  }

  void check(const MatmulProblem& problem, bool with_bias) const {
    Operands o = make_operands(problem);
    const MatmulProblem& p = o.p;
    const std::string what =
        join_text(p.batch, " x ", p.m, 'x', p.n, 'x', p.k, ' ', p.a, p.b, p.c, p.transpose_a ? " T" : " N",
                  p.transpose_b ? "T" : "N", p.accumulate ? " accumulate" : "", p.deterministic ? " exact" : "",
                  with_bias ? " bias" : "");
    std::vector<double> expected(at(o.c.size()));
    for (std::int64_t i = 0; i < o.c.size(); ++i) expected[at(i)] = o.c.get(i);
    for (std::int64_t z = 0; z < p.batch; ++z)
      for (std::int64_t i = 0; i < p.m; ++i)
        for (std::int64_t j = 0; j < p.n; ++j) {
          double sum = with_bias ? o.bias.get(j) : 0.0;
          for (std::int64_t k = 0; k < p.k; ++k)
            sum += o.a.get(z * p.batch_stride_a + (p.transpose_a ? k * p.lda + i : i * p.lda + k)) *
                   o.b.get(z * p.batch_stride_b + (p.transpose_b ? j * p.ldb + k : k * p.ldb + j));
          double& out = expected[at(z * p.batch_stride_c + i * p.ldc + j)];
          out = (p.accumulate ? out : 0.0) + sum;
        }
    GetParam().run(p, o.a.data(), o.b.data(), with_bias ? o.bias.data() : nullptr, o.c.data());
    double largest = 1.0;
    for (const double e : expected) largest = std::max(largest, std::abs(e));
    const double allowed = largest * (p.c == DType::bf16 ? 6e-3 : p.c == DType::f32 ? 2e-5 : 1e-13);
    for (std::int64_t i = 0; i < o.c.size(); ++i) ASSERT_NEAR(o.c.get(i), expected[at(i)], allowed) << what << " " << i;
  }

  int threads_ = threads();
};

TEST_P(CpuMatmul, MatchesPlainLoops) {
  std::vector<std::array<DType, 3>> kinds;
  if (takes(DType::f32)) kinds.push_back({DType::f32, DType::f32, DType::f32});
  if (takes(DType::f64)) kinds.push_back({DType::f64, DType::f64, DType::f64});
  if (takes(DType::bf16))
    for (const DType c : {DType::f32, DType::bf16}) {
      kinds.push_back({DType::bf16, DType::bf16, c});
      kinds.push_back({DType::bf16, DType::f32, c});
      kinds.push_back({DType::f32, DType::bf16, c});
    }
  for (const auto& [a, b, c] : kinds)
    for (int bits = 0; bits < 32; ++bits)
      for (const std::int64_t batch : {1, 3, 9}) {
        MatmulProblem p{.batch = batch, .m = 37, .n = 21, .k = 45};
        p.a = a, p.b = b, p.c = c;
        p.transpose_a = bits & 1, p.transpose_b = bits & 2, p.accumulate = bits & 4, p.deterministic = bits & 8;
        if (is_library()) {
          EXPECT_EQ(dnn::unsupported(p), "");
        }
        check(p, bits & 16);
        if (HasFatalFailure()) return;
      }
}

TEST_P(CpuMatmul, LongSumsMatchPlainLoops) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (int bits = 0; bits < 8; ++bits) {
      if (!takes(dtype)) continue;
      MatmulProblem p{.m = 20, .n = 30, .k = 2100, .accumulate = (bits & 4) != 0};
      p.transpose_a = bits & 1, p.transpose_b = bits & 2;
      p.a = p.b = p.c = dtype;
      check(p, bits == 4);
    }
}

// Blocks of rows and columns, chunks and shares of the sum, each with a ragged last one.
TEST_P(CpuMatmul, SeveralBlocksMatchPlainLoops) {
  struct Size {
    std::int64_t m, n, k;
  };
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [m, n, k] : {Size{530, 70, 90},
                                  {70, 1650, 40},
                                  {40, 50, 4130},
                                  {96, 160, 2305},
                                  {32, 32, 2400},
                                  {300, 450, 1570},
                                  {128, 64, 30}})
      for (const bool transpose_a : {false, true}) {
        if (!takes(dtype)) continue;
        MatmulProblem p{.m = m, .n = n, .k = k, .transpose_a = transpose_a, .transpose_b = !transpose_a};
        p.a = p.b = p.c = dtype;
        check(p, true);
        p.c = DType::f32;
        p.accumulate = true;
        check(p, false);
      }
}

TEST_P(CpuMatmul, DegenerateAndSharedOperands) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (int bits = 0; bits < 8; ++bits) {
      if (!takes(dtype)) continue;
      MatmulProblem flags;
      flags.a = flags.b = flags.c = dtype;
      flags.accumulate = bits & 1, flags.deterministic = bits & 2;
      const auto of = [&](std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k) {
        MatmulProblem p = flags;
        p.batch = batch, p.m = m, p.n = n, p.k = k;
        return p;
      };
      const bool bias = bits & 4;
      check(of(1, 1, 1, 1), bias);
      check(of(1, 1, 1, 0), bias);
      check(of(0, 3, 4, 5), bias);
      MatmulProblem shared = of(4, 130, 70, 33);
      shared.batch_stride_b = 0;
      check(shared, bias);
      shared.batch_stride_b = -1, shared.batch_stride_a = 0;
      check(shared, bias);
    }
}

TEST_P(CpuMatmul, DeterministicModeGivesTheSameBitsForEveryThreadCount) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    if (!takes(dtype)) continue;
    for (const std::int64_t batch : {-1, 0, 1, 2, 10}) {
      MatmulProblem p{.batch = batch, .m = 200, .n = 130, .k = 700, .deterministic = true};
      if (batch == 0) p = {.m = 20, .n = 30, .k = 3000, .deterministic = true};  // a long sum
      if (batch == -1) p = {.m = 200, .n = 130, .k = 3100, .transpose_a = true, .deterministic = true};
      p.a = p.b = dtype;
      p.c = dtype == DType::f64 ? dtype : DType::f32;
      Operands o = make_operands(p);
      std::vector<std::byte> expected;
      for (const int pool : {1, 2, 3, 16}) {
        set_threads(pool);
        GetParam().run(o.p, o.a.data(), o.b.data(), nullptr, o.c.data());
        if (pool == 1) expected = o.c.bytes;
        EXPECT_TRUE(o.c.bytes == expected) << pool << " threads, batch " << batch << ", " << name_of(dtype);
      }
    }
  }
}

TEST_P(CpuMatmul, RefusesWhatContradictsItself) {
  const auto run = [](const MatmulProblem& p) { GetParam().run(p, nullptr, nullptr, nullptr, nullptr); };
  EXPECT_THROW(run({.m = -1, .n = 2, .k = 3}), ShapeError);
  EXPECT_THROW(run({.m = 4, .n = 2, .k = 3, .lda = 2}), ShapeError);
  EXPECT_THROW(run({.m = std::int64_t{1} << 40, .n = 2, .k = std::int64_t{1} << 40}), ShapeError);
}

INSTANTIATE_TEST_SUITE_P(By, CpuMatmul,
                         testing::Values(Implementation{"choice", matmul}, Implementation{"gemm", matmul_by_gemm},
                                         Implementation{"onednn", dnn::matmul},
                                         Implementation{"avx512_bf16", matmul_by_avx512_bf16},
                                         Implementation{"amx", matmul_by_amx},
                                         Implementation{"emulated_amx", by_emulated_tiles}),
                         [](const auto& of) { return std::string(of.param.name); });

/// The root of the mean square error of `run` against sums in f64.
double error_of(Implementation::Run run, const MatmulProblem& p, const std::vector<float>& a,
                const std::vector<float>& b) {
  std::vector<float> c(at(p.m * p.n));
  run(p, a.data(), b.data(), nullptr, c.data());
  double squares = 0.0;
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < p.k; ++k) sum += double{a[at(i * p.k + k)]} * b[at(k * p.n + j)];
      squares += (c[at(i * p.n + j)] - sum) * (c[at(i * p.n + j)] - sum);
    }
  return std::sqrt(squares / static_cast<double>(p.m * p.n));
}

TEST(AmxMatmul, F32ProductsAreAsCloseAsThoseOfF32Loops) {
  const test::EmulateTiles emulate;
  for (const std::int64_t k : {40, 500, 3000})
    for (const int spread : {0, 20}) {
      const MatmulProblem p{.m = 40, .n = 50, .k = k};
      Random random(7, 0);
      const auto values = [&](std::int64_t size) {
        std::vector<float> made(at(size));
        for (float& value : made)
          value = std::ldexp(static_cast<float>(random.uniform(-1.0, 1.0)),
                             static_cast<int>(random.uniform(-spread, spread)));
        return made;
      };
      const std::vector<float> a = values(p.m * k), b = values(k * p.n);
      EXPECT_LE(error_of(by_emulated_tiles, p, a, b), error_of(matmul_by_gemm, p, a, b)) << k << " 2^+-" << spread;
    }
}

TEST(AmxMatmul, F32ValuesKeepTheirBitsDownToTheStatedBound) {
  const test::EmulateTiles emulate;
  const auto times_one = [](float value) {
    const float one = 1.0f;
    float product = 0.0f;
    by_emulated_tiles({.m = 1, .n = 1, .k = 1}, &value, &one, nullptr, &product);
    return product;
  };
  for (const float value : {1.0f / 3.0f, 3.3e38f, -0x1.fffffep100f, 0x1.fffffep-102f})
    EXPECT_EQ(times_one(value), value) << value;
  EXPECT_NEAR(times_one(0x1.fffffep-120f), 0x1.fffffep-120f, 0x1p-128f);
  EXPECT_TRUE(std::isnan(times_one(INFINITY)));
  EXPECT_TRUE(std::isnan(times_one(NAN)));
}

/// What matmul() runs of the problem.
std::string choice_of(const MatmulProblem& p) {
  const Values a(p.a, p.m * p.k, 1), b(p.b, p.k * p.n, 2);
  Values c(p.c, p.m * p.n, 3);
  matmul(p, a.data(), b.data(), nullptr, c.data());
  return last_choice("matmul");
}

TEST(CpuMatmulChoice, IsTheLibraryWhereItTakesTheProblem) {
  MatmulProblem p{.m = 4, .n = 2, .k = 3};
  EXPECT_EQ(choice_of(p), dnn::available() ? "onednn" : "gemm");
  EXPECT_EQ(is_left_to_gemm(p), !dnn::available());
  p.a = p.b = p.c = DType::f64;
  EXPECT_EQ(choice_of(p), "gemm");
  EXPECT_TRUE(is_left_to_gemm(p));
  // Below AVX-512 the library has no bf16.
  const bool library_has_bf16 = dnn::library().find("avx512") != std::string::npos;
  EXPECT_EQ(is_left_to_gemm({.m = 64, .n = 32, .k = 48, .a = DType::bf16}),
            !library_has_bf16 && !amx::has_bf16_vectors());
}

// The products of a convolution are chosen as those of linear and matmul are, and reported once.
TEST(CpuMatmulChoice, IsMadeForConvolutionsToo) {
  const Tensor x = Tensor::full({1, 4, 4, 32}, 1.0), w = Tensor::full({32, 1, 1, 32}, 1.0);
  for (const std::string name : {"onednn", "gemm"}) {
    if (name == "onednn" && !dnn::available()) continue;
    const ForceCandidate force("matmul", name), force_conv("conv2d", "matmul");
    profiler::start();
    const Tensor y = conv2d(x, w);
    profiler::stop();
    EXPECT_EQ(y.to_doubles(), std::vector<double>(16 * 32, 32.0));
    EXPECT_EQ(last_choice("matmul"), name);
    const auto summary = profiler::summary();
    ASSERT_EQ(summary.count("matmul:" + name), 1U);
    EXPECT_EQ(summary.at("matmul:" + name).flops, 2.0 * 16 * 32 * 32);
    EXPECT_EQ(summary.at("conv2d:matmul").flops, 0.0);
  }
  const ForceCandidate force("matmul", "avx512_bf16");
  EXPECT_THROW(choice_of({.m = 4, .n = 2, .k = 3}), UsageError);
}

TEST(CpuMatmulChoice, IsNativeForGradientsThatTheLibraryDoesNotCopy) {
  if (!dnn::available() || isa() != Isa::v3) GTEST_SKIP() << "needs oneDNN, and AVX2 as the ISA level";
  auto candidates = kernels::product_candidates(stream_of({}), "test_products");
  const auto chosen = [&](const MatmulProblem& p) { return std::string(candidates.choose(p).label); };
  MatmulProblem p{.m = 384, .n = 1536, .k = 2048, .transpose_a = true};
  EXPECT_EQ(chosen(p), "test_products:gemm");
  for (const auto change :
       {+[](MatmulProblem& q) { q.m = 392; }, +[](MatmulProblem& q) { q.m = 256; },
        +[](MatmulProblem& q) { q.m = 8200, q.n = 384; }, +[](MatmulProblem& q) { q.m = 392, q.lda = 8200; },
        +[](MatmulProblem& q) { q.n = 768; }, +[](MatmulProblem& q) { q.transpose_a = false; },
        +[](MatmulProblem& q) { q.transpose_b = true; }, +[](MatmulProblem& q) { q.deterministic = true; }}) {
    MatmulProblem other = p;
    change(other);
    EXPECT_EQ(chosen(other), "test_products:onednn") << join_text(other);
  }
  for (const MatmulProblem& other : {MatmulProblem{.m = 128, .n = 2048, .k = 2048, .transpose_a = true},
                                     MatmulProblem{.m = 8192, .n = 384, .k = 2048, .transpose_a = true},
                                     MatmulProblem{.m = 392, .n = 384, .k = 2048, .transpose_a = true, .lda = 4096}})
    EXPECT_EQ(chosen(other), "test_products:gemm") << join_text(other);
}

TEST(CpuMatmulChoice, IsTheVectorsOfBf16WhereThereAreNoTiles) {
  MatmulProblem p{.m = 64, .n = 32, .k = 48, .a = DType::bf16};
  const bool vectors = amx::has_bf16_vectors() && !amx::unsupported().empty();
  EXPECT_EQ(choice_of(p) == "avx512_bf16", vectors);
  auto candidates = kernels::product_candidates(stream_of({}), "test_bf16_products");
  EXPECT_EQ(std::string(candidates.choose(p).label) == "test_bf16_products:avx512_bf16", vectors);
  p.a = DType::f32;
  EXPECT_NE(avx512_bf16_unsupported(p), "");
  EXPECT_THROW(matmul_by_avx512_bf16(p, nullptr, nullptr, nullptr, nullptr), UsageError);
  EXPECT_NE(avx512_bf16_unsupported({.m = 4, .n = 2, .k = 3, .a = DType::f64, .b = DType::f64, .c = DType::f64}), "");
}

// Panels that are not full, an odd number of terms, chunks, blocks side by side and shares of the sum.
TEST(Bf16Vectors, SumTheRowsOfATransposedA) {
  if (!amx::has_bf16_vectors()) GTEST_SKIP() << "needs AVX-512 with bf16 products";
  for (const auto [m, n, k] : {std::array{5, 3, 1}, std::array{70, 40, 7}, std::array{96, 33, 801},
                               std::array{300, 1100, 130}, std::array{64, 96, 5000}}) {
    const MatmulProblem p{.m = m, .n = n, .k = k, .transpose_a = true, .a = DType::bf16, .b = DType::bf16};
    const Values a(DType::bf16, std::int64_t{m} * k, 1), b(DType::bf16, std::int64_t{n} * k, 2);
    Values c(DType::f32, std::int64_t{m} * n, 3), plain = c;
    matmul_by_avx512_bf16(p, a.data(), b.data(), nullptr, plain.data());
    std::vector<float> sums(at(m), 9.0f);
    matmul_with_sums_by_avx512_bf16(p, a.data(), b.data(), nullptr, c.data(), sums.data());
    EXPECT_EQ(c.bytes, plain.bytes) << p;
    for (std::int64_t i = 0; i < m; ++i) {
      double expected = 0, size = 0;
      for (std::int64_t t = 0; t < k; ++t) expected += a.get(t * m + i), size += std::abs(a.get(t * m + i));
      ASSERT_NEAR(sums[at(i)], expected, 1e-6 * size) << p << " at " << i;
    }
  }
  for (const MatmulProblem& p : {MatmulProblem{.m = 4, .n = 2, .k = 3, .a = DType::bf16, .b = DType::bf16},
                                 MatmulProblem{.batch = 2, .m = 4, .n = 2, .k = 3, .transpose_a = true},
                                 MatmulProblem{.m = 4, .n = 2, .k = 0, .transpose_a = true},
                                 MatmulProblem{.m = 4, .n = 0, .k = 3, .transpose_a = true},
                                 MatmulProblem{.m = 4, .n = 2, .k = 3, .transpose_a = true, .a = DType::f64}})
    EXPECT_THROW(matmul_with_sums_by_avx512_bf16(p, nullptr, nullptr, nullptr, nullptr, nullptr), UsageError) << p;
}

// The gradient of a bias is what the product of the weights' gradient sums on the way.
TEST(Bf16Vectors, SumTheGradientOfABias) {
  if (!amx::has_bf16_vectors() || amx::unsupported().empty()) GTEST_SKIP() << "needs bf16 by vectors";
  const std::int64_t rows = 900, outputs = 70, inputs = 64;
  const Values dy(DType::bf16, rows * outputs, 1), x(DType::bf16, rows * inputs, 2);
  std::vector<float> dw(at(outputs * inputs)), sums(at(outputs));
  matmul_with_sums_by_avx512_bf16(
      {.m = outputs, .n = inputs, .k = rows, .transpose_a = true, .a = DType::bf16, .b = DType::bf16}, dy.data(),
      x.data(), nullptr, dw.data(), sums.data());
  const auto tensor = [](const Values& values, const Shape& shape) {
    const Tensor result = Tensor::empty(shape, values.dtype);
    std::copy_n(values.bytes.data(), values.bytes.size(), result.bytes());
    return result;
  };
  for (const DType type : {DType::f32, DType::bf16}) {
    const Tensor w = requires_grad(Tensor::full({outputs, inputs}, 0.5, type)),
                 b = requires_grad(Tensor::full({outputs}, 0.5, type));
    backward(linear(tensor(x, {rows, inputs}), w, b), tensor(dy, {rows, outputs}));
    const Tensor found = grad_of(b);
    EXPECT_EQ(found.to_doubles(), Tensor::of({outputs}, sums).to(found.dtype()).to_doubles());
  }
}

TEST(DnnMatmul, SaysWhyItIsUnsupported) {
  if (!dnn::available()) {
    EXPECT_NE(dnn::unsupported(MatmulProblem{.m = 1, .n = 1, .k = 1}).find("install"), std::string::npos);
    return;
  }
  EXPECT_NE(dnn::unsupported({.m = 4, .n = 2, .k = 3, .a = DType::f64, .b = DType::f64, .c = DType::f64}), "");
  EXPECT_THROW(dnn::matmul({.m = 4, .n = 2, .k = 3, .c = DType::bf16}, nullptr, nullptr, nullptr, nullptr), UsageError);
}

}  // namespace
}  // namespace hearth::cpu::matmul_cpu_test
