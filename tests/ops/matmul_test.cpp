// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul.h"

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/profiler.h"
#include "ops/dispatch/candidates.h"
#include "tests/support/op_test.h"

namespace hearth::test::matmul_test {
namespace {

struct Case {
  Shape a, b;
  MatmulOptions options;
};

// Degenerate, odd, aligned, larger than a block, and attention's batch.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {{1, 1}, {1, 1}, {}},
      {{3, 5}, {5, 2}, {}},
      {{37, 17}, {37, 19}, {.transpose_a = true}},
      {{33, 64}, {48, 64}, {.transpose_b = true}},
      {{7, 9}, {11, 7}, {.transpose_a = true, .transpose_b = true}},
      {{2, 3, 5, 4}, {2, 3, 4, 6}, {}},
      {{6, 4, 8}, {6, 4, 8}, {.transpose_a = true}},
      {{6, 4, 8}, {6, 5, 8}, {.transpose_b = true}},
      {{3, 4, 8}, {3, 6, 4}, {.transpose_a = true, .transpose_b = true}},
      {{2, 3, 4, 5}, {5, 7}, {}},
      {{3, 4, 5}, {7, 5}, {.transpose_b = true}},
      {{3, 4, 5}, {4, 7}, {.transpose_a = true}},
      {{3, 4, 5}, {7, 4}, {.transpose_a = true, .transpose_b = true}},
      {{4, 5}, {3, 5, 6}, {}},
      {{5, 4}, {2, 3, 6, 5}, {.transpose_a = true, .transpose_b = true}},
      {{2, 1, 4, 5}, {3, 5, 6}, {}},
      {{1, 4, 5}, {3, 6, 5}, {.transpose_b = true}},
      {{5}, {5}, {}},
      {{5}, {5, 6}, {}},
      {{5}, {2, 6, 5}, {.transpose_b = true}},
      {{4, 5}, {5}, {}},
      {{2, 3, 5, 4}, {5}, {.transpose_a = true}},
  };
  return all;
}

/// Where the matrix for the i-th of `batch`, leading axes that x's broadcast to, is among those of x.
std::int64_t matrix_of(const Shape& x, const Shape& batch, std::int64_t i) {
  std::int64_t matrix = 0, step = 1;
  for (int axis = 1; axis <= batch.rank(); ++axis) {
    const std::int64_t extent = axis + 2 <= x.rank() ? x.dim(-axis - 2) : 1;
    if (extent > 1) matrix += i % batch.dim(-axis) * step;
    step *= extent;
    i /= batch.dim(-axis);
  }
  return matrix;
}

std::vector<double> naive_matmul(const Tensor& a_in, const Tensor& b_in, const MatmulOptions& options) {
  const Tensor a = a_in.rank() == 1 ? a_in.unsqueeze(0) : a_in, b = b_in.rank() == 1 ? b_in.unsqueeze(1) : b_in;
  const std::vector<double> av = a.to_doubles(), bv = b.to_doubles();
  const std::int64_t m = a.dim(options.transpose_a ? -1 : -2), k = a.dim(options.transpose_a ? -2 : -1);
  const std::int64_t n = b.dim(options.transpose_b ? -2 : -1);
  const auto leading = [](const Tensor& x) {
    return Shape(std::span(x.shape().begin(), static_cast<std::size_t>(x.rank() - 2)));
  };
  const Shape batch = broadcast_shapes("naive", leading(a), leading(b));
  std::vector<double> y;
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    const std::int64_t from_a = matrix_of(a.shape(), batch, i) * m * k, from_b = matrix_of(b.shape(), batch, i) * k * n;
    for (std::int64_t row = 0; row < m; ++row)
      for (std::int64_t column = 0; column < n; ++column) {
        double sum = 0;
        for (std::int64_t j = 0; j < k; ++j) {
          const std::int64_t at_a = from_a + (options.transpose_a ? j * m + row : row * k + j);
          const std::int64_t at_b = from_b + (options.transpose_b ? column * k + j : j * n + column);
          sum += av[static_cast<std::size_t>(at_a)] * bv[static_cast<std::size_t>(at_b)];
        }
        y.push_back(sum);
      }
  }
  return y;
}

void check_all() {
  for (const Case& c : cases()) {
    SCOPED_TRACE(testing::Message() << "a " << c.a << " b " << c.b);
    check(
        [&](Draw& draw) {
          const Tensor a = draw.normal(c.a);
          return matmul(a, draw.normal(c.b), c.options);
        },
        [&](Draw& draw) {
          const Tensor a = draw.normal(c.a);
          return naive_matmul(a, draw.normal(c.b), c.options);
        });
  }
}

OP_TEST(Matmul) { check_all(); }

/// The candidate that takes everything.
const char* last_candidate() { return current_site().device.is_cuda() ? "portable" : "gemm"; }

OP_TEST(MatmulPortable) {
  const ForceCandidate force("matmul", last_candidate());
  check_all();
  EXPECT_EQ(last_choice("matmul"), last_candidate());
}

// Several tiles with ragged edges, and sums long enough to be shared.
void check_tiles(const char* candidate) {
  const ForceCandidate force("matmul", candidate);
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) {
      const Case c{transpose_a ? Shape{40, 152} : Shape{152, 40},
                   transpose_b ? Shape{136, 40} : Shape{40, 136},
                   {.transpose_a = transpose_a, .transpose_b = transpose_b}};
      SCOPED_TRACE(testing::Message() << candidate << " a " << c.a << " b " << c.b);
      check([&](Draw& draw) {
        const Tensor a = draw.normal(c.a);
        return matmul(a, draw.normal(c.b, 0.2), c.options);
      });
    }
  check([](Draw& draw) {
    const Tensor a = draw.normal({16, 1304});
    return matmul(a, draw.normal({1304, 24}, 0.03));
  });
  check([](Draw& draw) {
    const Tensor a = draw.normal({3, 16, 48});
    return matmul(a, draw.normal({3, 8, 48}, 0.2), {.transpose_b = true});
  });
}

