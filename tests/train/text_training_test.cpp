// SPDX-License-Identifier: Apache-2.0
// Small models trained on text by the commands of the library: a table of what follows what, and a copier of
// lines.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "core/io/file.h"
#include "core/io/json_text.h"
#include "data/splits.h"
#include "models/nn/nn.h"
#include "models/registry.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"
#include "train/cli/cli.h"

namespace hearth::text_training_test {
namespace {

struct FollowerOptions {};
void describe(Fields<FollowerOptions>&) {}

/// Scores of the next id from the present one, or of a translation's from its own place in the source.
struct Follower : nn::Module {
  explicit Follower(const models::InputInfo& input)
      : table(input.vocabulary, 24),
        out(24, input.classes),
        source_table(std::max<std::int64_t>(1, input.source_vocabulary), 24) {
    register_module("table", table);
    register_module("out", out);
    register_module("source_table", source_table);
  }
  Tensor forward(const Tensor& ids) override { return out(table(ids)); }
  Tensor forward_inputs(const nn::Inputs& inputs) override {
    const Tensor &source = inputs.at(0), &target = inputs.at(1);
    return out(add(source_table(slice(source, 1, 0, target.dim(1))), table(target)));
  }
  nn::Embedding table;
  nn::Linear out;
  nn::Embedding source_table;
};

class TextTraining : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    models::add<FollowerOptions>("test_follower", [](const FollowerOptions&, const models::InputInfo& input) {
      return std::make_unique<Follower>(input);
    });
  }

  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  void put(const std::string& name, const std::string& text) const {
    (void)folder_.write(name, {text.begin(), text.end()});
  }
  int run(std::vector<std::string> words) const {
    words.insert(words.begin(), "hearth");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return train::run_cli(static_cast<int>(argv.size()), argv.data());
  }
  std::vector<Json> metrics(const std::string& out) const {
    std::vector<Json> records;
    const std::string text = read_text(path(out) + "/metrics.jsonl");
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      records.push_back(parse_json(std::string_view(text).substr(begin, end - begin), "metrics"));
      begin = end + 1;
    }
    return records;
  }
  std::string weights(const std::string& out) const {
    return read_json(path(out) + "/run.json").at("metrics").at("weights_sha256").as_string();
  }
  void put_config(const std::string& name, const std::string& data, int epochs) const {
    const bool by_tokens = data.find("tokens_per_batch") != std::string::npos;
    const std::string rows = by_tokens ? "" : R"("batch_size": 8, )";
    put(name, R"({"device": "cpu", "model": {"type": "test_follower"}, "data": )" + data +
                  R"(, "optimizer": {"type": "adamw", "lr": 0.02}, "train": {)" + rows + R"("epochs": )" +
                  std::to_string(epochs) + R"(}, "log": {"every_steps": 5, "report": false}})");
  }

  test::TempDir folder_;
};

TEST_F(TextTraining, ATextIsLearnedAndMeasuredInBits) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "abcde"[i % 5];
  put("a.txt", text);
  put("b.txt", text.substr(0, 1001));
  put_config(
      "run.json",
      R"({"type": "text", "train": [")" + path("a.txt") + R"("], "test": [")" + path("b.txt") + R"("], "length": 16})",
      6);
  ASSERT_EQ(run({"train", path("run.json"), "--out", path("out")}), 0);
  const Json last = metrics("out").back();
  EXPECT_EQ(last.at("split").as_string(), "test");
  EXPECT_EQ(last.at("unit").as_string(), "tokens/s");
  EXPECT_NEAR(last.at("perplexity").as_number(), std::exp(last.at("loss").as_number()), 1e-9);
  EXPECT_LT(last.at("bits_per_character").as_number(), 0.2);
  EXPECT_NEAR(last.at("bits_per_character").as_number(), last.at("loss").as_number() / std::log(2.0), 1e-9);
  // All letters but one, where the text ends, follow from the letter before.
  EXPECT_NEAR(last.at("accuracy").as_number(), 1000.0 / 1001, 1e-9);
  EXPECT_EQ(run({"eval", path("out"), "--json"}), 0);
  EXPECT_TRUE(std::filesystem::exists(path("out") + "/checkpoints/latest/tokenizer.json"));
  // A text with other letters gives ids that mean something else to these weights.
  put("a.txt", "x" + text);
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({"eval", path("out")}), 3);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("is not the tokenizer"), std::string::npos);
}

TEST_F(TextTraining, ANetworkOfOnesOwnWritesToo) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "abcde"[i % 5];
  put("a.txt", text);
  put_config("run.json", R"({"type": "text", "train": [")" + path("a.txt") + R"("], "length": 16})", 6);
  ASSERT_EQ(run({"train", path("run.json"), "--out", path("out")}), 0);
  testing::internal::CaptureStdout();
  const int code = run({"predict", path("out"), "--prompt", "cd", "--greedy", "--max-tokens", "25"});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "cdeabcdeabcdeabcdeabcdeabcd\n");
  EXPECT_EQ(code, 0);
}

