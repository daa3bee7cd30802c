// SPDX-License-Identifier: Apache-2.0
// Tasks of the library over datasets of a program.
#include <gtest/gtest.h>

#include <cmath>

#include "data/sample_dataset.h"
#include "dist/process_group.h"
#include "models/nn/linear.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_dir.h"
#include "train/session.h"
#include "train/step/ranks.h"
#include "train/step/step.h"

namespace hearth::train::sample_tasks_test {
namespace {

/// Points of the plane: what `Target` makes of them.
struct Points : data::SampleDataset {
  enum class Target { number, labels, one_class, partner } target;

  explicit Points(Target which) : target(which) {
    if (which == Target::one_class) names = {"left", "right", "never"};
  }
  std::int64_t size() const override { return 96; }
  data::TensorSample read(std::int64_t i, Random&) const override {
    Random random(5, static_cast<std::uint64_t>(i));
    const float a = static_cast<float>(2 * random.uniform() - 1), b = static_cast<float>(2 * random.uniform() - 1);
    const Tensor x = Tensor::of<float>({2}, {a, b});
    switch (target) {
      case Target::number:
        return {{"x", x}, {"y", Tensor::of<float>({2}, {a - 2 * b, 1 + b})}};
      case Target::labels:
        return {{"x", x},
                {"labels",
                 Tensor::of<std::uint8_t>({3}, {static_cast<std::uint8_t>(a > 0), static_cast<std::uint8_t>(b > 0),
                                                static_cast<std::uint8_t>(a > b)})}};
      case Target::one_class:
        return {{"x", x}, {"labels", Tensor::full({}, a > 0 ? 1 : 0, DType::i64)}};
      case Target::partner:
        // The partner is the same point, turned.
        return {{"x", x}, {"turned", Tensor::of<float>({2}, {-b, a})}};
    }
    return {};
  }
  const std::vector<std::string>& class_names() const override { return names; }
  std::vector<std::string> names;
};

struct PointOptions : data::DataOptions {};
void describe(Fields<PointOptions>& fields) { data::describe_common(fields); }

/// An encoder for each of two inputs; embeddings as the task contrastive takes them.
struct TwoEncoders : nn::Module {
  nn::Linear first{2, 8}, second{2, 8};
  TwoEncoders() {
    register_module("first", first);
    register_module("second", second);
  }
  Tensor forward_inputs(const nn::Inputs& inputs) override { return concat({first(inputs[0]), second(inputs[1])}, 0); }
};
struct HalfFrozen : TwoEncoders {
  HalfFrozen() { first.freeze(); }
};

void add_own_once() {
  static const bool added = [] {
    const auto add = [](const char* name, Points::Target target) {
      data::add<PointOptions>(name, [target](const PointOptions&) -> data::Splits {
        return {std::make_shared<Points>(target), nullptr, std::make_shared<Points>(target)};
      });
    };
    add("points_number", Points::Target::number);
    add("points_labels", Points::Target::labels);
    add("points_class", Points::Target::one_class);
    add("points_partner", Points::Target::partner);
    models::add("points_linear", [](const models::InputInfo& input) -> std::unique_ptr<nn::Module> {
      return std::make_unique<nn::Linear>(input.features(), input.classes > 0 ? input.classes : 2);
    });
    models::add("points_encoders", [](const models::InputInfo&) -> std::unique_ptr<nn::Module> {
      return std::make_unique<TwoEncoders>();
    });
    models::add("points_half_frozen",
                [](const models::InputInfo&) -> std::unique_ptr<nn::Module> { return std::make_unique<HalfFrozen>(); });
    return true;
  }();
  (void)added;
}

std::unique_ptr<Session> session_of(const std::string& data, const std::string& task, const std::string& more = "",
                                    const std::string& model = "points_linear", Collective* group = nullptr) {
  add_own_once();
  const test::TempDir folder;
  const std::string text = R"({"model": {"type": ")" + model + R"("}, "data": {"type": ")" + data +
                           R"(", "workers": 0}, "optimizer": {"type": "adam", "lr": 0.05},
    "train": {"steps": 60, "batch_size": 12, "accumulate": 4}, "task": )" +
                           task + more + "}";
  const std::string path = folder.write("run.json", {text.begin(), text.end()});
  return std::make_unique<Session>(load_config(path, {}), group);
}

