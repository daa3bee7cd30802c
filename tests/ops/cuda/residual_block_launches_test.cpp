// SPDX-License-Identifier: Apache-2.0
// How many kernels a residual block costs on a device by Hearth's native kernels, and which they are.
#include <gtest/gtest.h>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "ops/candidates.h"
#include "ops/conv/residual_block.h"
#include "tests/support/op_test.h"

namespace hearth::test::residual_block_launches_test {
namespace {

constexpr Device gpu{DeviceType::cuda};

struct Spent {
  std::int64_t forward = 0, backward = 0;
  std::string choices;  ///< "conv2d:mma 9", of all passes of convolutions
};

class CudaResidualBlockLaunches : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }

  static Tensor leaf(const Shape& shape, DType dtype) { return requires_grad(Tensor::full(shape, 1, dtype, gpu)); }
  static detail::BlockLayer layer_of(const Shape& filters, std::int64_t stride, Activation activation, DType dtype) {
    detail::BlockLayer layer;
    layer.w = leaf(filters, dtype);
    layer.convolution = {.stride = stride, .padding = filters[1] / 2};
    layer.gamma = leaf({filters[0]}, DType::f32);
    layer.beta = leaf({filters[0]}, DType::f32);
    layer.norm.activation = activation;
    return layer;
  }

  /// Of a block of these filters, with a convolution in its shortcut where it has a stride.
  static Spent spent(const Shape& images, const std::vector<Shape>& filters, std::int64_t stride, DType dtype,
                     DType weights) {
    const ChoiceLog log;
    const Tensor x = leaf(images, dtype);
    std::vector<detail::BlockLayer> layers;
    for (const Shape& w : filters)
      layers.push_back(layer_of(w, w[1] == 3 ? std::exchange(stride, 1) : 1, Activation::relu, weights));
    const bool projects = filters.back()[0] != images[3];
    const detail::BlockLayer shortcut =
        layer_of({filters.back()[0], 1, 1, images[3]}, projects ? 2 : 1, Activation::none, weights);
    const cuda::Counters start = cuda::counters();
    const Tensor y = detail::residual_block(x, layers, projects ? &shortcut : nullptr);
    const cuda::Counters made = cuda::counters();
    const Tensor dy = Tensor::full(y.shape(), 1, dtype, gpu);
    const cuda::Counters middle = cuda::counters();
    backward(y, dy);
    const cuda::Counters end = cuda::counters();
    std::map<std::string, std::int64_t> runs;
    for (const auto& [run, count] : log.runs()) runs[run.first] += count;
    Spent all{(made - start).launches, (end - middle).launches, ""};
    for (const auto& [name, count] : runs) all.choices += join_text(all.choices.empty() ? "" : ", ", name, ' ', count);
    return all;
  }
};

// Images of 1568 pixels: the sums of filters' gradients are cut into parts.
TEST_F(CudaResidualBlockLaunches, ABottleneck) {
  const std::vector<Shape> filters{{8, 1, 1, 16}, {8, 3, 3, 8}, {16, 1, 1, 8}};
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const std::int64_t side : {28, 4}) {
      for (const DType weights : {dtype, DType::f32}) {
        SCOPED_TRACE(testing::Message() << dtype << ", " << side << " pixels, weights of " << weights);
        const ForceCandidate force("conv2d", "mma");
        const std::int64_t converted = weights == dtype ? 0 : 3;
        const Spent found = spent({2, side, side, 16}, filters, 1, dtype, weights);
        EXPECT_EQ(found.forward - converted, 7);
        EXPECT_LE(found.backward - converted, 9) << "what it may cost";
        EXPECT_EQ(found.backward - converted, weights == dtype || side == 28 ? 8 : 7) << "what it costs";
        EXPECT_EQ(found.choices, "conv2d:mma 9");
      }
    }
  }
}

}  // namespace
}  // namespace hearth::test::residual_block_launches_test