TEST_F(TextTraining, BatchesOfTokensAreToldInTokens) {
  std::string lines;
  std::int64_t labels = 0;
  for (std::int64_t i = 0; i < 24; ++i) {
    const std::string word(static_cast<std::size_t>(1 + i % 5), static_cast<char>('a' + i));
    lines += word + "\t" + word + "\n";
    labels += static_cast<std::int64_t>(word.size()) + 1;  // with its end
  }
  put("pairs.tsv", lines);
  const std::string file = "[\"" + path("pairs.tsv") + "\"]";
  put_config("run.json",
             R"({"type": "parallel_text", "train": )" + file + R"(, "test": )" + file + R"(, "tokens_per_batch": 64})",
             1);
  const auto said = [&](std::vector<std::string> more, int code) {
    more.insert(more.begin(), {"train", path("run.json"), "--dry-run"});
    testing::internal::CaptureStderr();
    EXPECT_EQ(run(more), code);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_PRED2(test::contains, said({}, 0), " steps of up to 64 tokens a side, ");
  EXPECT_PRED2(test::contains, said({"--set", "train.accumulate=2"}, 0), " steps of up to 64 tokens a side x 2, ");
  EXPECT_PRED2(test::contains, said({"--batch-size", "8"}, 2),
               "/train/batch_size: 8 samples, but batches are filled up to /data/tokens_per_batch, 64 ids; leave");
  EXPECT_PRED2(test::contains, said({"--batch-size", "8", "--set", "data.tokens_per_batch=0"}, 0), " steps of 8, ");
  ASSERT_EQ(run({"train", path("run.json"), "--out", path("out"), "--set", "eval.metric=none"}), 0);
  testing::internal::CaptureStdout();
  EXPECT_EQ(run({"eval", path("out"), "--json"}), 0);
  const Json evaluated = parse_json(testing::internal::GetCapturedStdout(), "eval");
  EXPECT_EQ(evaluated.at("samples").as_integer(), 24);
  EXPECT_EQ(evaluated.at("tokens").as_integer(), labels);
}

TEST_F(TextTraining, StoppedInTheMiddleOfAnEpochItEndsTheSame) {
  std::string lines;
  for (int i = 0; i < 300; ++i) {
    std::string word;
    for (int j = 0; j <= i * 7 % 20; ++j) word += static_cast<char>('a' + (i + 3 * j) % 26);
    lines += word + "\t" + word + "\n";
  }
  put("pairs.tsv", lines);
  put_config("run.json",
             R"({"type": "parallel_text", "train": [")" + path("pairs.tsv") +
                 R"("], "tokens_per_batch": 128, "valid_fraction": 0.1})",
             2);
  ASSERT_EQ(run({"train", path("run.json"), "--out", path("whole")}), 0);
  const auto records = metrics("whole");
  EXPECT_LT(records[records.size() - 2].at("loss").as_number(), records[0].at("loss").as_number());
  EXPECT_GT(records[0].at("padding").as_number(), 0);
  EXPECT_LT(records[0].at("padding").as_number(), 0.5);
  // In the middle of the second epoch, and of an interval of the metrics.
  const std::int64_t total = records.back().at("step").as_integer(), step = total * 3 / 4 / 5 * 5 + 2;
  ASSERT_NE(step % (total / 2), 0);
  ASSERT_LT(step, total);
  const std::string middle = std::to_string(step);
  ASSERT_EQ(run({"train", path("run.json"), "--out", path("parts"), "--set", "checkpoint.every_steps=" + middle}), 0);
  // The last checkpoint goes; the run continues from the one in the middle.
  std::filesystem::path last;
  for (const auto& entry : std::filesystem::directory_iterator(path("parts") + "/checkpoints"))
    if (!entry.is_symlink() && entry.path().filename().string() > last.filename().string()) last = entry.path();
  std::filesystem::remove_all(last);
  std::string name = std::to_string(step);
  name = "step-" + std::string(8 - name.size(), '0') + name;
  ASSERT_TRUE(std::filesystem::exists(path("parts") + "/checkpoints/" + name));
  ASSERT_NE(last.filename().string(), name);
  ASSERT_EQ(run({"train", path("run.json"), "--out", path("parts"), "--set", "checkpoint.every_steps=" + middle}), 0);
  EXPECT_EQ(weights("parts"), weights("whole"));
  // Of the steps after the checkpoint every line is there once, and says the same.
  const auto resumed = metrics("parts");
  ASSERT_EQ(resumed.size(), records.size());
  for (std::size_t i = 0; i < records.size(); ++i)
    for (const char* key : {"step", "loss", "padding"}) {
      if (!records[i].find(key)) continue;
      EXPECT_EQ(resumed[i].at(key).as_number(), records[i].at(key).as_number()) << i << key;
    }
}

