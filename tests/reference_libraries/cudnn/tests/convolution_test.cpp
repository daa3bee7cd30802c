// SPDX-License-Identifier: Apache-2.0
// Convolutions by a library: which plans run, and what becomes of an epilogue that it has no plan for. The op tests of
// conv2d run here too.
#include <cudnn.h>

#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/random.h"
#include "ops/conv/conv2d.h"
#include "ops/dispatch/candidates.h"
#include "ops/dispatch/repeatable.h"
#include "ops/image/padded_images.h"
#include "ops/pointwise/binary.h"
#include "ops/pointwise/pointwise.h"
#include "tests/reference_libraries/cudnn/tests/reference.h"
#include "tests/support/op_test.h"

namespace hearth::test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

using CudaReferenceConvolution = CudaReferenceDnn;

Tensor numbers(const Shape& shape, std::uint64_t stream, DType dtype) {
  Random random(29, stream);
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (double& value : values) value = 0.25 * random.normal();
  return Tensor::of<double>(shape, values).to(dtype).to(gpu);
}

/// y with bias and ReLU, and the gradients of x, w and b, for images of so many rows.
std::vector<Tensor> run(std::int64_t rows, DType dtype, DType weights) {
  const Tensor x = requires_grad(numbers({2, rows, 7, 8}, 1, dtype)),
               w = requires_grad(numbers({16, 3, 3, 8}, 2, weights)), b = requires_grad(numbers({16}, 3, weights));
  const Tensor y = conv2d(x, w, b, {.padding = 1, .activation = Activation::relu});
  backward(y, numbers(y.shape(), 4, dtype));
  return {y, grad_of(x), grad_of(w), grad_of(b)};
}
std::vector<Tensor> run(std::int64_t rows, DType dtype) { return run(rows, dtype, dtype); }

std::vector<Tensor> run_portable(std::int64_t rows, DType dtype, DType weights) {
  const ForceCandidate force("conv2d", "portable");
  return run(rows, dtype, weights);
}
std::vector<Tensor> run_portable(std::int64_t rows, DType dtype) { return run_portable(rows, dtype, dtype); }

void expect_same(const std::vector<Tensor>& found, const std::vector<Tensor>& expected, DType dtype) {
  for (std::size_t i = 0; i < found.size(); ++i) expect_close(found[i], expected[i], dtype == DType::f32 ? 1e-5 : 2e-2);
}

TEST_F(CudaReferenceConvolution, OnePlanAPass) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::vector<Tensor> own = run_portable(6, dtype);
    controls() = {};
    const std::vector<Tensor> library = run(6, dtype);
    EXPECT_EQ(last_choice("conv2d"), "cudnn");
    expect_same(library, own, dtype);
    const auto& engine = dtype == DType::f32 ? reference_dnn::plain : reference_dnn::rounding;
    EXPECT_EQ(controls().runs[engine], 3) << dtype;
    const std::int64_t questions = controls().questions;
    (void)run(6, dtype);
    EXPECT_EQ(controls().questions, questions) << "plans are kept";
  }
}

// As in mixed precision. The library makes 16-bit gradients of 16-bit images only.
TEST_F(CudaReferenceConvolution, FilterGradientsInF32OfLowPrecisionImages) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const std::vector<Tensor> own = run_portable(8, dtype, DType::f32);
    controls() = {};
    const std::vector<Tensor> library = run(8, dtype, DType::f32);
    EXPECT_EQ(controls().runs[reference_dnn::rounding], 3) << dtype;
    EXPECT_EQ(library[2].dtype(), DType::f32);
    expect_same(library, own, dtype);
  }
}

