// SPDX-License-Identifier: Apache-2.0
#include "train/task/task.h"

#include <gtest/gtest.h>

#include "autograd/grad_mode.h"
#include "data/sample_dataset.h"
#include "models/nn/linear.h"
#include "models/registry.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "train/predict/answer.h"
#include "train/predictor.h"
#include "train/session.h"
#include "train/step/step.h"

namespace hearth::train::task_test {
namespace {

std::unique_ptr<Session> session_of(const std::string& model, const std::string& data, const std::string& task,
                                    const std::vector<std::string>& overrides = {}) {
  const test::TempDir folder;
  const std::string text = R"({"model": {"type": ")" + model + R"("}, "data": {"type": ")" + data +
                           R"(", "workers": 0}, "optimizer": {"type": "sgd", "lr": 0.1},
    "train": {"steps": 60, "batch_size": 8, "accumulate": 2}, "task": {"type": ")" +
                           task + "\"}}";
  const std::string path = folder.write("run.json", {text.begin(), text.end()});
  return std::make_unique<Session>(load_config(path, overrides));
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

/// Four shades as classes of pixels; the first row does not count.
struct Shades : data::SampleDataset {
  std::int64_t size() const override { return 24; }
  data::TensorSample read(std::int64_t i, Random&) const override {
    std::vector<float> pixels;
    std::vector<std::int64_t> labels;
    for (std::int64_t p = 0; p < 16; ++p) {
      const std::int64_t shade = (i * 7 + p * p) % 4;
      pixels.push_back(static_cast<float>(shade) - 1.5F);
      labels.push_back(p < 4 ? data::ignored_label : shade);
    }
    return {{"images", Tensor::of({4, 4, 1}, pixels)}, {"labels", Tensor::of({4, 4}, labels)}};
  }
  const std::vector<std::string>& class_names() const override { return names; }
  std::vector<std::string> names{"black", "dark", "light", "white"};
};

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
  nn::Inputs inputs(const TrainedModel&, const data::Batch& batch) const override { return {batch["x"]}; }
  Tensor loss(const TrainedModel& trained, const data::Batch& batch, const Measured&) const override {
    return mse((*trained.model)(inputs(trained, batch)), batch["y"]);
  }
  bool best_by_loss() const override { return true; }
};

/// Three numbers of an image.
class Counts : public Task {
 public:
  nn::Inputs inputs(const TrainedModel&, const data::Batch& batch) const override {
    return {flatten(batch["images"], 1)};
  }
};

struct Pixels : nn::Module {
  Pixels(std::int64_t channels, std::int64_t classes) : in(channels, 16), out(16, classes) {
    register_module("in", in);
    register_module("out", out);
  }
  Tensor forward(const Tensor& x) override { return out(relu(in(x))); }
  nn::Linear in, out;
};

void add_own_once() {
  static const bool added = [] {
    data::add<LinesOptions>("task_test_lines", [](const LinesOptions&) -> data::Splits {
      return {std::make_shared<Lines>(), nullptr, std::make_shared<Lines>()};
    });
    data::add<LinesOptions>("task_test_shades", [](const LinesOptions&) -> data::Splits {
      return {std::make_shared<Shades>(), nullptr, std::make_shared<Shades>()};
    });
    models::add("task_test_linear", [](const models::InputInfo& input) -> std::unique_ptr<nn::Module> {
      return std::make_unique<nn::Linear>(input.channels, input.classes);
    });
    models::add("task_test_pixels", [](const models::InputInfo& input) -> std::unique_ptr<nn::Module> {
      return std::make_unique<Pixels>(input.channels, input.classes);
    });
    models::add("task_test_linear_of_shades", [](const models::InputInfo&) -> std::unique_ptr<nn::Module> {
      return std::make_unique<nn::Linear>(16, 3);
    });
    tasks().add<NoOptions>("task_test_counts", "Of this test.", [](const NoOptions&, const data::DataSplits&) {
      return std::unique_ptr<Task>(std::make_unique<Counts>());
    });
    tasks().add<NoOptions>("task_test_regression", "Of this test.", [](const NoOptions&, const data::DataSplits&) {
      return std::unique_ptr<Task>(std::make_unique<Regression>());
    });
    return true;
  }();
  (void)added;
}

TEST(Task, AFactoryThatMakesNothingIsNamed) {
  add_own_once();
  models::add("task_test_no_model", [](const models::InputInfo&) { return std::unique_ptr<nn::Module>(); });
  tasks().add<NoOptions>("task_test_no_task", "Of this test.",
                         [](const NoOptions&, const data::DataSplits&) { return std::unique_ptr<Task>(); });
  losses().add<NoOptions>("task_test_no_loss", "Of this test.", [](const NoOptions&) { return Loss{}; });
  using test::contains;
  const auto message = [](const std::string& model, const std::string& task) {
    return test::error_message<UsageError>([&] { (void)session_of(model, "task_test_lines", task); });
  };
  EXPECT_PRED2(contains, message("task_test_no_model", "task_test_regression"),
               "/model: the factory of \"task_test_no_model\" has made none");
  EXPECT_PRED2(contains, message("task_test_linear", "task_test_no_task"),
               "/task: the factory of \"task_test_no_task\" has made none");
  EXPECT_PRED2(contains, test::error_message<UsageError>([] {
                 (void)session_of("task_test_linear", "task_test_lines", "task_test_regression",
                                  {R"(loss={"type": "task_test_no_loss"})"});
               }),
               "/loss: the factory of \"task_test_no_loss\" has made none");
  EXPECT_THROW((void)models::make(parse_json(R"({"type": "task_test_no_model"})", "a test"), {}), UsageError);
  EXPECT_THROW(models::add("task_test_empty", nullptr), UsageError);
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

TEST(Task, OfAProgramPredictsFilesUnlessItSaysOtherwise) {
  add_own_once();
  EXPECT_STREQ(session_of("mlp", "digits", "classification")->task->form().trained_on, "images");
  auto own = session_of("task_test_linear", "task_test_lines", "task_test_regression");
  EXPECT_STREQ(own->task->form().trained_on, "samples of the program's own");
  data::Batch batch;
  batch.set("x", Tensor::of<float>({40, 2}, std::vector<float>(80, 0.5F)));
  const NoGrad no_grad;
  const std::vector<double> expected = (*own->model)(batch["x"]).to_doubles();
  const Predictor predictor(std::move(own));
  const Prediction result = predictor.predict_batch(batch);
  EXPECT_EQ(result.logits.shape(), (Shape{40, 1}));
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(result.logits.to_doubles()[i], expected[i], 1e-6);
  EXPECT_FALSE(result.probabilities.defined());
  EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] { (void)predictor.predict_text({"a"}); }),
               "use predict_batch()");
  EXPECT_THROW((void)predictor.predict_batch({}), UsageError);
}

