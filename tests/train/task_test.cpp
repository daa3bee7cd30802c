// SPDX-License-Identifier: Apache-2.0
#include "train/task/task.h"

#include <gtest/gtest.h>

#include "data/sample_dataset.h"
#include "models/nn/linear.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "train/session.h"
#include "train/step.h"

namespace hearth::train {
namespace {

std::unique_ptr<Session> session_of(const std::string& model, const std::string& data, const std::string& task) {
  const test::TempDir folder;
  const std::string text = R"({"model": {"type": ")" + model + R"("}, "data": {"type": ")" + data +
                           R"(", "workers": 0}, "optimizer": {"type": "sgd", "lr": 0.1},
    "train": {"steps": 60, "batch_size": 8, "accumulate": 2}, "task": {"type": ")" +
                           task + "\"}}";
  const std::string path = folder.write("run.json", {text.begin(), text.end()});
  return std::make_unique<Session>(load_config(path, {}));
}

TEST(Task, IsToldByTheData) {
  for (const char* name : {"auto", "classification"}) {
    const auto session = session_of("mlp", "digits", name);
    EXPECT_STREQ(session->task->unit(), "images");
    EXPECT_EQ(session->task->input_info().classes, 10);
    EXPECT_EQ(session->task->describe(), "images, 10 classes, input 8x8x1");
  }
}

TEST(Task, RefusesOtherData) {
  for (const std::string name : {"text_classification", "language_model", "translation"})
    EXPECT_PRED2(test::contains, test::error_message<ConfigError>([&] { (void)session_of("mlp", "digits", name); }),
                 "/task/type: " + name + " is of sequences of tokens");
  EXPECT_PRED2(test::contains,
               test::error_message<ConfigError>([] { (void)session_of("mlp", "digits", "clasification"); }),
               "\"classification\"");
}

/// y = x0 - 2 x1, as tensors that no task of the library knows.
struct Lines : data::SampleDataset {
  std::int64_t size() const override { return 64; }
  data::TensorSample read(std::int64_t i, Random&) const override {
    Random random(3, static_cast<std::uint64_t>(i));
    const float a = static_cast<float>(random.uniform()), b = static_cast<float>(random.uniform());
    return {{"x", Tensor::of<float>({2}, {a, b})}, {"y", Tensor::of<float>({1}, {a - 2 * b})}};
  }
};

struct LinesOptions : data::DataOptions {};
void describe(Fields<LinesOptions>& fields) { data::describe_common(fields); }

class Regression : public Task {
 public:
  models::InputInfo input_info() const override { return {.channels = 2, .classes = 1}; }
  nn::Inputs inputs(const Session&, const data::Batch& batch) const override { return {batch["x"]}; }
  Tensor loss(Session& session, const data::Batch& batch, const Measured&) const override {
    return mse((*session.model)(inputs(session, batch)), batch["y"]);
  }
  bool best_by_loss() const override { return true; }
};

void add_own_once() {
  static const bool added = [] {
    data::add<LinesOptions>("task_test_lines", [](const LinesOptions&) -> data::Splits {
      return {std::make_shared<Lines>(), nullptr, std::make_shared<Lines>()};
    });
    models::add("task_test_linear", [](const models::InputInfo& input) -> std::unique_ptr<nn::Module> {
      return std::make_unique<nn::Linear>(input.channels, input.classes);
    });
    tasks().add<NoOptions>("task_test_regression", "Of this test.", [](const NoOptions&, const data::DataSplits&) {
      return std::unique_ptr<Task>(std::make_unique<Regression>());
    });
    return true;
  }();
  (void)added;
}

TEST(Task, OfAProgramTrainsAndEvaluates) {
  add_own_once();
  const auto session = session_of("task_test_linear", "task_test_lines", "task_test_regression");
  EXPECT_EQ(session->throughput_unit(), "samples/s");
  data::Loader loader = session->make_train_loader();
  for (; session->position.step < 1000; ++session->position.step) {
    const std::vector<data::Batch> batches{loader.next(), loader.next()};
    EXPECT_EQ(training_step(*session, batches).samples, 16);
  }
  const Meter meter = evaluate(*session, session->data.test);
  EXPECT_EQ(meter.samples, 64);
  EXPECT_LT(meter.loss(), 1e-6);
  const data::Batch blank = blank_batch(*session, 5, DeviceType::cpu);
  EXPECT_EQ(blank["x"].shape(), (Shape{5, 2}));
  EXPECT_EQ(blank["y"].to_doubles(), std::vector<double>(5, 0.0));
}

TEST(Task, MustBeNamedWhereTheDataTellsNone) {
  add_own_once();
  EXPECT_PRED2(test::contains, test::error_message<ConfigError>([] {
                 (void)session_of("task_test_linear", "task_test_lines", "auto");
               }),
               "/task: the data tell none");
}

}  // namespace
}  // namespace hearth::train
