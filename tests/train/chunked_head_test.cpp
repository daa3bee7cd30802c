// SPDX-License-Identifier: Apache-2.0
// Training with the cross entropy taken by chunks of rows, of the features in front of the head.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/memory/memory.h"
#include "models/nn/nn.h"
#include "models/registry.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "train/session.h"
#include "train/step/step.h"

namespace hearth::train::chunked_head_test {
namespace {

constexpr const char* gpt = R"({"type": "gpt", "layers": 1, "heads": 2, "width": 16, "dropout": 0.1})";
constexpr const char* untied =
    R"({"type": "gpt", "layers": 1, "heads": 2, "width": 16, "dropout": 0.1, "tie_head": false})";
constexpr const char* transformer =
    R"({"type": "transformer", "layers": 1, "decoder_layers": 1, "heads": 2, "width": 16, "hidden": 32})";
constexpr const char* bert = R"({"type": "bert", "layers": 1, "heads": 2, "width": 16, "hidden": 32})";

class ChunkedHead : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(folder_ / "text.txt"), pairs(folder_ / "pairs.tsv"), words(folder_ / "words.txt");
    for (int i = 0; i < 60; ++i) {
      text << "the hen of house " << i * i << " lays eggs.\n";
      pairs << "hen " << i << "\tnumber " << i * 7 << '\n';
    }
    for (int i = 0; i < 16500; ++i) words << 'w' << i << (i % 10 == 9 ? '\n' : ' ');
  }

  std::unique_ptr<Session> session(const std::string& model, const std::vector<std::string>& overrides,
                                   const std::string& corpus = "text.txt",
                                   const std::string& tokenizer = "characters") {
    const bool translates = model == transformer;
    const std::string file = (folder_ / (translates ? "pairs.tsv" : corpus)).string();
    const std::string path = folder_ / "run.json";
    std::ofstream(path) << R"({"seed": 3, "device": "cpu", "model": )" << model << R"(, "data": {"type": ")"
                        << (translates ? "parallel_text" : "text") << R"(", "train": [")" << file << R"("], "test": [")"
                        << file << "\"]" << (translates ? "" : R"(, "length": 12)")
                        << (model == bert ? R"(, "mask_probability": 0.3)" : "") << R"(, "tokenizer": {"type": ")"
                        << tokenizer << R"("}}, "optimizer": {"type": "sgd", "lr": 0.1},
      "train": {"batch_size": 8, "steps": 100, "accumulate": 2}})";
    return std::make_unique<Session>(load_config(path, overrides));
  }

  static std::vector<double> weights_of(Session& run) { return run.parameters->values().to_doubles(); }

  static void train(Session& run, int steps) {
    data::Loader loader = run.make_train_loader();
    for (int step = 0; step < steps; ++step) {
      const std::vector<data::Batch> batches{loader.next(), loader.next()};
      (void)training_step(run, batches);
      ++run.position.step;
    }
    run.read_interval();
  }

  test::TempDir folder_;
};

TEST_F(ChunkedHead, TrainsAsWithAllOutputs) {
  for (const char* model : {gpt, untied, transformer, bert})
    for (const char* loss : {"loss.label_smoothing=0", "loss.label_smoothing=0.1"}) {
      SCOPED_TRACE(std::string(model) + loss);
      const auto whole = session(model, {"train.chunked_head=false", "loss.type=cross_entropy", loss});
      const auto chunked = session(model, {"train.chunked_head=true", "loss.type=cross_entropy", loss});
      EXPECT_EQ(whole->chunked, nullptr);
      ASSERT_NE(chunked->chunked, nullptr);
      train(*whole, 3);
      train(*chunked, 3);
      EXPECT_NEAR(chunked->position.interval.loss_sum, whole->position.interval.loss_sum,
                  1e-5 * whole->position.interval.loss_sum);
      EXPECT_EQ(chunked->position.interval.correct, whole->position.interval.correct);
      const std::vector<double> a = weights_of(*whole), b = weights_of(*chunked);
      double difference = 0;
      for (std::size_t i = 0; i < a.size(); ++i) difference = std::max(difference, std::abs(a[i] - b[i]));
      EXPECT_LT(difference, 1e-6);
      const Meter of_whole = evaluate(*whole, whole->data.test), of_chunked = evaluate(*chunked, chunked->data.test);
      EXPECT_NEAR(of_chunked.loss(), of_whole.loss(), 1e-4);
      EXPECT_EQ(of_chunked.samples, of_whole.samples);
      EXPECT_NEAR(of_chunked.accuracy(), of_whole.accuracy(), 0.02);
    }
}

TEST_F(ChunkedHead, IsForLargeVocabulariesUnlessTold) {
  EXPECT_EQ(session(gpt, {})->chunked, nullptr);
  EXPECT_NE(session(gpt, {}, "words.txt", "words")->chunked, nullptr);
  EXPECT_EQ(session(gpt, {"train.chunked_head=false"}, "words.txt", "words")->chunked, nullptr);
}

// 8 x 12 rows of 16,505 pieces are 6.3 MB, whose gradient is as large; parts of the rows are less than half of one.
TEST_F(ChunkedHead, StepsNeedLessMemory) {
  const auto peak = [&](const char* chunked) {
    const auto run = session(gpt, {chunked, "train.batch_size=64"}, "words.txt", "words");
    train(*run, 1);
    const auto before = memory_of({}).statistics().in_use;
    memory_of({}).reset_peak();
    data::Loader loader = run->make_train_loader();
    const data::Batch batch = loader.next();
    (void)training_step(*run, std::span(&batch, 1));
    return static_cast<double>(memory_of({}).statistics().peak - before);
  };
  // 768 rows in chunks of 256.
  EXPECT_LT(peak("train.chunked_head=true"), 0.6 * peak("train.chunked_head=false"));
}

/// Scores of a vocabulary, of a model that shows no head.
struct Headless : nn::Module {
  explicit Headless(const models::InputInfo& input) : table(input.vocabulary, input.classes) {
    register_module("table", table);
  }
  Tensor forward(const Tensor& ids) override { return table(ids); }
  nn::Embedding table;
};

TEST_F(ChunkedHead, RefusesNetworksAndLossesWithoutOne) {
  models::add("test_headless", [](const models::InputInfo& input) { return std::make_unique<Headless>(input); });
  const auto message = [&](const std::string& model, const std::vector<std::string>& overrides) {
    return test::error_message<ConfigError>([&] { (void)session(model, overrides); });
  };
  const std::string headless = R"({"type": "test_headless"})";
  EXPECT_NE(message(headless, {"train.chunked_head=true"}).find("/train/chunked_head"), std::string::npos);
  EXPECT_NE(message(gpt, {"train.chunked_head=true", "loss.type=mse"}).find("cross_entropy"), std::string::npos);
  EXPECT_EQ(session(gpt, {"loss.type=mse"})->chunked, nullptr);
}

}  // namespace
}  // namespace hearth::train::chunked_head_test
