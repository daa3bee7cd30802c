// SPDX-License-Identifier: Apache-2.0
// A small BERT learns to classify sequences by the commands of the library.
#include <gtest/gtest.h>

#include "core/io/file.h"
#include "core/io/json_text.h"
#include "models/nn/nn.h"
#include "models/registry.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "train/cli/cli.h"

namespace hearth::labelled_training_test {
namespace {

/// Five scores of any text, whatever the data's classes.
struct Fixed : nn::Module {
  Tensor scores = Tensor::zeros({5});

  Fixed() { parameter("scores", scores, nn::init::zeros()); }
  Tensor forward(const Tensor& ids) override { return add(Tensor::zeros({ids.dim(0), 5}), scores); }
};

class LabelledTraining : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  void put(const std::string& name, const std::string& text) const {
    (void)folder_.write(name, {text.begin(), text.end()});
  }
  int run(std::vector<std::string> words) {
    words.insert(words.begin(), "hearth");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStdout();
    const int code = train::run_cli(static_cast<int>(argv.size()), argv.data());
    output_ = testing::internal::GetCapturedStdout();
    return code;
  }

  test::TempDir folder_;
  std::string output_;
};

TEST_F(LabelledTraining, ABertTellsTextsApart) {
  // Which of two letters a text has more of.
  std::string lines;
  for (int i = 0; i < 240; ++i) {
    const bool a = i % 2 == 0;
    std::string text;
    for (int j = 0; j < 3 + i % 7; ++j) text += j % 3 == 0 ? (a ? 'b' : 'a') : (a ? 'a' : 'b');
    lines += (a ? "more-a\t" : "more-b\t") + text + "\n";
  }
  put("texts.tsv", lines);
  put("run.json", R"({"seed": 2, "device": "cpu",
    "model": {"type": "bert", "head": "classification", "pool": "mean", "layers": 1, "heads": 2, "width": 16,
              "dropout": 0.1},
    "data": {"type": "labelled_text", "train": [")" +
                      path("texts.tsv") + R"("], "valid_fraction": 0.2, "length": 16, "workers": 0},
    "optimizer": {"type": "adamw", "lr": 0.01}, "train": {"batch_size": 8, "epochs": 4},
    "log": {"every_steps": 10, "report": true}})");
  ASSERT_EQ(run({"train", path("run.json"), "--out", path("out")}), 0);
  ASSERT_EQ(run({"eval", path("out"), "--json"}), 0);
  const Json result = parse_json(output_, "eval");
  EXPECT_EQ(result.at("samples").as_integer(), 48);
  EXPECT_GT(result.at("accuracy").as_number(), 0.95);
  EXPECT_EQ(result.find("perplexity"), nullptr) << "classes are not ids of a text";
  ASSERT_EQ(run({"predict", path("out"), "--text", "baabaa", "--text", "abbabb", "--top", "1"}), 0);
  const std::size_t line = output_.find('\n');
  EXPECT_EQ(parse_json(output_.substr(0, line), "first").at("class").as_string(), "more-a");
  EXPECT_EQ(parse_json(output_.substr(line + 1), "second").at("class").as_string(), "more-b");
  const std::string metrics = read_text(path("out") + "/metrics.jsonl");
  EXPECT_NE(metrics.find("\"unit\":\"sequences/s\""), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("\"padding\""), std::string::npos);
  EXPECT_NE(read_text(path("out") + "/report.html").find("sequences per second"), std::string::npos);
  EXPECT_EQ(run({"predict", path("out"), "absent.txt"}), 3);
  EXPECT_EQ(run({"predict", path("out")}), 2) << "no text is named";
  EXPECT_EQ(run({"predict", path("out"), "--prompt", "a"}), 2);
  EXPECT_EQ(run({"plan", path("run.json")}), 0);
  for (const char* misfit : {"model.classes=3", "model.classes=1", "model.head=embedding", "model.head=masked_lm"}) {
    EXPECT_EQ(run({"plan", path("run.json"), "--set", misfit}), 2) << misfit;
    EXPECT_EQ(run({"predict", path("out"), "--text", "ab", "--top", "9", "--set", misfit}), 2) << misfit;
  }
  EXPECT_EQ(run({"plan", path("run.json"), "--set", "model.classes=2"}), 0) << "what the data has";
  EXPECT_EQ(run({"data", "verify", path("run.json")}), 0);
}

TEST_F(LabelledTraining, ANetworkOfOnesOwnWithOtherOutputsPredictsNoClass) {
  models::add("test_fixed", [](const models::InputInfo&) { return std::make_unique<Fixed>(); });
  put("texts.tsv", "a\tx\nb\ty\n");
  put("run.json",
      R"({"device": "cpu", "model": {"type": "test_fixed"}, "data": {"type": "labelled_text", "train": [")" +
          path("texts.tsv") +
          R"("]}, "optimizer": {"type": "sgd", "lr": 0.01}, "train": {"batch_size": 2, "steps": 1}})");
  ASSERT_EQ(run({"train", path("run.json"), "--out", path("out")}), 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({"predict", path("out"), "--text", "x", "--top", "5"}), 2);
  EXPECT_PRED2(test::contains, testing::internal::GetCapturedStderr(),
               "[1, 5] of one input, but the data has 2 classes");
}

}  // namespace
}  // namespace hearth::labelled_training_test
