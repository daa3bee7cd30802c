// SPDX-License-Identifier: Apache-2.0
// Convolutions with 1x1 filters as products of the library.
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/random.h"
#include "ops/conv/conv2d.h"
#include "ops/dispatch/candidates.h"
#include "tests/reference_libraries/cublaslt/tests/reference.h"
#include "tests/support/error_message.h"
#include "tests/support/op_test.h"

namespace hearth::test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

using CudaReferenceProducts = CudaReferenceBlas;

Tensor numbers(const Shape& shape, std::uint64_t stream, DType dtype) {
  Random random(37, stream);
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (double& value : values) value = 0.25 * random.normal();
  return Tensor::of<double>(shape, values).to(dtype).to(gpu);
}

/// y with bias and activation, and all gradients, by this implementation.
std::vector<Tensor> convolve(const char* by, DType images, DType weights, Activation activation) {
  const ForceCandidate force("conv2d", by);
  const Tensor x = requires_grad(numbers({2, 3, 5, 16}, 1, images)),
               w = requires_grad(numbers({24, 1, 1, 16}, 2, weights)), b = requires_grad(numbers({24}, 3, weights));
  const Tensor y = conv2d(x, w, b, {.activation = activation});
  backward(y, numbers(y.shape(), 4, images));
  return {y, grad_of(x), grad_of(w), grad_of(b)};
}

TEST_F(CudaReferenceProducts, GiveAllPassesOfAConvolution) {
  struct Types {
    DType images, weights;
  };
  const VariableScope off("HEARTH_PLAN_TIMING", "off");
  for (const Types types : {Types{DType::f32, DType::f32}, Types{DType::bf16, DType::bf16},
                            Types{DType::bf16, DType::f32}, Types{DType::f16, DType::f16}}) {
    for (const Activation activation : {Activation::none, Activation::relu}) {
      const std::vector<Tensor> own = convolve("portable", types.images, types.weights, activation);
      controls() = {};
      const std::vector<Tensor> library = convolve("cublaslt", types.images, types.weights, activation);
      EXPECT_EQ(controls().runs[reference_blas::plain], 3) << types.images;
      for (std::size_t i = 0; i < own.size(); ++i) {
        EXPECT_EQ(library[i].dtype(), own[i].dtype()) << i;
        expect_close(library[i], own[i], types.images == DType::f32 ? 1e-5 : 2e-2);
      }
    }
  }
}

TEST_F(CudaReferenceProducts, AreForFiltersOfOnePixelOnly) {
  const ForceCandidate force("conv2d", "cublaslt");
  const Tensor x = numbers({1, 4, 4, 8}, 1, DType::f32), one = numbers({8, 1, 1, 8}, 2, DType::f32),
               three = numbers({8, 3, 3, 8}, 2, DType::f32), half = numbers({8, 1, 1, 4}, 2, DType::f32);
  for (const auto& call : {std::function<void()>([&] { (void)conv2d(x, three, {.padding = 1}); }),
                           std::function<void()>([&] { (void)conv2d(x, one, {.stride = 2}); }),
                           std::function<void()>([&] { (void)conv2d(x, one, {.padding = 1}); }),
                           std::function<void()>([&] { (void)conv2d(x, half, {.groups = 2}); })})
    EXPECT_PRED2(contains, error_message<UsageError>(call), "it is for 1x1 filters");
}

}  // namespace
}  // namespace hearth::test
