// SPDX-License-Identifier: Apache-2.0
// A batch in one piece and in parts: the same gradients, dropout included, but for batch normalisation, whose
// statistics are those of a part.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "core/random.h"
#include "models/nn/nn.h"
#include "models/registry.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/train/precision_session.h"
#include "train/report/metrics_log.h"
#include "train/trainer.h"

namespace hearth::accumulation_test {
namespace {

/// Gradients in f64, with dropout.
struct Network : nn::Module {
  nn::Linear in{64, 24}, out{24, 10};
  nn::LayerNorm norm{24};
  nn::BatchNorm batch_norm{24};
  nn::Dropout dropout{0.3};
  bool with_batch_norm;

  explicit Network(bool with) : with_batch_norm(with) {
    register_module("in", in);
    register_module("norm", norm);
    register_module("batch_norm", batch_norm);
    register_module("dropout", dropout);
    register_module("out", out);
    to(DType::f64);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor hidden = in(flatten(x.to(DType::f64), 1));
    return out(dropout(gelu(with_batch_norm ? batch_norm(hidden) : norm(hidden))));
  }
};

constexpr std::int64_t samples = 256, ignored_class = 3;

/// Gradients of a training step over images of noise, in batches of these sizes.
std::vector<double> gradients(const std::vector<std::int64_t>& sizes, bool with_batch_norm, bool ignore_some) {
  const auto add_model = [](const char* name, bool with) {
    models::add(name, [with](const models::InputInfo&) { return std::make_unique<Network>(with); });
    return true;
  };
  static const bool added = add_model("test_f64", false) && add_model("test_f64_batch_norm", true);
  EXPECT_TRUE(added);
  const test::TempDir folder;
  const test::PrecisionRun run{
      .level = "O0",
      .dtype = "f32",
      .model = with_batch_norm ? R"({"type": "test_f64_batch_norm"})" : R"({"type": "test_f64"})",
      .optimizer = R"({"type": "sgd", "lr": 0.1})",
      .train = ignore_some ? R"(}, "loss": {"type": "cross_entropy", "ignore_index": 3)" : ""};
  const auto session = run.session(folder);
  Random random(9, 1);
  std::vector<data::Batch> batches;
  std::int64_t first = 0;
  for (const std::int64_t size : sizes) {
    std::vector<float> pixels(static_cast<std::size_t>(size * 64));
    for (float& pixel : pixels) pixel = static_cast<float>(random.normal());
    data::Batch batch;
    batch.set("images", Tensor::of<float>({size, 8, 8, 1}, pixels));
    std::vector<std::int64_t> labels;
    for (std::int64_t i = first; i < first + size; ++i)
      labels.push_back(ignore_some && (i % 3 == 0 || i < 90) ? ignored_class : i * i % 10);
    batch.set("labels", Tensor::of<std::int64_t>({size}, labels));
    batch.samples.resize(static_cast<std::size_t>(size));
    batches.push_back(std::move(batch));
    first += size;
  }
  EXPECT_EQ(first, samples);
  (void)train::training_step(*session, batches);
  EXPECT_EQ(session->parameters->grads().dtype(), DType::f64);
  return session->parameters->grads().to_doubles();
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
  const std::vector<double> expected = gradients(whole, false, true);
  EXPECT_LE(distance(gradients(uneven, false, true), expected), 1e-12);
  EXPECT_GT(distance(gradients(whole, false, false), expected), 1e-3);
}

// 22 batches an epoch, 21 of them an update. Epochs were rounded up each, so that three were six updates.
TEST(Accumulation, EpochsCountData) {
  const test::TempDir folder;
  const test::PrecisionRun run{
      .level = "O0", .dtype = "f32", .model = test::small_mlp, .train = R"(, "accumulate": 21)", .batch_size = 64};
  const auto session =
      run.session(folder, {"train.steps=null", "train.epochs=3",
                           R"(schedule={"type": "step", "milestones": [1, 2], "gamma": 0.5})", "log.report=false"});
  ASSERT_EQ(session->plan.batches_per_epoch, 22);
  EXPECT_PRED2(test::contains, test::error_message<ConfigError>([&] {
                 (void)run.session(folder, {"train.steps=null", "train.epochs=2", "train.accumulate=45"});
               }),
               "/train/accumulate: an update of 45 batches, but /train/epochs: 2 have 44; accumulate fewer");
  EXPECT_EQ(session->plan.total_steps, 4);
  std::vector<double> factors;
  for (int step = 0; step < 4; ++step) factors.push_back(session->schedule->factor(step));
  EXPECT_EQ(factors, (std::vector{1.0, 1.0, 0.5, 0.25}));
  train::RunFolder out(folder / "run");
  std::ostringstream log;
  train::Progress progress(log, false);
  (void)train::Trainer(*session, out, progress).run("test");
  std::vector<std::int64_t> evaluated;
  for (const Json& record : train::read_metrics(folder / "run/metrics.jsonl"))
    if (record.at("split").as_string() == "test") {
      evaluated.push_back(record.at("step").as_integer());
      EXPECT_NEAR(record.at("epoch").as_number(), static_cast<double>(evaluated.back()) * 21 / 22, 1e-12);
    }
  EXPECT_EQ(evaluated, (std::vector<std::int64_t>{2, 3, 4}));
  for (const char* line : {"epoch 1  test", "epoch 2  test", "epoch 3  test", "epoch 3/3  step 4/4"})
    EXPECT_PRED2(test::contains, log.str(), line);
}

/// Three batches of noise, of whose labels all, some and none are ignored; or the same as one batch.
std::vector<data::Batch> batches_with_ignored_labels(bool as_one) {
  constexpr std::int64_t ignored = 3, size = 8;
  std::vector<data::Batch> batches;
  for (int number = 0; number < 3; ++number) {
    data::Batch batch = test::noise_batch(number);
    auto* const labels = batch["labels"].data<std::int64_t>();
    for (std::int64_t i = 0; i < size; ++i)
      if (labels[i] == ignored || i >= 4 * number) labels[i] = i >= 4 * number ? ignored : 4;
    batches.push_back(std::move(batch));
  }
  if (!as_one) return batches;
  data::Batch all;
  all.set("images", concat(std::vector{batches[0]["images"], batches[1]["images"], batches[2]["images"]}, 0));
  all.set("labels", concat(std::vector{batches[0]["labels"], batches[1]["labels"], batches[2]["labels"]}, 0));
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

/// One step in parts and as a whole, of a loss with these fields beside ignore_index.
void expect_the_same_in_parts(const StepCase& tried, const std::string& fields) {
  const test::TempDir folder;
  const auto after = [&](bool as_one) {
    const test::PrecisionRun run{.level = tried.level,
                                 .dtype = tried.dtype,
                                 .device = tried.device,
                                 .model = test::small_mlp,
                                 .train = R"(}, "loss": {"type": "cross_entropy", "ignore_index": 3)" + fields};
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

TEST_P(AccumulatedStep, WeighsBatchesByTheLabelsThatCount) {
  if (GetParam().device != std::string("cpu") && device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "no CUDA device";
  expect_the_same_in_parts(GetParam(), "");
}

TEST_P(AccumulatedStep, WeighsBatchesByTheWeightsOfTheirClasses) {
  if (GetParam().device != std::string("cpu") && device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "no CUDA device";
  expect_the_same_in_parts(GetParam(), R"(, "class_weights": [9, 1, 0.1, 1, 5, 2, 0.3, 1, 7, 1])");
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
  large.set("images", Tensor::zeros({8, 16, 8, 1}));
  const auto masks = masks_of({large, small});
  // By places in the whole batch the second part's numbers would be the second half of the first's.
  EXPECT_NE(masks[1], std::vector<double>(masks[0].begin() + 512, masks[0].end()));
  EXPECT_NE(masks[1], std::vector<double>(masks[0].begin(), masks[0].begin() + 512));
}

TEST(Accumulation, BatchNormIsTheException) {
  EXPECT_GT(distance(gradients(eight, true, false), gradients(whole, true, false)), 1e-6);
}

}  // namespace
}  // namespace hearth::accumulation_test
