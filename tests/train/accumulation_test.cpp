// SPDX-License-Identifier: Apache-2.0
// A batch in one piece and in parts: the same gradients, dropout included, but for batch normalisation, whose
// statistics are those of a part.
#include <gtest/gtest.h>

#include <cmath>

#include "hearth/autograd/backward.h"
#include "hearth/core/random.h"
#include "hearth/models/nn/nn.h"
#include "hearth/ops/ops.h"

namespace hearth {
namespace {

constexpr std::int64_t samples = 256, features = 12, classes = 5;

struct Network : nn::Module {
  nn::Linear in{features, 24}, out{24, classes};
  nn::LayerNorm norm{24};
  nn::BatchNorm batch_norm{24};
  nn::Dropout dropout{0.3};
  bool with_batch_norm;

  explicit Network(bool with) : with_batch_norm(with) {
    adopt("in", in);
    adopt("norm", norm);
    adopt("batch_norm", batch_norm);
    adopt("dropout", dropout);
    adopt("out", out);
    nn::initialize(*this, 5);
    to(DType::f64);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor hidden = in(x);
    return out(dropout(gelu(with_batch_norm ? batch_norm(hidden) : norm(hidden))));
  }
};

Tensor rows_of(const Tensor& x, std::int64_t first, std::int64_t count) {
  return slice(x, 0, first, first + count).contiguous();
}

/// Gradients of the mean over the samples that are not ignored, made in parts of these lengths.
std::vector<double> gradients(const std::vector<std::int64_t>& parts, bool with_batch_norm, bool ignore_some) {
  Network network(with_batch_norm);
  FlatParameters flat(network.parameters());
  Random random(9, 1);
  std::vector<double> pixels(samples * features);
  for (double& pixel : pixels) pixel = random.normal();
  std::vector<std::int64_t> targets(samples);
  for (std::size_t i = 0; i < targets.size(); ++i)
    targets[i] = ignore_some && i % 3 == 0 ? -100 : static_cast<std::int64_t>(random.below(classes));
  const Tensor x = Tensor::of<double>({samples, features}, pixels);
  const Tensor labels = Tensor::of<std::int64_t>({samples}, targets);
  const auto counted = [&](std::int64_t first, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = first; i < first + count; ++i) sum += targets[static_cast<std::size_t>(i)] >= 0 ? 1 : 0;
    return sum;
  };
  flat.zero_grads();
  std::int64_t first = 0;
  for (const std::int64_t count : parts) {
    const RandomScope scope(4, 2, {first, count});
    const Tensor loss = cross_entropy(network(rows_of(x, first, count)), rows_of(labels, first, count));
    backward(loss, counted(first, count) / counted(0, samples));
    first += count;
  }
  flat.finish_grads();
  return flat.grads().to_doubles();
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

const std::vector<std::int64_t> whole{256}, eight(8, 32), uneven{100, 100, 56};

TEST(Accumulation, EightTimes32Is256) {
  const std::vector<double> expected = gradients(whole, false, false);
  EXPECT_GT(distance(expected, std::vector<double>(expected.size())), 1e-2);
  EXPECT_LE(distance(gradients(eight, false, false), expected), 1e-12);
  EXPECT_LE(distance(gradients(uneven, false, false), expected), 1e-12);
}

TEST(Accumulation, PartsCountByTheSamplesThatAreNotIgnored) {
  EXPECT_LE(distance(gradients(uneven, false, true), gradients(whole, false, true)), 1e-12);
}

TEST(Accumulation, BatchNormIsTheException) {
  EXPECT_GT(distance(gradients(eight, true, false), gradients(whole, true, false)), 1e-6);
}

}  // namespace
}  // namespace hearth
