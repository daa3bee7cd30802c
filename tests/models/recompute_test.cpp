// SPDX-License-Identifier: Apache-2.0
// Models whose blocks are computed again in the backward pass train to the same bits in less memory. Other precisions
// are in train/families_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "autograd/backward.h"
#include "core/memory/memory.h"
#include "core/random.h"
#include "models/resnet.h"
#include "models/swin.h"
#include "models/transformer/transformer.h"
#include "models/vgg.h"
#include "ops/ops.h"
#include "optim/sgd.h"

namespace hearth::recompute_test {
namespace {

struct Trained {
  std::vector<double> state;  ///< losses, weights, running statistics
  std::int64_t peak = 0;      ///< bytes beyond what the model itself takes
};

std::unique_ptr<nn::Module> resnet(bool bottleneck, bool recompute) {
  return std::make_unique<models::ResNet>(models::ResNetOptions{.blocks = {2, 2},
                                                                .bottleneck = bottleneck,
                                                                .stem = models::ResNetStem::small,
                                                                .width = 8,
                                                                .in_channels = 3,
                                                                .classes = 5,
                                                                .recompute = recompute});
}

/// Drops in every way that a Swin does: the second time the same.
std::unique_ptr<nn::Module> swin(bool recompute) {
  return std::make_unique<models::Swin>(models::SwinOptions{.depths = {2, 2},
                                                            .heads = {1, 2},
                                                            .width = 8,
                                                            .patch = 2,
                                                            .window = 2,
                                                            .dropout = 0.1,
                                                            .attention_dropout = 0.1,
                                                            .drop_path = 0.3,
                                                            .in_channels = 3,
                                                            .classes = 5,
                                                            .recompute = recompute});
}

/// Norms remember no batch that is recomputed.
std::unique_ptr<nn::Module> vgg(bool recompute) {
  return std::make_unique<models::Vgg>(models::VggOptions{.depth = 13,
                                                          .batch_norm = true,
                                                          .head = models::VggHead::small,
                                                          .width = 4,
                                                          .in_channels = 3,
                                                          .classes = 5,
                                                          .recompute = recompute});
}

/// Gets its ids of the images: a source, the end of which is padding, and a target.
struct Translator : nn::Module {
  models::Transformer transformer;

  explicit Translator(bool recompute)
      : transformer({.source_vocabulary = 19,
                     .vocabulary = 5,
                     .context = 48,
                     .layers = 2,
                     .decoder_layers = 2,
                     .heads = 2,
                     .width = 8,
                     .hidden = 16,
                     .dropout = 0.2,
                     .source_pad = 0,
                     .recompute = recompute}) {
    register_module("transformer", transformer);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor pixels = x.to(Device{});
    const std::int64_t n = x.dim(0), length = 48;
    const Tensor source = Tensor::empty({n, length}, DType::i32), target = Tensor::empty({n, length}, DType::i32);
    for (std::int64_t i = 0; i < n * length; ++i) {
      const bool padded = i % length > 40 - 3 * (i / length);
      const auto id = static_cast<std::int32_t>(std::lround((pixels.data<float>()[i] + 0.5f) * 19));
      source.data<std::int32_t>()[i] = padded ? 0 : 1 + id % 18;
      target.data<std::int32_t>()[i] = id % 5;
    }
    return mean(transformer(source.to(x.device()), target.to(x.device())), {1});
  }
};

Trained train(Device device, std::unique_ptr<nn::Module> network, std::int64_t side) {
  nn::Module& model = *network;
  nn::initialize(model, 1);
  model.to(device);
  FlatParameters flat(model.parameters());
  optim::Sgd optimizer(flat, {.lr = 0.05, .momentum = 0.9});
  std::vector<float> pixels(static_cast<std::size_t>(4 * side * side * 3));
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>((i * 37) % 19) / 19.0f - 0.5f;
  const Tensor images = Tensor::of<float>({4, side, side, 3}, pixels).to(device);
  const Tensor labels = Tensor::of<std::int64_t>({4}, {0, 3, 1, 4}).to(device);
  Trained result;
  for (int step = 0; step < 3; ++step) {
    const RandomScope random(7, static_cast<std::uint64_t>(step));
    memory_of(device).reset_peak();
    const std::int64_t before = memory_of(device).statistics().in_use;
    flat.zero_grads();
    const Tensor loss = cross_entropy(model(images), labels);
    backward(loss);
    flat.finish_grads();
    result.peak = memory_of(device).statistics().peak - before;
    result.state.push_back(loss.item());
    optimizer.step(0.05);
  }
  for (const auto& list : {model.parameters(), model.buffers()})
    for (const NamedTensor& named : list)
      for (const double value : named.tensor->to_doubles()) result.state.push_back(value);
  return result;
}

class Recomputed : public testing::TestWithParam<DeviceType> {};

TEST_P(Recomputed, TrainsToTheSameBitsInLessMemory) {
  if (device_count(GetParam()) == 0) GTEST_SKIP() << "no such device here";
  const Device device{GetParam()};
  struct Network {
    std::function<std::unique_ptr<nn::Module>(bool recompute)> make;
    std::int64_t side = 16;
  };
  const std::vector<Network> networks{{[](bool recompute) { return resnet(false, recompute); }},
                                      {[](bool recompute) { return resnet(true, recompute); }},
                                      {swin},
                                      {vgg, 32},
                                      {[](bool recompute) { return std::make_unique<Translator>(recompute); }}};
  for (std::size_t i = 0; i < networks.size(); ++i) {
    const auto& [make, side] = networks[i];
    const Trained plain = train(device, make(false), side), again = train(device, make(true), side);
    EXPECT_EQ(again.state, plain.state) << "model " << i;
    EXPECT_LT(static_cast<double>(again.peak), 0.8 * static_cast<double>(plain.peak)) << "model " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, Recomputed, testing::Values(DeviceType::cpu, DeviceType::cuda),
                         [](const auto& tried) { return tried.param == DeviceType::cuda ? "cuda" : "cpu"; });

}  // namespace
}  // namespace hearth::recompute_test