/// What an evaluation records after so many steps.
Json trained(Session& session, std::int64_t steps) {
  data::Loader loader = session.make_train_loader();
  for (; session.position.step < steps; ++session.position.step) {
    const std::vector<data::Batch> batches{loader.next(), loader.next()};
    (void)training_step(session, batches);
  }
  const Meter meter = evaluate(session, session.data.test);
  EXPECT_EQ(meter.samples, 96);
  Json record = Json::object().set("loss", meter.loss()).set("accuracy", meter.accuracy());
  if (meter.metrics != nullptr) meter.metrics->report(record);
  return record;
}

TEST(RegressionTask, FitsNumbers) {
  for (const char* loss : {"mse", "l1", "huber"}) {
    const auto session =
        session_of("points_number", R"({"type": "regression", "target": "y"})",
                   std::string(R"(, "loss": {"type": ")") + loss + R"("}, "schedule": {"type": "cosine"})");
    EXPECT_EQ(session->task->describe(), "samples, 2 targets, input x [2]");
    EXPECT_EQ(session->task->input_info().features(), 2);
    EXPECT_FALSE(session->task->has_accuracy());
    const Json record = trained(*session, 60);
    EXPECT_GT(record.at("r2").as_number(), 0.95) << loss;
    EXPECT_LT(record.at("mae").as_number(), 0.3) << loss;
    EXPECT_LT(record.at("mse").as_number(), 0.1) << loss;
  }
  EXPECT_EQ(session_of("points_number", R"({"type": "regression", "target": "y"})")->config().loss.type(), "mse");
}

TEST(RegressionTask, RefusesWhatDoesNotFit) {
  const auto message = [](const std::string& data, const std::string& task, const std::string& more = "") {
    return test::error_message<ConfigError>([&] { (void)session_of(data, task, more); });
  };
  EXPECT_PRED2(test::contains, message("points_number", R"({"type": "regression"})"),
               "/task/target: samples have no \"labels\"; they have \"x\" [2], \"y\" [2]");
  EXPECT_PRED2(test::contains, message("points_number", R"({"type": "regression", "target": "y", "inputs": ["z"]})"),
               "/task/inputs: samples have no \"z\"");
  EXPECT_PRED2(test::contains, message("points_class", R"({"type": "regression"})"), "floating targets");
  EXPECT_PRED2(test::contains, message("digits", R"({"type": "regression"})"),
               "regression is of a data::SampleDataset");
  EXPECT_PRED2(
      test::contains,
      message("points_number", R"({"type": "regression", "target": "y"})", R"(, "loss": {"type": "cross_entropy"})"),
      "/loss/type: regression has targets that are no classes");
}

TEST(MultiLabelTask, FindsEachLabel) {
  const auto session = session_of("points_labels", R"({"type": "multi_label"})");
  EXPECT_EQ(session->config().loss.type(), "bce_with_logits");
  EXPECT_EQ(session->task->describe(), "samples, 3 labels, input x [2]");
  const Json record = trained(*session, 150);
  for (const char* key : {"f1", "micro_f1", "precision", "recall", "micro_precision", "micro_recall", "map"})
    EXPECT_GT(record.at(key).as_number(), 0.9) << key;
  EXPECT_GT(record.at("exact_match").as_number(), 0.8);
}

TEST(MultiLabelTask, ThresholdTradesPrecisionForRecall) {
  const auto sure = session_of("points_labels", R"({"type": "multi_label", "threshold": 0.99})");
  const auto eager = session_of("points_labels", R"({"type": "multi_label", "threshold": 0.01})");
  const Json high = trained(*sure, 30), low = trained(*eager, 30);
  EXPECT_EQ(low.at("recall").as_number(), 1);
  EXPECT_LT(high.at("recall").as_number(), 0.5);
  EXPECT_LT(low.at("precision").as_number(), 0.8);
}

TEST(MultiLabelTask, RefusesWhatDoesNotFit) {
  const auto message = [](const std::string& data, const std::string& task, const std::string& more = "") {
    return test::error_message<ConfigError>([&] { (void)session_of(data, task, more); });
  };
  EXPECT_PRED2(test::contains, message("points_class", R"({"type": "multi_label"})"), "1 or 0 for each label");
  EXPECT_PRED2(test::contains, message("points_labels", R"({"type": "multi_label", "threshold": 1})"), "threshold");
  EXPECT_PRED2(test::contains, message("points_labels", R"({"type": "multi_label"})", R"(, "loss": {"type": "focal"})"),
               "multi_label has targets that are no classes");
}

/// Batches of 7 of 96 samples: the last one is smaller, and ranks have different numbers of them.
TEST(SampleTasks, RanksEvaluateAsOneProcess) {
  const char* const tasks[][3] = {
      {"points_number", R"({"type": "regression", "target": "y"})", "points_linear"},
      {"points_labels", R"({"type": "multi_label"})", "points_linear"},
      {"points_partner", R"({"type": "contrastive", "shared_encoder": false})", "points_encoders"},
  };
  for (const auto& [data, task, model] : tasks) {
    const auto evaluated = [&, data = data, task = task, model = model](Collective* group) {
      const auto session = session_of(data, task, R"(, "eval": {"batch_size": 7})", model, group);
      EXPECT_TRUE(session->task->metrics()->is_reducible());
      const Meter meter = evaluate(*session, session->data.test);
      Json record = Json::object().set("loss", meter.loss_sum).set("samples", meter.samples);
      meter.metrics->report(record);
      return to_text(record);
    };
    const std::string one = evaluated(nullptr);
    for (const int ranks : {1, 2, 4})
      for (const std::string& failure : test::failures_of_ranks(dist::loopback_groups(ranks), [&](Collective& group) {
             EXPECT_EQ(evaluated(&group), one) << ranks << " ranks";
           }))
        EXPECT_EQ(failure, "");
  }
}

TEST(ClassificationTask, OfSamplesMeasuresEachClass) {
  const auto session = session_of("points_class", R"({"type": "classification", "top_k": 2, "by_class": true})",
                                  R"(, "loss": {"type": "cross_entropy", "class_weights": [1, 1, 0.1]})");
  EXPECT_EQ(session->task->describe(), "samples, 3 classes, input x [2]");
  EXPECT_EQ(session->throughput_unit(), "samples/s");
  const Json record = trained(*session, 100);
  EXPECT_GT(record.at("accuracy").as_number(), 0.95);
  EXPECT_EQ(record.at("top_k_accuracy").as_number(), 1);
  for (const char* key : {"precision", "recall", "f1"}) EXPECT_GT(record.at(key).as_number(), 0.95) << key;
  EXPECT_GT(record.at("f1_by_class").at("left").as_number(), 0.95);
  EXPECT_EQ(record.at("f1_by_class").at("never").as_number(), 0);
}

TEST(ClassificationTask, FocalLossTrains) {
  const auto session =
      session_of("points_class", R"({"type": "classification"})", R"(, "loss": {"type": "focal", "gamma": 2})");
  EXPECT_EQ(session->task->metrics(), nullptr);
  EXPECT_GT(trained(*session, 100).at("accuracy").as_number(), 0.95);
}

TEST(ClassificationTask, RefusesWhatDoesNotFit) {
  const auto message = [](const std::string& data, const std::string& task, const std::string& more = "") {
    return test::error_message<ConfigError>([&] { (void)session_of(data, task, more); });
  };
  EXPECT_PRED2(test::contains, message("points_class", R"({"type": "classification", "top_k": 4})"),
               "/task/top_k: 4 of 3 classes");
  EXPECT_PRED2(test::contains, message("points_number", R"({"type": "classification"})"), "with class_names()");
  EXPECT_PRED2(test::contains,
               message("points_class", R"({"type": "classification"})",
                       R"(, "loss": {"type": "cross_entropy", "class_weights": [1, 1]})"),
               "/loss/class_weights: 2 numbers for 3 classes");
}

TEST(ContrastiveTask, FindsPartners) {
  const auto session =
      session_of("points_partner", R"({"type": "contrastive", "shared_encoder": false})", "", "points_encoders");
  EXPECT_EQ(session->task->describe(), "pairs, input x [2], turned [2]");
  // 96 points of the plane by their direction: neighbours are close.
  const double before = trained(*session, 0).at("recall_at_1").as_number();
  const Json record = trained(*session, 400);
  EXPECT_LT(before, 0.2);
  EXPECT_GT(record.at("recall_at_1").as_number(), 0.4);
  EXPECT_GT(record.at("accuracy").as_number(), 0.75) << "within a batch";
}

TEST(SampleTasks, FrozenParametersAreSavedWithTheModel) {
  const test::TempDir folder;
  const auto open = [] {
    return session_of("points_partner", R"({"type": "contrastive", "shared_encoder": false})", "",
                      "points_half_frozen");
  };
  const auto frozen = [](const Session& session) { return dynamic_cast<HalfFrozen&>(*session.model).first.weight; };
  const auto one = open(), other = open();
  EXPECT_EQ(one->parameters->entries().size(), 2U);
  frozen(*one).fill_(0.5);
  one->model_state.save(folder / "model.safetensors", {});
  EXPECT_NE(frozen(*other).to_doubles(), frozen(*one).to_doubles());
  other->model_state.load(folder / "model.safetensors");
  EXPECT_EQ(frozen(*other).to_doubles(), frozen(*one).to_doubles());
}

// A part of a batch would tell its own pairs apart alone.
TEST(ContrastiveTask, BatchesStayWholeAmongRanks) {
  const auto open = [](Collective* group) {
    return session_of("points_partner", R"({"type": "contrastive", "shared_encoder": false})", "", "points_encoders",
                      group);
  };
  const auto weights_after_steps = [&](Collective* group) {
    const auto session = open(group);
    data::Loader loader = session->make_train_loader();
    const std::int64_t count = group == nullptr ? 4 : session->ranks->pieces();
    for (; session->position.step < 3; ++session->position.step) {
      std::vector<data::Batch> batches;
      for (std::int64_t i = 0; i < count; ++i) batches.push_back(loader.next());
      (void)session->ranks->begin_step(batches, session->loss, {});
      (void)training_step(*session, batches);
    }
    return session->parameters->values().to_doubles();
  };
  const std::vector<double> one = weights_after_steps(nullptr);
  for (const int ranks : {1, 2, 4})
    for (const std::string& failure : test::failures_of_ranks(dist::loopback_groups(ranks), [&](Collective& group) {
           const std::vector<double> weights = weights_after_steps(&group);
           ASSERT_EQ(weights.size(), one.size());
           for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(weights[i], one[i], 1e-5) << ranks << " ranks";
         }))
      EXPECT_EQ(failure, "");
  for (const std::string& failure :
       test::failures_of_ranks(dist::loopback_groups(3), [&](Collective& group) { (void)open(&group); }))
    EXPECT_PRED2(test::contains, failure, "4 batches a step do not go round 3 ranks whole");
}

TEST(ContrastiveTask, LossIsThatOfTheCosines) {
  const auto session = session_of("points_partner", R"({"type": "contrastive", "temperature": 0.5})");
  data::Loader loader = session->make_train_loader();
  const data::Batch batch = loader.next();
  const std::vector<double> a = (*session->model)(batch["x"]).to_doubles(),
                            b = (*session->model)(batch["turned"]).to_doubles();
  const auto cosine = [](const double* u, const double* v) {
    return (u[0] * v[0] + u[1] * v[1]) / (std::hypot(u[0], u[1]) * std::hypot(v[0], v[1]));
  };
  double expected = 0;
  for (std::size_t i = 0; i < 12; ++i) {
    double forth = 0, back = 0;
    for (std::size_t j = 0; j < 12; ++j) {
      forth += std::exp(cosine(&a[2 * i], &b[2 * j]) / 0.5);
      back += std::exp(cosine(&a[2 * j], &b[2 * i]) / 0.5);
    }
    expected += (std::log(forth) + std::log(back)) / 2 - cosine(&a[2 * i], &b[2 * i]) / 0.5;
  }
  EXPECT_NEAR(session->task->loss(*session, batch, {}).item(), expected / 12, 1e-5);
}

TEST(ContrastiveTask, RefusesWhatDoesNotFit) {
  const auto message = [](const std::string& data, const std::string& task) {
    return test::error_message<ConfigError>([&] { (void)session_of(data, task); });
  };
  EXPECT_PRED2(test::contains, message("points_partner", R"({"type": "contrastive", "inputs": ["x"]})"),
               "/task/inputs: contrastive is of 2 inputs a sample, not 1");
  EXPECT_PRED2(test::contains, message("points_labels", R"({"type": "contrastive"})"), "/task/shared_encoder");
  EXPECT_PRED2(test::contains, message("points_partner", R"({"type": "contrastive", "temperature": 0})"),
               "temperature");
  // The first pair of each batch would be left out.
  EXPECT_PRED2(test::contains, test::error_message<ConfigError>([] {
                 (void)session_of("points_partner", R"({"type": "contrastive"})",
                                  R"(, "loss": {"type": "cross_entropy", "ignore_index": 0})");
               }),
               "/loss/ignore_index: 0, but the labels of contrastive are the numbers of the pairs");
  const auto session = session_of("points_partner", R"({"type": "contrastive", "shared_encoder": false})");
  data::Loader loader = session->make_train_loader();
  EXPECT_THROW((void)session->task->loss(*session, loader.next(), {}), UsageError) << "a model of one input";
}

}  // namespace
}  // namespace hearth::train::sample_tasks_test
