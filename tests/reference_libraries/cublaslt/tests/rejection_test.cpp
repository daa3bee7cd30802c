// SPDX-License-Identifier: Apache-2.0
// Products of a library that fail when they are first used, and the filter gradients that are products.
// Choices are kept as long as the process, so each test has sizes of its own.
#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/random.h"
#include "ops/conv/conv2d.h"
#include "ops/dispatch/candidates.h"
#include "ops/linear/linear.h"
#include "tests/reference_libraries/cublaslt/tests/reference.h"
#include "tests/support/error_message.h"
#include "tests/support/op_test.h"
#include "tests/support/warnings.h"

namespace hearth::test {
namespace {

constexpr Device gpu{DeviceType::cuda};

using CudaProductRejection = CudaReferenceBlas;

Tensor numbers(const Shape& shape, std::uint64_t stream, DType dtype) {
  Random random(37, stream);
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (double& value : values) value = 0.25 * random.normal();
  return Tensor::of<double>(shape, values).to(dtype).to(gpu);
}

/// y, and the gradients of x, w, of which two are added, and b.
std::vector<Tensor> layer(std::int64_t rows) {
  const Tensor x = requires_grad(numbers({rows, 16}, 1, DType::f32)),
               w = requires_grad(numbers({24, 16}, 2, DType::f32)), b = requires_grad(numbers({24}, 3, DType::f32));
  Tensor y;
  for (int i = 0; i < 2; ++i) {
    y = linear(x, w, b, Activation::none);
    backward(y, numbers({rows, 24}, 4, DType::f32));
  }
  return {y, grad_of(x), grad_of(w), grad_of(b)};
}

void expect_same(const std::vector<Tensor>& found, const std::vector<Tensor>& expected) {
  for (std::size_t i = 0; i < found.size(); ++i) expect_close(found[i], expected[i], 1e-5);
}

std::vector<Tensor> native(std::int64_t rows) {
  const ForceCandidate force("linear", "portable");
  return layer(rows);
}

TEST_F(CudaProductRejection, AProductThatFailsIsToldAndTheNextRuns) {
  const VariableScope timing("HEARTH_PLAN_TIMING", "off");
  controls().fails = true;
  std::vector<Tensor> found;
  const std::string text = warnings_of([&] { found = layer(5); });
  for (const char* name : {"cublaslt", "cublaslt_unfused"})
    EXPECT_PRED2(contains, text,
                 join_text("linear: ", name, " is not used for f32 x f32 to f32, batch 1, ",
                           "5x16 by 16x24, b transposed, bias: cuBLASLt: cublasLtMatmul: ",
                           "CUBLAS_STATUS_EXECUTION_FAILED; the next implementation runs it"));
  EXPECT_EQ(last_choice("linear"), "portable");
  expect_same(found, native(5));
  EXPECT_EQ(warnings_of([&] { (void)layer(5); }), "");
}

/// The gradients of w, f32, and of b for 16-bit images of so many rows, and by what the filters' was made.
std::pair<std::vector<Tensor>, std::string> filter_gradient(std::int64_t rows, DType dtype, std::int64_t stride = 1) {
  const Tensor x = numbers({2, rows, 5, 16}, 1, dtype), w = requires_grad(numbers({24, 1, 1, 16}, 2, DType::f32)),
               b = requires_grad(numbers({24}, 3, DType::f32));
  const Tensor y = conv2d(x, w, b, {.stride = stride});
  const ChoiceLog log;
  backward(y, numbers(y.shape(), 4, dtype));
  return {{grad_of(w), grad_of(b)}, log.runs().begin()->first.first};
}

TEST_F(CudaProductRejection, FilterGradientsOf1x1FiltersAreProductsInF32) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const auto [found, by] = filter_gradient(6, dtype);
    EXPECT_EQ(by, "conv2d:cublaslt");
    const ForceCandidate force("conv2d", "portable");
    // Nothing was rounded to 16 bits.
    expect_same(found, filter_gradient(6, dtype).first);
  }
  EXPECT_EQ(filter_gradient(6, DType::bf16, 2).second, "conv2d:mma") << "it leaves pixels out";
}

}  // namespace
}  // namespace hearth::test