// A first convolution: images come in pixels of 4 channels, or 8. In f16 the library reads those, in bf16 a copy of 8.
TEST_F(CudaReferenceConvolution, ImagesOfFewChannels) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const std::int64_t channels : {1, 3, 4, 5}) {
      SCOPED_TRACE(testing::Message() << dtype << ' ' << channels);
      EXPECT_EQ(hearth::detail::pixel_capacity(dtype, channels, gpu), channels < 5 ? 4 : 8);
      const auto results = [&](const char* by) {
        const ForceCandidate force("conv2d", by);
        const Tensor x = requires_grad(numbers({2, 9, 7, channels}, 1, dtype)),
                     w = requires_grad(numbers({8, 3, 3, channels}, 2, dtype));
        const Tensor y = conv2d(x, w, {}, {.stride = 2, .padding = 1});
        backward(y, numbers(y.shape(), 4, dtype));
        return std::vector<Tensor>{y, grad_of(x), grad_of(w)};
      };
      expect_same(results("cudnn"), results("portable"), dtype);
      expect_same(results("mma"), results("portable"), dtype);
    }
}

/// x's gradient where it has another reader, as in a residual block; `rows` makes a problem of its own.
Tensor gradient_of_two_readers(const char* by, std::int64_t rows, DType dtype) {
  const ForceCandidate force("conv2d", by);
  const Tensor from = requires_grad(numbers({2, rows, 5, 8}, 1, dtype)), w = numbers({8, 3, 3, 8}, 2, dtype);
  const Tensor x = mul(from, 2.0), convolved = conv2d(x, w, {.padding = 1}), y = add(convolved, relu(x));
  backward(y, numbers(y.shape(), 4, dtype));
  return grad_of(from);
}

TEST_F(CudaReferenceConvolution, GradientsOfImagesAreAddedByThePlan) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor own = gradient_of_two_readers("portable", 6, dtype);
    controls() = {};
    const Tensor library = gradient_of_two_readers("cudnn", 6, dtype);
    EXPECT_EQ(controls().added, 1) << dtype;
    expect_close(library, own, dtype == DType::f32 ? 1e-5 : 2e-2);
    // Where the library has no such plan it is added behind it.
    controls() = {};
    controls().adds = false;
    const Tensor beside = gradient_of_two_readers("cudnn", 7, dtype);
    EXPECT_EQ(controls().added, 0) << dtype;
    expect_close(beside, gradient_of_two_readers("portable", 7, dtype), dtype == DType::f32 ? 1e-5 : 2e-2);
  }
}

TEST_F(CudaReferenceConvolution, WhatAPlanDoesNotDoIsDoneBehindIt) {
  const std::vector<Tensor> own = run_portable(5, DType::f32);
  controls().withheld = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
  const std::vector<Tensor> library = run(5, DType::f32);
  EXPECT_EQ(last_choice("conv2d"), "cudnn");
  expect_same(library, own, DType::f32);
}

// Choices are made again for each: what one may not run is no plan of the other's.
TEST_F(CudaReferenceConvolution, EnginesThatDoNotRepeatRunWhereThatIsAllowed) {
  const std::vector<Tensor> own = run_portable(3, DType::bf16);
  for (const bool same_bits : {true, false, true}) {
    controls() = {};
    set_repeatable(same_bits);
    const std::vector<Tensor> library = run(3, DType::bf16);
    EXPECT_EQ(controls().runs[reference_dnn::adding_anywhere], same_bits ? 0 : 3);
    EXPECT_EQ(controls().runs[reference_dnn::rounding], same_bits ? 3 : 0);
    expect_same(library, own, DType::bf16);
  }
}

TEST_F(CudaReferenceConvolution, PassesThatTheLibraryDoesNotSupportAreLeftToOthers) {
  const std::vector<Tensor> own = run_portable(4, DType::f32);
  controls().withheld = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
  const std::vector<Tensor> library = run(4, DType::f32);
  EXPECT_EQ(controls().runs[reference_dnn::plain], 2) << "all but the filters' gradient";
  expect_same(library, own, DType::f32);
}

}  // namespace
}  // namespace hearth::test
