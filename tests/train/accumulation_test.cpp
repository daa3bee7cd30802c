// SPDX-License-Identifier: Apache-2.0
// A batch in one piece and in parts: the same gradients, dropout included, but for batch normalisation, whose
// statistics are those of a part.
#include <gtest/gtest.h>

#include <cmath>

#include "hearth/autograd/backward.h"
#include "hearth/core/random.h"
#include "hearth/models/nn/nn.h"
#include "hearth/models/registry.h"
#include "hearth/ops/ops.h"
#include "train/precision_session.h"

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
    targets[i] = ignore_some && (i % 3 == 0 || i < 90) ? -100 : static_cast<std::int64_t>(random.below(classes));
  const Tensor x = Tensor::of<double>({samples, features}, pixels);
  const Tensor labels = Tensor::of<std::int64_t>({samples}, targets);
  std::vector<Tensor> labels_of;
  std::int64_t first = 0;
  for (const std::int64_t count : parts) {
    labels_of.push_back(rows_of(labels, first, count));
    first += count;
  }
  const std::vector<double> shares = label_shares(label_counts(labels_of, -100)).to_doubles();
  flat.zero_grads();
  first = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const RandomScope scope(4, 2, {first, parts[i]});
    backward(cross_entropy(network(rows_of(x, first, parts[i])), labels_of[i]), shares[i]);
    first += parts[i];
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

/// Three batches of noise, of whose labels all, some and none are ignored; or the same as one batch.
std::vector<data::Batch> batches_with_ignored_labels(bool as_one) {
  constexpr std::int64_t ignored = 3, size = 8;
  std::vector<data::Batch> batches;
  for (int number = 0; number < 3; ++number) {
    data::Batch batch = test::noise_batch(number);
    auto* const labels = batch.labels.data<std::int64_t>();
    for (std::int64_t i = 0; i < size; ++i)
      if (labels[i] == ignored || i >= 4 * number) labels[i] = i >= 4 * number ? ignored : 4;
    batches.push_back(std::move(batch));
  }
  if (!as_one) return batches;
  data::Batch all;
  all.images = concat(std::vector{batches[0].images, batches[1].images, batches[2].images}, 0);
  all.labels = concat(std::vector{batches[0].labels, batches[1].labels, batches[2].labels}, 0);
  all.samples.resize(3 * size);
  return {all};
}

struct StepCase {
  const char* name;
  const char *level, *dtype, *device;
  double tolerance;  ///< beside the largest gradient
};

void PrintTo(const StepCase& tried, std::ostream* out) { *out << tried.name; }

class AccumulatedStep : public testing::TestWithParam<StepCase> {};

TEST_P(AccumulatedStep, WeighsBatchesByTheLabelsThatCount) {
  const StepCase& tried = GetParam();
  if (tried.device != std::string("cpu") && device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "no CUDA device";
  const test::TempDir folder;
  const auto after = [&](bool as_one) {
    const test::PrecisionRun run{.level = tried.level,
                                 .dtype = tried.dtype,
                                 .device = tried.device,
                                 .model = test::small_mlp,
                                 .train = R"(}, "loss": {"type": "cross_entropy", "ignore_index": 3)"};
    const auto session = run.session(folder);
    session->position.interval.samples += train::training_step(*session, batches_with_ignored_labels(as_one)).samples;
    session->read_interval();
    return std::pair(session->parameters->grads().to_doubles(), session->position.interval.loss());
  };
  const auto [found, loss] = after(false);
  const auto [expected, whole_loss] = after(true);
  const double largest = distance(expected, std::vector<double>(expected.size()));
  EXPECT_GT(largest, 1e-3);
  EXPECT_LE(distance(found, expected), tried.tolerance * largest);
  EXPECT_NEAR(loss, whole_loss, tried.tolerance * whole_loss);
  EXPECT_NEAR(whole_loss, std::log(10.0), 0.5) << "a mean over the labels that count, at the start";
}

INSTANTIATE_TEST_SUITE_P(Steps, AccumulatedStep,
                         testing::Values(StepCase{"cpu_f32", "O0", "f32", "cpu", 1e-5},
                                         StepCase{"cpu_f16", "O2", "f16", "cpu", 1e-2},
                                         StepCase{"cuda_f32", "O0", "f32", "cuda", 1e-5},
                                         StepCase{"cuda_f16", "O2", "f16", "cuda", 1e-2}),
                         [](const auto& tried) { return tried.param.name; });

/// Keeps what its dropout made of ones.
struct Dropping : nn::Module {
  Tensor bias = Tensor::zeros({10});
  static inline std::vector<std::vector<double>> masks;

  Dropping() { parameter("bias", bias, nn::init::zeros()); }
  Tensor forward(const Tensor& x) override {
    masks.push_back(dropout(Tensor::full(x.shape(), 1), 0.5, true).to_doubles());
    return add(Tensor::zeros({x.dim(0), 10}), bias);
  }
};

TEST(Accumulation, PartsOfOtherShapesDrawTheirOwnNumbers) {
  models::add("test_dropping", [](const models::InputInfo&) { return std::make_unique<Dropping>(); });
  const test::TempDir folder;
  const test::PrecisionRun run{.level = "O0", .dtype = "f32", .model = R"({"type": "test_dropping"})"};
  const auto session = run.session(folder);
  data::Batch large = test::noise_batch(0), small = test::noise_batch(1);
  const auto masks_of = [&](const std::vector<data::Batch>& batches) {
    Dropping::masks.clear();
    (void)train::training_step(*session, batches);
    return Dropping::masks;
  };
  const auto alike = masks_of({large, small}), alone = masks_of({large}), again = masks_of({large, small});
  EXPECT_EQ(alike, again);
  EXPECT_EQ(alike[0], alone[0]);
  large.images = Tensor::zeros({8, 16, 8, 1});
  const auto masks = masks_of({large, small});
  // By places in the whole batch the second part's numbers would be the second half of the first's.
  EXPECT_NE(masks[1], std::vector<double>(masks[0].begin() + 512, masks[0].end()));
  EXPECT_NE(masks[1], std::vector<double>(masks[0].begin(), masks[0].begin() + 512));
}

TEST(Accumulation, BatchNormIsTheException) {
  EXPECT_GT(distance(gradients(eight, true, false), gradients(whole, true, false)), 1e-6);
}

}  // namespace
}  // namespace hearth