TEST_F(TextTraining, PackedTextsTrainTheSame) {
  put("a.txt", read_text(test::source_dir() + "/tests/golden/text/sample.txt"));
  put_config("run.json",
             R"({"type": "text", "train": [")" + path("a.txt") +
                 R"("], "length": 32, "valid_fraction": 0.1, "tokenizer": {"type": "bpe", "vocabulary": 300}})",
             1);
  put_config("packed.json",
             R"({"type": "text", "packed": ")" + path("packed") + R"(", "length": 32, "valid_fraction": 0.1})", 1);
  ASSERT_EQ(run({"data", "pack", path("run.json"), path("packed")}), 0);
  ASSERT_EQ(run({"data", "verify", path("packed.json")}), 0);
  ASSERT_EQ(run({"train", path("run.json"), "--out", path("a")}), 0);
  ASSERT_EQ(run({"train", path("packed.json"), "--out", path("b")}), 0);
  EXPECT_EQ(weights("a"), weights("b"));
}

TEST_F(TextTraining, PackTellsOfPairsThatItLeavesOut) {
  put("pairs.tsv", "ab\tba\nabcdefghij\tjihgfedcba\nabc\tcba\n");
  put_config("run.json",
             R"({"type": "parallel_text", "train": [")" + path("pairs.tsv") + R"("], "longest": 8, "on_long": "skip"})",
             1);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run({"data", "pack", path("run.json"), path("packed"), "--json"});
  const std::string told = testing::internal::GetCapturedStderr(), files = testing::internal::GetCapturedStdout();
  ASSERT_EQ(code, 0) << told;
  EXPECT_PRED2(test::contains, told, "1 pairs left out; the first:\n  " + path("pairs.tsv") + ":2 with ");
  const Json list = parse_json(files, "stdout");
  ASSERT_EQ(list.size(), 2u);
  for (const Json& file : list.items()) EXPECT_EQ(file.at("left_out").as_integer(), 1);
}

TEST_F(TextTraining, TheLargestBatchIsOneThatAnEpochHas) {
  put("a.txt", std::string(100, 'a'));
  // 6 rows fit; training draws 5, so that they may begin anywhere.
  put_config("run.json", R"({"type": "text", "train": [")" + path("a.txt") + R"("], "length": 16})", 1);
  const std::vector<std::string> small{"--set", "train.batch_size=1", "--json"};
  const auto output = [&](std::vector<std::string> words) {
    words.insert(words.end(), small.begin(), small.end());
    testing::internal::CaptureStdout();
    const int code = run(words);
    const std::string text = testing::internal::GetCapturedStdout();
    EXPECT_EQ(code, 0);
    return code == 0 ? parse_json(text, words[0]) : Json::object();
  };
  const Json tuned = output({"tune", "batch", path("run.json"), "--steps", "1"});
  EXPECT_EQ(tuned.at("largest_batch_size").as_integer(), 5);
  EXPECT_EQ(tuned.at("tried").at(0).at("unit").as_string(), "tokens/s");
  const Json summary = output({"plan", path("run.json")});
  EXPECT_EQ(summary.at("memory").at("largest_batch_size").as_integer(), 5);
}

TEST_F(TextTraining, PlacesThatDoNotCountHaveTheLabelOfTheData) {
  put("a.txt", std::string(300, 'a'));
  put_config("run.json", R"({"type": "text", "train": [")" + path("a.txt") + R"("], "length": 16})", 1);
  const auto code = [&](const std::string& label) {
    return run({"train", path("run.json"), "--dry-run", "--set",
                R"(loss={"type": "cross_entropy", "ignore_index": )" + label + "}"});
  };
  EXPECT_EQ(code("-100"), 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(code("3"), 2);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("/loss/ignore_index: 3"), std::string::npos);
}

TEST_F(TextTraining, PairsLeftOutAreNoFaultOfTheData) {
  put("pairs.tsv", "a\tb\nab\tba\n" + std::string(40, 'a') + "\tb\n");
  put_config("run.json",
             R"({"type": "parallel_text", "train": [")" + path("pairs.tsv") + R"("], "longest": 8, "on_long": "skip"})",
             1);
  testing::internal::CaptureStdout();
  const int code = run({"data", "verify", path("run.json"), "--json"});
  const Json found = parse_json(testing::internal::GetCapturedStdout(), "verify");
  EXPECT_EQ(code, 0);
  EXPECT_EQ(found.at("train").at("warnings").as_integer(), 1);
  EXPECT_NE(found.at("train").at("first_warnings").at(0).as_string().find("41 ids"), std::string::npos);
}

TEST_F(TextTraining, BadDataEndsWithCodeThree) {
  put("a.txt", "good\n\xff bad\n");
  put_config("run.json", R"({"type": "text", "train": [")" + path("a.txt") + R"("]})", 1);
  EXPECT_EQ(run({"train", path("run.json"), "--out", path("out")}), 3);
  put("a.txt", "");
  EXPECT_EQ(run({"train", path("run.json"), "--out", path("out")}), 3);
  put("a.txt", "fine");
  put("other.txt", "a\nb\n");
  put_config("run.json",
             R"({"type": "parallel_text", "train": [")" + path("a.txt") + R"(", ")" + path("other.txt") + R"("]})", 1);
  EXPECT_EQ(run({"train", path("run.json"), "--out", path("out")}), 3);
}

}  // namespace
}  // namespace hearth::text_training_test
