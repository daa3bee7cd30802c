// SPDX-License-Identifier: Apache-2.0
// A residual block in f16 by cuDNN's plans that read through a norm, against its layers by native kernels.
#include <cudnn.h>

#include <cmath>
#include <optional>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "core/random.h"
#include "ops/candidates.h"
#include "ops/conv/residual_block.h"
#include "ops/repeatable.h"
#include "tests/reference_libraries/cudnn/tests/reference.h"
#include "tests/support/op_test.h"

namespace hearth::test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

/// The library's plans with sums are taken where results need not be repeatable.
class CudaReferenceResidualBlock : public CudaReferenceDnn {
 protected:
  CudaReferenceResidualBlock() { set_repeatable(false); }
  ~CudaReferenceResidualBlock() override { set_repeatable(true); }
};

struct Block {
  std::vector<Tensor> leaves;
  std::vector<detail::BlockLayer> layers;
  std::optional<detail::BlockLayer> shortcut;
  Random random{31, 1};

  Tensor leaf(const Shape& shape, double scale, DType dtype, double offset = 0) {
    std::vector<double> values(static_cast<std::size_t>(shape.size()));
    for (double& value : values) value = offset + scale * random.normal();
    leaves.push_back(requires_grad(Tensor::of<double>(shape, values).to(dtype).to(gpu)));
    return leaves.back();
  }

  /// Of images of so many rows: a plan that failed is not asked again.
  explicit Block(std::int64_t rows, bool projects = false) {
    (void)leaf({2, rows, 6, 16}, 1.0, DType::f16);
    const std::int64_t stride = projects ? 2 : 1;
    layers.push_back(layer({8, 1, 1, 16}, 1, Activation::relu));
    layers.push_back(layer({8, 3, 3, 8}, stride, Activation::relu));
    layers.push_back(layer({projects ? 24 : 16, 1, 1, 8}, 1, Activation::relu));
    if (projects) shortcut = layer({24, 1, 1, 16}, stride, Activation::none);
  }

  detail::BlockLayer layer(const Shape& w, std::int64_t stride, Activation activation) {
    detail::BlockLayer layer;
    layer.w = leaf(w, 1 / std::sqrt(static_cast<double>(w.size() / w[0])), DType::f16);
    layer.convolution = {.stride = stride, .padding = w[1] / 2};
    layer.gamma = leaf({w[0]}, 0.2, DType::f32, 1.0);
    layer.beta = leaf({w[0]}, 0.5, DType::f32);
    layer.running_mean = Tensor::zeros({w[0]}, DType::f32, gpu);
    layer.running_var = Tensor::full({w[0]}, 1.0, DType::f32, gpu);
    layer.norm.activation = activation;
    return layer;
  }
  const detail::BlockLayer* other() const { return shortcut ? &*shortcut : nullptr; }

  /// The result, all gradients and running statistics.
  std::vector<Tensor> step() {
    const Tensor y = detail::residual_block(leaves[0], layers, other());
    backward(y, Block::slope(y.shape()));
    std::vector<Tensor> all{y};
    for (const Tensor& leaf : leaves) all.push_back(grad_of(leaf));
    for (const detail::BlockLayer& layer : layers) all.insert(all.end(), {layer.running_mean, layer.running_var});
    if (shortcut) all.insert(all.end(), {shortcut->running_mean, shortcut->running_var});
    return all;
  }

  static Tensor slope(const Shape& shape) {
    Random random(32, 1);
    std::vector<double> values(static_cast<std::size_t>(shape.size()));
    for (double& value : values) value = random.normal();
    return Tensor::of<double>(shape, values).to(DType::f16).to(gpu);
  }
};

std::vector<Tensor> own_step(std::int64_t rows, bool projects = false) {
  const ForceCandidate force("conv2d", "portable");
  return Block(rows, projects).step();
}

/// The ReLUs see values that were rounded otherwise, and now and then decide otherwise.
void expect_same(const std::vector<Tensor>& found, const std::vector<Tensor>& expected, double tolerance = 1e-2) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::vector<double> a = found[i].to_doubles(), b = expected[i].to_doubles();
    double squares = 0, off = 0;
    for (std::size_t at = 0; at < a.size(); ++at) {
      squares += b[at] * b[at];
      off += (a[at] - b[at]) * (a[at] - b[at]);
    }
    EXPECT_LE(std::sqrt(off), tolerance * std::sqrt(squares)) << i;
  }
}

TEST_F(CudaReferenceResidualBlock, PlansReadThroughNorms) {
  for (const bool projects : {false, true}) {
    SCOPED_TRACE(projects);
    const std::vector<Tensor> own = own_step(5, projects);
    // Only the library: the shortcut's gradient is added by its plan.
    const ForceCandidate force("conv2d", "cudnn");
    Block block(5, projects);
    EXPECT_TRUE(detail::prefers_residual_block(block.leaves[0], block.layers, block.other()));
    controls() = {};
    expect_same(block.step(), own);
    // Three passes of three convolutions, or four.
    EXPECT_EQ(controls().runs[reference_dnn::adding_anywhere], projects ? 12 : 9);
    const cuda::Counters before = cuda::counters();
    (void)detail::residual_block(block.leaves[0], block.layers, block.other());
    const cuda::Counters after = cuda::counters() - before;
    EXPECT_EQ(after.launches + after.library_calls, projects ? 9 : 7);
  }
}

TEST_F(CudaReferenceResidualBlock, NothingOfABlockIsNativeWhereTheLibraryHasIt) {
  for (const bool projects : {false, true}) {
    Block block(5, projects);
    const ChoiceLog log;
    (void)block.step();
    for (const auto& [run, count] : log.runs())
      EXPECT_TRUE(run.first == "conv2d:cudnn" || run.first == "conv2d:cublaslt") << run.first << ' ' << run.second;
  }
}

TEST_F(CudaReferenceResidualBlock, InPartsWhereResultsAreToBeRepeatable) {
  set_repeatable(true);
  const Block block(5);
  EXPECT_FALSE(detail::prefers_residual_block(block.leaves[0], block.layers, block.other()));
}

TEST_F(CudaReferenceResidualBlock, InPartsWhereThereIsNoSuchPlan) {
  Block block(4);
  controls().withheld = CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR;
  EXPECT_FALSE(detail::prefers_residual_block(block.leaves[0], block.layers, block.other()));
  const Tensor wide = block.leaf({2, 4, 6, 16}, 1.0, DType::bf16);
  EXPECT_FALSE(detail::prefers_residual_block(wide, block.layers, nullptr));
}

// Each plan that fails when it is first used is replaced by a kernel of Hearth's.
TEST_F(CudaReferenceResidualBlock, GoesOnWithoutPlansThatFail) {
  std::int64_t rows = 6;
  for (const auto kind :
       {CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
        CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR}) {
    // The shortcut's data gradient is the library's, those inside are native.
    const std::vector<Tensor> own = own_step(++rows, true);
    controls() = {};
    controls().failing = kind;
    testing::internal::CaptureStderr();
    expect_same(Block(rows, true).step(), own, 2e-2);
    testing::internal::GetCapturedStderr();
  }
}

}  // namespace
}  // namespace hearth::test
