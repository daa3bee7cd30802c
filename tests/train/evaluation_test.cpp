// SPDX-License-Identifier: Apache-2.0
// What a training makes of its evaluations: which split it goes by, and what becomes of a run whose losses or
// gradients are no numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/grad_mode.h"
#include "core/io/file.h"
#include "data/images/image_dataset.h"
#include "models/nn/nn.h"
#include "models/registry.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/train/precision_session.h"
#include "train/cli/cli.h"
#include "train/report/metrics_log.h"

namespace hearth::evaluation_test {
namespace {

using test::contains;

/// A linear map, and a root that has no slope at 0, where it begins.
struct Kinked : nn::Module {
  nn::Linear out{64, 10};
  Tensor kink = Tensor::zeros({10});

  Kinked() {
    register_module("out", out);
    parameter("kink", kink, nn::init::zeros());
  }
  Tensor forward(const Tensor& x) override { return add(out(flatten(x, 1)), sqrt(kink)); }
};

/// A linear map that gives no numbers in the evaluations of these numbers, from 0, in the process.
struct Moody : nn::Module {
  inline static int evaluations = 0;
  inline static std::vector<int> bad{};
  nn::Linear out{64, 10};

  Moody() { register_module("out", out); }
  Tensor forward(const Tensor& x) override {
    const Tensor y = out(flatten(x, 1));
    if (is_training()) return y;
    const bool is_bad = std::find(bad.begin(), bad.end(), evaluations++) != bad.end();
    return is_bad ? mul(y, Tensor::full({1}, std::numeric_limits<double>::quiet_NaN())) : y;
  }
};

class Evaluations : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    models::add("test_kinked", [](const models::InputInfo&) { return std::make_unique<Kinked>(); });
    models::add("test_moody", [](const models::InputInfo&) { return std::make_unique<Moody>(); });
  }
  /// The exit code; what was said is in `said_`.
  int run(std::vector<std::string> words) {
    words.insert(words.begin(), "hearth");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    const int code = train::run_cli(static_cast<int>(argv.size()), argv.data());
    said_ = testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
    return code;
  }
  /// A run of `epochs` whose every evaluation is one batch.
  int trained(const std::string& model, const std::string& data, int epochs,
              const std::vector<std::string>& more = {}) {
    std::ofstream(folder_ / "run.json") << R"({"device": "cpu", "model": )" << model << R"(, "data": )" << data
                                        << R"(, "optimizer": {"type": "sgd", "lr": 0.1}, "eval": {"batch_size": 4096},
          "train": {"batch_size": 64, "epochs": )"
                                        << epochs << R"(}, "log": {"tensorboard": false}})";
    std::vector<std::string> words{"train", folder_ / "run.json", "--out", out()};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  std::string out() const { return folder_ / "out"; }
  Json info() const { return read_json(out() + "/run.json"); }
  std::vector<std::string> splits_evaluated() const {
    std::vector<std::string> splits;
    for (const Json& record : train::read_metrics(out() + "/metrics.jsonl"))
      if (record.at("split").as_string() != "train") splits.push_back(record.at("split").as_string());
    return splits;
  }

  test::TempDir folder_;
  std::string said_;
};

const std::string digits = R"({"type": "digits", "workers": 0})";
const std::string digits_with_valid = R"({"type": "digits", "workers": 0, "valid_fraction": 0.2})";

TEST_F(Evaluations, AFiniteLossWithAGradientThatIsNotLeavesTheWeights) {
  const auto session =
      test::PrecisionRun{.level = "O0", .dtype = "f32", .model = R"({"type": "test_kinked"})"}.session(folder_);
  const std::string before = session->model_state.hash();
  const data::Batch batch = test::noise_batch(1);
  const std::string message =
      test::error_message<DivergedError>([&] { (void)train::training_step(*session, std::span(&batch, 1)); });
  EXPECT_PRED2(contains, message, "a gradient is not finite at step 1");
  EXPECT_PRED2(contains, message, "\"kink\"");
  EXPECT_EQ(session->model_state.hash(), before);
  session->read_interval();
  EXPECT_TRUE(std::isfinite(session->position.interval.loss_sum)) << "it was the gradient alone";
}

TEST_F(Evaluations, OneInWhichNoLabelCountsIsNoBest) {
  for (const char* name : {"train.txt", "valid.txt"}) {
    std::ofstream text(folder_ / name);
    for (int i = 0; i < 200; ++i) text << "w" << i % 40 << ' ';
  }
  const std::string text = R"({"type": "text", "tokenizer": {"type": "words"}, "length": 8, "workers": 0,
    "mask_probability": 1e-9, "train": [")" +
                           (folder_ / "train.txt").string() + R"("], "valid": [")" + (folder_ / "valid.txt").string() +
                           "\"]}";
  const std::string bert = R"({"type": "bert", "layers": 1, "heads": 1, "width": 8})";
  ASSERT_EQ(trained(bert, text, 2, {"--set", "train.batch_size=4"}), 0) << said_;
  EXPECT_PRED2(contains, said_, "valid: no label counts, so that there is no loss");
  EXPECT_EQ(said_.find("(best)"), std::string::npos) << said_;
  EXPECT_EQ(info().at("metrics").find("best_step"), nullptr);
  EXPECT_EQ(run({"eval", out()}), 3) << said_;
  EXPECT_PRED2(contains, said_, "no label of the split \"valid\" counts");
}

/// Loss, accuracy and top-2 accuracy of the test part by the definition; `weights` of the classes, 0 where ignored.
std::vector<double> by_hand(const train::Session& session, const std::vector<double>& weights) {
  data::Loader loader = session.data.eval_loader(session.data.test, session.data.test->size());
  const data::Batch batch = loader.next();
  const NoGrad no_grad;
  const std::vector<double> scores = (*session.model)(session.task->inputs(session, batch)).to_doubles();
  double loss = 0, weight = 0, correct = 0, among_two = 0, counted = 0;
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    const auto label = static_cast<std::size_t>(session.data.test->images()->label(batch.samples[i]));
    const double* const row = scores.data() + 10 * i;
    double sum = 0;
    for (std::size_t c = 0; c < 10; ++c) sum += std::exp(row[c]);
    loss += weights[label] * (std::log(sum) - row[label]);
    weight += weights[label];
    if (weights[label] == 0) continue;
    const auto larger = std::count_if(row, row + 10, [&](double score) { return score > row[label]; });
    correct += larger == 0, among_two += larger < 2, ++counted;
  }
  return {loss / weight, correct / counted, among_two / counted};
}

TEST_F(Evaluations, AreMeansOverWhatTheLossCountsWhateverTheBatches) {
  std::vector<double> weights(10, 1.0), without(10, 1.0), both;
  for (std::size_t c = 0; c < 10; ++c) weights[c] = 0.25 + static_cast<double>(c * c);
  without[3] = 0;
  both = weights;
  both[3] = 0;
  const auto text_of = [](const std::vector<double>& numbers) {
    std::string text;
    for (const double number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
    return text;
  };
  const std::string classes = R"("class_weights": [)" + text_of(weights) + "]", ignoring = R"("ignore_index": 3)";
  const std::pair<std::string, std::vector<double>> cases[] = {{"", std::vector<double>(10, 1.0)},
                                                               {", " + ignoring, without},
                                                               {", " + classes, weights},
                                                               {", " + ignoring + ", " + classes, both}};
  for (const auto& [fields, counted] : cases)
    for (const char* size : {"1", "7", "4096"}) {
      const auto session = test::PrecisionRun{.level = "O0", .dtype = "f32", .model = test::small_mlp}.session(
          folder_, {R"(loss={"type": "cross_entropy")" + fields + "}", std::string("eval.batch_size=") + size,
                    R"(task={"type": "classification", "top_k": 2, "by_class": true})"});
      const train::Meter meter = train::evaluate(*session, session->data.test);
      session->model->eval();
      const std::vector<double> expected = by_hand(*session, counted);
      Json metrics = Json::object();
      meter.metrics->report(metrics);
      EXPECT_NEAR(meter.loss(), expected[0], 1e-5 * expected[0]) << fields << " in batches of " << size;
      EXPECT_NEAR(meter.accuracy(), expected[1], 1e-12) << fields << " in batches of " << size;
      EXPECT_NEAR(metrics.at("top_k_accuracy").as_number(), expected[2], 1e-12) << fields;
    }
  EXPECT_PRED2(contains, test::error_message<ConfigError>([&] {
                 (void)test::PrecisionRun{.level = "O0", .dtype = "f32", .model = test::small_mlp}.session(
                     folder_, {R"(loss={"type": "cross_entropy", "ignore_index": 3})", "data.augment.mixup=0.2"});
               }),
               "/loss/ignore_index: 3 beside data.augment.mixup");
}

TEST_F(Evaluations, OneWithoutNumbersIsNeverTheBest) {
  Moody::evaluations = 0;
  Moody::bad = {0};
  ASSERT_EQ(trained(R"({"type": "test_moody"})", digits_with_valid, 3), 0) << said_;
  const Json metrics = info().at("metrics");
  EXPECT_GT(metrics.at("best_step").as_integer(), metrics.at("step").as_integer() / 3);
  EXPECT_TRUE(std::isfinite(metrics.at("best_loss").as_number()));
  EXPECT_EQ(info().at("status").as_string(), "finished");
}

TEST_F(Evaluations, ARunThatEndsWithoutNumbersHasDiverged) {
  const std::string moody = R"({"type": "test_moody"})";
  Moody::evaluations = 0;
  Moody::bad = {2};
  EXPECT_EQ(trained(moody, digits_with_valid, 3), 5);
  EXPECT_PRED2(contains, said_, "hearth: error: diverged: the loss of the last evaluation is ");
  EXPECT_EQ(info().at("status").as_string(), "failed");
  const std::int64_t best = info().at("metrics").at("best_step").as_integer();
  EXPECT_LT(best, info().at("metrics").at("step").as_integer());
  EXPECT_PRED2(contains, said_, "the best evaluation was that of step " + std::to_string(best));
  EXPECT_TRUE(file_exists(out() + "/checkpoints/best/manifest.json"));
  // The same command finds the run at its end, and says the same.
  EXPECT_EQ(trained(moody, digits_with_valid, 3), 5);
  Moody::evaluations = 0;
  Moody::bad = {0, 1};
  EXPECT_EQ(trained(moody, digits_with_valid, 2, {"--resume", "never"}), 5);
  EXPECT_EQ(info().at("metrics").find("best_step"), nullptr) << "none was any good";
  Moody::evaluations = 0;
  Moody::bad = {1};
  EXPECT_EQ(trained(moody, digits, 2, {"--resume", "never"}), 5) << "without a valid split";
  EXPECT_EQ(trained(moody, digits, 2), 5);
}

TEST_F(Evaluations, ATestLossWithoutNumbersEndsWithTheSameCodeEachTime) {
  Moody::evaluations = 0;
  Moody::bad = {1};
  for (int time = 0; time < 3; ++time) {
    EXPECT_EQ(trained(R"({"type": "test_moody"})", digits_with_valid, 1), 5) << time;
    EXPECT_EQ(info().at("status").as_string(), "failed");
  }
  EXPECT_EQ(trained(R"({"type": "test_moody"})", digits_with_valid, 2), 0) << "a longer run is evaluated again";
}

TEST_F(Evaluations, TheValidPartJudgesAndTheTestPartIsLeftToTheEnd) {
  ASSERT_EQ(trained(R"({"type": "mlp", "hidden": [16]})", digits_with_valid, 3), 0) << said_;
  EXPECT_EQ(splits_evaluated(), (std::vector<std::string>{"valid", "valid", "valid", "test"}));
  double best = -1, last = 0;
  for (const Json& record : train::read_metrics(out() + "/metrics.jsonl")) {
    if (record.at("split").as_string() != "valid") continue;
    best = std::max(best, record.at("accuracy").as_number());
    last = record.at("loss").as_number();
  }
  EXPECT_EQ(info().at("metrics").at("best_accuracy").as_number(), best);
  EXPECT_EQ(info().at("metrics").at("loss").as_number(), last);
  EXPECT_EQ(info().at("metrics").at("test_loss").as_number(),
            train::read_metrics(out() + "/metrics.jsonl").back().at("loss").as_number());
  ASSERT_EQ(run({"eval", out(), "--json"}), 0) << said_;
  EXPECT_PRED2(contains, said_, "\"split\":\"test\"");
  // Once the run is at its end, nothing is evaluated again, and nothing is lost.
  ASSERT_EQ(trained(R"({"type": "mlp", "hidden": [16]})", digits_with_valid, 3), 0) << said_;
  EXPECT_EQ(splits_evaluated().size(), 4u);
  ASSERT_EQ(trained(R"({"type": "mlp", "hidden": [16]})", digits, 2, {"--resume", "never"}), 0) << said_;
  EXPECT_EQ(splits_evaluated(), (std::vector<std::string>{"test", "test"}));
}

TEST_F(Evaluations, TheBestIsThatOfTheMonitoredNumber) {
  const std::string model = R"({"type": "mlp", "hidden": [16]})";
  const std::vector<std::string> by_class{"--set", R"(task={"type": "classification", "by_class": true})"};
  const auto with = [&](const std::string& monitor) {
    std::vector<std::string> words = by_class;
    words.insert(words.end(), {"--set", "eval.monitor=" + monitor, "--resume", "never"});
    return words;
  };
  for (const std::string monitor : {"loss", "accuracy", "f1"}) {
    ASSERT_EQ(trained(model, digits_with_valid, 4, with(monitor)), 0) << said_;
    double best = monitor == "loss" ? 1e9 : -1;
    for (const Json& record : train::read_metrics(out() + "/metrics.jsonl")) {
      if (record.at("split").as_string() != "valid") continue;
      const double value = record.at(monitor).as_number();
      best = monitor == "loss" ? std::min(best, value) : std::max(best, value);
    }
    EXPECT_EQ(info().at("metrics").at("best_by").as_string(), "valid " + monitor);
    EXPECT_EQ(info().at("metrics").at("best_" + monitor).as_number(), best) << monitor;
    EXPECT_PRED2(contains, read_text(out() + "/report.html"), "best " + monitor);
  }
  EXPECT_EQ(trained(model, digits_with_valid, 4, with("f2")), 2);
  EXPECT_PRED2(contains, said_, "/eval/monitor: evaluations have no \"f2\"; did you mean \"f1\"?");
  // What the best is the best of cannot change in a run.
  std::vector<std::string> resumed = by_class;
  resumed.insert(resumed.end(), {"--set", "eval.monitor=accuracy"});
  ASSERT_EQ(trained(model, digits_with_valid, 2, with("f1")), 0) << said_;
  EXPECT_EQ(trained(model, digits_with_valid, 4, resumed), 2);
  EXPECT_PRED2(contains, said_, "/eval/monitor");
}

TEST_F(Evaluations, MoreEpochsThanThereAreIsAtTheEnd) {
  const std::string many = "4611686018427387904";
  ASSERT_EQ(trained(R"({"type": "mlp", "hidden": [16]})", digits, 2,
                    {"--set", "train.batch_size=32", "--set", "eval.every_epochs=" + many, "--set",
                     "checkpoint.every_epochs=" + many}),
            0)
      << said_;
  EXPECT_EQ(splits_evaluated(), std::vector<std::string>{"test"});
  ASSERT_EQ(
      trained(R"({"type": "mlp", "hidden": [16]})", digits, 5, {"--set", "eval.every_epochs=2", "--resume", "never"}),
      0)
      << said_;
  EXPECT_EQ(splits_evaluated().size(), 3u) << "after 2, 4 and, at the end, 5";
}

}  // namespace
}  // namespace hearth::evaluation_test
