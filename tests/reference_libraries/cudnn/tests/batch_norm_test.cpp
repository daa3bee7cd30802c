// SPDX-License-Identifier: Apache-2.0
// Batch normalisation and its gradient by a library: which makes the gradient, what it reads of the forward pass, and
// that both agree with the own kernels. AgreesWithTheOwnKernelsOrSaysWhyNot of the ops' tests runs here too.
#include <cudnn.h>

#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "core/random.h"
#include "ops/candidates.h"
#include "ops/norm/batch_norm.h"
#include "tests/reference_libraries/cudnn/tests/reference.h"
#include "tests/support/error_message.h"
#include "tests/support/op_test.h"

namespace hearth::test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

using CudaReferenceNorm = CudaReferenceDnn;

Tensor numbers(const Shape& shape, std::uint64_t stream, DType dtype = DType::f32) {
  Random random(23, stream);
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (double& value : values) value = random.normal();
  return Tensor::of<double>(shape, values).to(dtype).to(gpu);
}

struct Case {
  Shape shape{3, 4, 5, 16};
  DType dtype = DType::f32;
  bool residual = true;
  Activation activation = Activation::relu;
};

/// y, the running statistics and all gradients.
std::vector<Tensor> run(const Case& c, const Tensor& x) {
  const std::int64_t channels = c.shape.dim(-1);
  const Tensor other = as_leaf(numbers(c.shape, 2, c.dtype)), gamma = as_leaf(numbers({channels}, 3)),
               beta = as_leaf(numbers({channels}, 4));
  const Tensor mean = Tensor::zeros({channels}, DType::f32, gpu), variance = Tensor::zeros({channels}, DType::f32, gpu);
  const Tensor y =
      batch_norm(x, gamma, beta, {.activation = c.activation}, mean, variance, c.residual ? other : Tensor());
  backward(y, numbers(y.shape(), 5, c.dtype));
  std::vector<Tensor> all{y, mean, variance, grad_of(gamma), grad_of(beta)};
  if (wants_grad(x)) all.push_back(grad_of(x));
  if (c.residual) all.push_back(grad_of(other));
  return all;
}
std::vector<Tensor> run(const Case& c) { return run(c, as_leaf(numbers(c.shape, 1, c.dtype))); }

void expect_same(const std::vector<Tensor>& found, const std::vector<Tensor>& expected, DType dtype) {
  const double tolerance = dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 1e-2 : 6e-2;
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) expect_close(found[i], expected[i], tolerance);
}

TEST_F(CudaReferenceNorm, TheLibraryMakesTheGradientOfWhatItNormalised) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const bool residual : {false, true})
      for (const Activation activation : {Activation::none, Activation::relu}) {
        const Case c{.dtype = dtype, .residual = residual, .activation = activation};
        const std::vector<Tensor> own = run(c);
        const PinCandidate pin("batch_norm", "cudnn");
        controls() = {};
        const std::vector<Tensor> library = run(c);
        EXPECT_EQ(last_choice("batch_norm_grad"), "cudnn");
        expect_same(library, own, dtype);
        // Forward and backward; repeatable, and f32 not rounded.
        const auto& engine = dtype == DType::f32 ? reference_dnn::plain : reference_dnn::rounding;
        EXPECT_EQ(controls().runs[engine], 2) << dtype;
        EXPECT_EQ(controls().runs[reference_dnn::adding_anywhere] + controls().runs[reference_dnn::spacious], 0);
      }
}

TEST_F(CudaReferenceNorm, GradientsThatNobodyWantsAreMadeAside) {
  const Case c;
  const Tensor x = numbers(c.shape, 1);
  const std::vector<Tensor> own = run(c, x);
  const PinCandidate pin("batch_norm", "cudnn");
  const std::vector<Tensor> library = run(c, x);
  EXPECT_EQ(last_choice("batch_norm_grad"), "cudnn");
  expect_same(library, own, DType::f32);
}

TEST_F(CudaReferenceNorm, MemoryAtAnOddAddressIsCopied) {
  const Case c;
  const auto odd = [&] {
    const Tensor room = Tensor::zeros({c.shape.size() + 1}, DType::f32, gpu);
    const Tensor x = Tensor::view(room.storage(), c.shape, contiguous_strides(c.shape), 1, DType::f32, gpu);
    x.copy_from(numbers(c.shape, 1));
    return as_leaf(x);
  };
  const std::vector<Tensor> own = run(c);
  const PinCandidate pin("batch_norm", "cudnn");
  expect_same(run(c, odd()), own, DType::f32);
}

// Without all of its engines the library normalises and the own kernels make the gradient.
TEST_F(CudaReferenceNorm, TheOwnKernelsMakeTheGradientWhereTheLibraryDoesNot) {
  struct Declined {
    Case c;
    int withheld;
    const char* reason;
  };
  const int none = -1;
  for (const Declined& d :
       {Declined{{.shape = {3, 2, 7, 16}}, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR, "no repeatable engine"},
        {{.shape = {3, 2, 7, 16}, .activation = Activation::none},
         CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR,
         "no repeatable engine"},
        {{.shape = {3, 2, 7, 12}}, none, "channels are not a multiple of 8"}}) {
    const std::vector<Tensor> own = run(d.c);
    const PinCandidate pin("batch_norm", "cudnn");
    controls().withheld = d.withheld;
    expect_same(run(d.c), own, DType::f32);
    EXPECT_EQ(last_choice("batch_norm"), "cudnn");
    EXPECT_EQ(last_choice("batch_norm_grad"), "own");
    const PinCandidate gradient("batch_norm_grad", "cudnn");
    const std::string message = error_message<UsageError>([&] { (void)run(d.c); });
    EXPECT_PRED2(contains, message, d.reason);
    EXPECT_PRED2(contains, message, "batch_norm_grad: pinned to cudnn");
  }
}

TEST_F(CudaReferenceNorm, WithoutAGradientNothingIsLeftForIt) {
  const Case c{.shape = {2, 3, 3, 8}};
  const Tensor x = numbers(c.shape, 1), gamma = numbers({8}, 3), beta = numbers({8}, 4);
  const PinCandidate pin("batch_norm", "cudnn");
  const NoGrad no_grad;
  (void)batch_norm(x, gamma, beta, {.activation = Activation::relu}, {}, {});
  EXPECT_EQ(controls().questions, 1) << "of the forward plan alone";
}

}  // namespace
}  // namespace hearth::test