OP_TEST(MatmulTiles) { check_tiles(last_candidate()); }

OP_TEST(MatmulTensorCores) {
  if (current_site().device.is_cuda() && size_of(site_dtype()) != 2) return;
  check_tiles("mma");
}

TEST(CudaMatmulTensorCores, UnsupportedProblemsHaveReasons) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "no CUDA device";
  const Device device{DeviceType::cuda};
  const ForceCandidate force("matmul", "mma");
  const auto refused = [&](const Shape& a, const Shape& b, DType dtype, const char* reason) {
    try {
      (void)matmul(Tensor::zeros(a, dtype, device), Tensor::zeros(b, dtype, device));
      ADD_FAILURE() << "mma took " << a << " by " << b;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  };
  refused({8, 8}, {8, 8}, DType::f32, "tensor cores take f16 and bf16");
  refused({8, 9}, {9, 8}, DType::bf16, "rows of a have 9 elements");
  refused({8, 8}, {8, 12}, DType::f16, "rows of b have 12 elements");
}

TEST(MatmulSizes, EmptyInnerSizeGivesZeros) {
  const Tensor y = matmul(Tensor::empty({2, 0}), Tensor::empty({0, 3}));
  EXPECT_EQ(y.shape(), (Shape{2, 3}));
  EXPECT_EQ(y.to_doubles(), std::vector<double>(6, 0.0));
}

TEST(MatmulSizes, EmptyBatchAndRows) {
  EXPECT_EQ(matmul(Tensor::empty({0, 2, 3}), Tensor::empty({0, 3, 4})).shape(), (Shape{0, 2, 4}));
  EXPECT_EQ(matmul(Tensor::empty({0, 3}), Tensor::empty({3, 4})).shape(), (Shape{0, 4}));
}

TEST(MatmulSizes, EmptyBatchGivesZeroGradientOfTheSharedMatrix) {
  for (const bool transpose_a : {false, true}) {
    const Tensor a = Tensor::empty({0, 4, 4});
    const Tensor b = requires_grad(Tensor::full({4, 4}, 1));
    const Tensor y = matmul(a, b, {.transpose_a = transpose_a});
    backward(y, Tensor::empty_like(y));
    EXPECT_EQ(grad_of(b).to_doubles(), std::vector<double>(16, 0.0));
  }
}

TEST(MatmulGradients, OfALeafBesideItsForgottenGradient) {
  std::vector<double> results[2];
  for (const bool cloned : {false, true}) {
    const Tensor w = requires_grad(Tensor::of<float>({2, 2}, {1, 2, 3, 4}));
    backward(matmul(w, w), Tensor::full({2, 2}, 1));
    const Tensor taken = cloned ? grad_of(w).clone() : grad_of(w);
    zero_grad(w);
    backward(matmul(w, taken), Tensor::of<float>({2, 2}, {1, 2, 3, 5}));
    results[cloned] = grad_of(w).to_doubles();
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(MatmulSizes, CountsItsArithmetic) {
  const double before = profiler::total_flops();
  (void)matmul(Tensor::zeros({2, 3, 4}), Tensor::zeros({4, 5}));
  EXPECT_EQ(profiler::total_flops() - before, 2.0 * 2 * 3 * 4 * 5);
}

TEST(MatmulArguments, Refused) {
  const Tensor a = Tensor::zeros({2, 3});
  refuses<ShapeError>("matmul", [&] { return matmul(a, Tensor::zeros({4, 5})); });
  refuses<ShapeError>("matmul", [&] { return matmul(a, Tensor::zeros({3, 5}), {.transpose_a = true}); });
  refuses<ShapeError>("matmul", [&] { return matmul(a, Tensor::zeros({3, 5}), {.transpose_b = true}); });
  refuses<ShapeError>("matmul", [&] { return matmul(a, Tensor::zeros({2})); });
  refuses<ShapeError>("matmul", [&] { return matmul(Tensor::zeros({4}), Tensor::zeros({5, 3, 2})); });
  refuses<ShapeError>("matmul", [&] { return matmul(Tensor::zeros({}), a); });
  refuses<ShapeError>("matmul", [&] { return matmul(Tensor::zeros({2, 3, 4}), Tensor::zeros({3, 4, 5})); });
  refuses<ShapeError>("matmul", [&] { return matmul(a, Tensor::zeros({2, 4, 5})); });
  refuses<ShapeError>("matmul", [&] { return matmul(Tensor::zeros({2, 1, 4, 3}), Tensor::zeros({3, 2, 3, 5})); });
  refuses<UsageError>("matmul", [&] { return matmul(Tensor::zeros({3}), a, {.transpose_a = true}); });
  refuses<UsageError>("matmul", [&] { return matmul(a, Tensor::zeros({3}), {.transpose_b = true}); });
  refuses<DTypeError>("matmul", [&] { return matmul(a, Tensor::zeros({3, 5}, DType::f64)); });
  refuses<DTypeError>("matmul", [&] {
    return matmul(Tensor::zeros({2, 3}, DType::i32), Tensor::zeros({3, 5}, DType::i32));
  });
  refuses<UsageError>("matmul", [&] { return matmul(Tensor(), a); });
  refuses<UsageError>("matmul", [&] { return matmul(a, Tensor()); });
  refuses<ShapeError>("matmul", [&] {
    return matmul(Tensor::empty({std::int64_t{1} << 40, 0}), Tensor::empty({0, std::int64_t{1} << 40}));
  });
}

}  // namespace
}  // namespace hearth::test::matmul_test