TEST(Task, SegmentationMeasuresEachClass) {
  add_own_once();
  const auto session = session_of("task_test_pixels", "task_test_shades", "segmentation");
  EXPECT_EQ(session->task->input_info().height, 4);
  EXPECT_EQ(session->task->describe(), "images, 4 classes of pixels, input 4x4x1");
  data::Loader loader = session->make_train_loader();
  for (; session->position.step < 400; ++session->position.step) {
    const std::vector<data::Batch> batches{loader.next(), loader.next()};
    EXPECT_EQ(batches[0].count(), 8 * 12) << "pixels that count";
    (void)training_step(*session, batches);
  }
  const Meter meter = evaluate(*session, session->data.test);
  EXPECT_EQ(meter.samples, 24 * 12);
  Json record = Json::object();
  meter.metrics->report(record);
  EXPECT_DOUBLE_EQ(record.at("mean_iou").as_number(), 1);
  EXPECT_DOUBLE_EQ(record.at("iou").at("dark").as_number(), 1);
  EXPECT_DOUBLE_EQ(meter.accuracy(), 1);
  EXPECT_THROW((void)session->task->predict(*session, "a.png", "."), UsageError);
}

TEST(Task, OfAProgramMayHaveOtherOutputsThanItsDataHasClasses) {
  add_own_once();
  auto session = session_of("task_test_linear_of_shades", "task_test_shades", "task_test_counts");
  const Predictor predictor(std::move(session));
  data::Batch batch;
  batch.set("images", Tensor::zeros({5, 4, 4, 1}));
  const Prediction result = predictor.predict_batch(batch);
  EXPECT_EQ(result.logits.shape(), (Shape{5, 3})) << "of data with 4 classes";
  EXPECT_FALSE(result.probabilities.defined());
}

TEST(Task, SegmentationGivesMasksToAProgram) {
  add_own_once();
  auto session = session_of("task_test_pixels", "task_test_shades", "segmentation");
  const data::Batch batch = session->data.eval_loader(session->data.test, 24).next();
  const NoGrad no_grad;
  const Tensor expected = argmax((*session->model)(batch["images"]), -1);
  const Predictor predictor(std::move(session));
  data::Batch images;
  images.set("images", batch["images"]);
  const Prediction result = predictor.predict_batch(images);
  EXPECT_EQ(result.logits.shape(), (Shape{24, 4, 4, 4}));
  EXPECT_EQ(result.probabilities.shape(), result.logits.shape());
  EXPECT_EQ(argmax(result.logits, -1).to_doubles(), expected.to_doubles());
  EXPECT_EQ(predictor.classes().size(), 4U);
  EXPECT_THROW((void)predictor.top(result, 0, 1), IndexError) << "a class for each pixel";
}

TEST(Task, SegmentationRefusesOtherSamples) {
  add_own_once();
  EXPECT_PRED2(test::contains,
               test::error_message<ConfigError>([] { (void)session_of("mlp", "digits", "segmentation"); }),
               "or of a data::SampleDataset");
  EXPECT_PRED2(test::contains, test::error_message<ConfigError>([] {
                 (void)session_of("task_test_linear", "task_test_lines", "segmentation");
               }),
               "or of a data::SampleDataset with class_names()");
}

TEST(Task, MustBeNamedWhereTheDataTellsNone) {
  add_own_once();
  EXPECT_PRED2(test::contains, test::error_message<ConfigError>([] {
                 (void)session_of("task_test_linear", "task_test_lines", "auto");
               }),
               "/task: the data tell none");
}

}  // namespace
}  // namespace hearth::train::task_test
