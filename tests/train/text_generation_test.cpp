// SPDX-License-Identifier: Apache-2.0
// Sequences written by trained runs, by the commands that users have.
#include <gtest/gtest.h>

#include "core/device.h"
#include "core/io/file.h"
#include "core/io/json_text.h"
#include "core/random.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"

namespace hearth::train::text_generation_test {
namespace {

using test::contains;
using test::ProgramResult;

class TextGeneration : public testing::Test {
 protected:
  static ProgramResult hearth(std::vector<std::string> words) {
    words.insert(words.begin(), test::hearth_program());
    return test::run_program(std::move(words), folder().path());
  }
  static void write(const std::string& name, const std::string& text) { write_file_synced(folder() / name, text); }
  static test::TempDir& folder() {
    static test::TempDir one;
    return one;
  }

  static void SetUpTestSuite() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "abcde";
    write("a.txt", text);
    write("gpt.json", R"({"device": "cpu", "model": {"type": "gpt", "layers": 1, "heads": 2, "width": 16, "dropout": 0},
      "data": {"type": "text", "train": ["a.txt"], "length": 16, "valid_fraction": 0.1},
      "optimizer": {"type": "adamw", "lr": 0.02}, "train": {"batch_size": 8, "epochs": 4},
      "log": {"report": false}})");
    write("pairs.tsv", pairs(600, 1));
    // The first source has a second translation, which the model cannot know.
    write("test.tsv", pairs(20, 2) + "a b c\tA B C\na b c\tX X X\n");
    write("sources.txt", "a b c\n\nd d e a\r\nb\n");
    write("g2p.json",
          R"({"device": "cpu", "model": {"type": "transformer", "layers": 1, "decoder_layers": 1, "heads": 2,
      "width": 32, "hidden": 64, "dropout": 0},
      "data": {"type": "parallel_text", "train": ["pairs.tsv"], "test": ["test.tsv"], "multiple": 1, "longest": 8,
        "tokenizer": {"type": "words"}, "source_tokenizer": {"type": "words"}},
      "optimizer": {"type": "adamw", "lr": 0.01}, "schedule": {"type": "cosine", "warmup_steps": 20},
      "train": {"batch_size": 32, "epochs": 12},
      "eval": {"metric": "error_rate"}, "log": {"report": false}})");
    for (const char* config : {"gpt.json", "g2p.json"}) {
      const ProgramResult trained = hearth({"train", config});
      ASSERT_EQ(trained.exit_code, 0) << trained.err;
    }
  }
  /// Lines of one to four letters, and the same in capitals.
  static std::string pairs(int count, std::uint64_t seed) {
    std::string lines;
    Random random(seed, 0);
    for (int i = 0; i < count; ++i) {
      std::string source, target;
      for (std::uint64_t j = 0, length = 1 + random.below(4); j < length; ++j) {
        const auto letter = static_cast<char>(random.below(5));
        (source += j > 0 ? " " : "") += static_cast<char>('a' + letter);
        (target += j > 0 ? " " : "") += static_cast<char>('A' + letter);
      }
      lines += source + "\t" + target + "\n";
    }
    return lines;
  }

  static void expect_refused(std::vector<std::string> words, int exit_code, const std::vector<std::string>& parts) {
    words.insert(words.begin(), "predict");
    const ProgramResult result = hearth(std::move(words));
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_EQ(result.out, "");
    for (const std::string& part : parts) EXPECT_PRED2(contains, result.last_error_line(), part);
  }
};

TEST_F(TextGeneration, APromptIsWrittenOn) {
  const ProgramResult result = hearth({"predict", "runs/gpt", "--prompt", "cdeab", "--greedy", "--max-tokens", "50"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::string expected = "cdeab";
  for (int i = 0; i < 10; ++i) expected += "cdeab";
  EXPECT_EQ(result.out, expected + "\n") << "longer than the 16 ids that the model sees at once";
}

TEST_F(TextGeneration, ACudaDeviceWritesTheSame) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  for (std::vector<std::string> words : std::vector<std::vector<std::string>>{
           {"predict", "runs/gpt", "--prompt", "cdeab", "--temperature", "1", "--max-tokens", "20"},
           {"predict", "runs/g2p", "sources.txt"}}) {
    const ProgramResult here = hearth(words);
    words.insert(words.end(), {"--set", "device=cuda"});
    const ProgramResult there = hearth(words);
    EXPECT_EQ(there.exit_code, 0) << there.err;
    EXPECT_EQ(there.out, here.out);
  }
}

TEST_F(TextGeneration, PromptsBecomeJsonLines) {
  const ProgramResult result = hearth({"predict", "runs/gpt", "--prompt", "ab", "--prompt", "e", "--max-tokens", "3",
                                       "--temperature", "0.1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::size_t end = result.out.find('\n');
  const Json first = parse_json(result.out.substr(0, end), "stdout"),
             second = parse_json(result.out.substr(end + 1), "stdout");
  EXPECT_EQ(first.at("prompt").as_string(), "ab");
  EXPECT_EQ(first.at("text").as_string(), "cde");
  EXPECT_EQ(first.at("tokens").as_integer(), 3);
  EXPECT_FALSE(first.at("ended").as_boolean());
  EXPECT_EQ(second.at("text").as_string(), "abc");
}

TEST_F(TextGeneration, TheSeedDecidesWhatIsDrawn) {
  const auto text = [](const std::string& seed) {
    std::vector<std::string> words = {"predict", "runs/gpt", "--temperature", "20", "--seed", seed};
    for (int i = 0; i < 8; ++i) words.insert(words.end(), {"--prompt", "a"});
    return hearth(words).out;
  };
  const std::string first = text("1");
  EXPECT_GT(first.size(), 32u);
  EXPECT_EQ(text("1"), first);
  EXPECT_NE(text("2"), first);
}

TEST_F(TextGeneration, LinesAreTranslated) {
  for (const char* beam : {"1", "4"}) {
    const ProgramResult result = hearth({"predict", "runs/g2p", "sources.txt", "--beam", beam});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "A B C\n\nD D E A\nB\n");
  }
  const ProgramResult result = hearth({"predict", "runs/g2p", "sources.txt", "--json", "--length-penalty", "0"});
  const Json first = parse_json(result.out.substr(0, result.out.find('\n')), "stdout");
  EXPECT_EQ(first.at("input").as_string(), "a b c");
  EXPECT_EQ(first.at("text").as_string(), "A B C");
  EXPECT_TRUE(first.at("ended").as_boolean());
  EXPECT_LT(first.at("score").as_number(), 0);
  EXPECT_GT(first.at("score").as_number(), -1);
  EXPECT_EQ(hearth({"predict", "runs/g2p", "sources.txt", "--max-tokens", "2"}).out, "A B\n\nD D\nB\n");
}

TEST_F(TextGeneration, TranslationsAreEvaluated) {
  const auto evaluated = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"eval", "runs/g2p", "--json"});
    const ProgramResult result = hearth(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return parse_json(result.out, "stdout");
  };
  const Json all = evaluated({});
  EXPECT_EQ(all.at("error_rate").as_number(), 0) << "the second reference of a source is not counted against it";
  EXPECT_EQ(all.at("sequence_error_rate").as_number(), 0);
  EXPECT_GT(all.at("perplexity").as_number(), 1.1) << "but it is in the loss";
  EXPECT_LE(all.at("decoded").as_integer(), 21);
  EXPECT_EQ(evaluated({"--limit", "1", "--beam", "1"}).at("decoded").as_integer(), 1);
  const Json cut = evaluated({"--set", "eval.metric=bleu"});
  EXPECT_EQ(cut.at("decoded").as_integer(), 22);
  EXPECT_GT(cut.at("bleu").as_number(), 80);
  EXPECT_LT(cut.at("bleu").as_number(), 100);
  EXPECT_EQ(evaluated({"--set", "eval.metric=none"}).find("decoded"), nullptr);
  const ProgramResult told = hearth({"eval", "runs/g2p"});
  EXPECT_PRED2(contains, told.err, "error rate 0.00 %, wrong 0.00 %");
  EXPECT_EQ(hearth({"eval", "runs/gpt", "--beam", "2"}).exit_code, 2);
  EXPECT_EQ(hearth({"eval", "runs/g2p", "--set", "eval.metric=none", "--limit", "2"}).exit_code, 2);
}

TEST_F(TextGeneration, EvaluationsOfATrainingTranslate) {
  const auto evaluations = [](const std::string& run) {
    std::vector<Json> records;
    const std::string text = read_text(folder() / run / "metrics.jsonl");
    for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
      Json record = parse_json(text.substr(begin, text.find('\n', begin) - begin), run);
      if (record.find("unit") != nullptr && record.at("split").as_string() == "test")
        records.push_back(std::move(record));
    }
    return records;
  };
  const std::vector<Json> rates = evaluations("runs/g2p");
  ASSERT_EQ(rates.size(), 12U);
  EXPECT_GT(rates.front().at("error_rate").as_number(), 0.2);
  EXPECT_EQ(rates.back().at("error_rate").as_number(), 0);
  const std::vector<std::string> shorter{"train", "g2p.json",         "--set", "train.epochs=1",
                                         "--set", "eval.metric=bleu", "--out"};
  const auto run = [&](const std::string& name, const std::string& pairs_translated) {
    std::vector<std::string> words = shorter;
    words.insert(words.end(), {name, "--set", "eval.translate=" + pairs_translated});
    const ProgramResult result = hearth(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(contains(result.err, "BLEU"), pairs_translated != "0") << result.err;
    return evaluations(name).back();
  };
  const Json some = run("some", "3");
  EXPECT_EQ(some.at("decoded").as_integer(), 3);
  EXPECT_GE(some.at("bleu").as_number(), 0);
  EXPECT_GT(some.at("chrf").as_number(), 0);
  const Json none = run("none", "0");
  EXPECT_EQ(none.find("decoded"), nullptr);
  EXPECT_EQ(none.at("loss").as_number(), some.at("loss").as_number());
}

TEST_F(TextGeneration, BadLinesEndWithCodeThree) {
  write("bytes.txt", "a b\nc \xff\n");
  expect_refused({"runs/g2p", "bytes.txt"}, 3, {"bytes.txt:2"});
  write("long.txt", "a b\na a a a a a a a\n");
  expect_refused({"runs/g2p", "long.txt"}, 3, {"long.txt:2", "9 ids", "at most 8"});
  write("empty.txt", "");
  expect_refused({"runs/g2p", "empty.txt"}, 3, {"empty.txt"});
  expect_refused({"runs/g2p", "absent.txt"}, 3, {"absent.txt"});
}

TEST_F(TextGeneration, WhatDoesNotFitIsRefusedWithARemedy) {
  expect_refused({"runs/gpt"}, 2, {"--prompt TEXT"});
  expect_refused({"runs/gpt", "a.txt"}, 2, {"--prompt TEXT"});
  expect_refused({"runs/gpt", "--prompt", "a", "--top", "3"}, 2, {"--top ", "a token stream"});
  expect_refused({"runs/gpt", "--prompt", "a", "--greedy", "--top-k", "3"}, 2, {"--greedy", "--top-k"});
  expect_refused({"runs/gpt", "--prompt", "a", "--temperature", "warm"}, 2, {"--temperature warm", "number"});
  expect_refused({"runs/gpt", "--prompt", "a", "--temperature", "-1"}, 2, {"temperature of -1"});
  expect_refused({"runs/gpt", "--prompt", "a", "--top-p", "0"}, 2, {"top_p 0"});
  expect_refused({"runs/gpt", "--prompt", "a", "--max-tokens", "0"}, 2, {"--max-tokens 0"});
  expect_refused({"runs/gpt", "--prompt", "a", "--seed", "-4"}, 2, {"--seed -4"});
  expect_refused({"runs/g2p"}, 2, {"FILE"});
  expect_refused({"runs/g2p", "sources.txt", "--greedy"}, 2, {"--greedy ", "FILE"});
  expect_refused({"runs/g2p", "sources.txt", "--beam", "0"}, 2, {"--beam 0"});
  expect_refused({"runs/g2p", "sources.txt", "--beam", "65537"}, 2, {"--beam 65537", "at most 65536"});
  expect_refused({"runs/g2p", "sources.txt", "--beam", "4611686018427387904"}, 2, {"at most 65536"});
  expect_refused({"runs/g2p", "sources.txt", "--length-penalty", "-1"}, 2, {"length penalty of -1"});
  expect_refused({"runs/gpt", "--prompt", "a", "--beam", "2"}, 2, {"--beam ", "--prompt"});
  expect_refused({"runs/gpt", "--promt", "a"}, 2, {"--promt", "--prompt"});
  expect_refused({"runs/gpt", "--prompt", "a\xff"}, 3, {"prompt 1:", "UTF-8"});
  expect_refused({"runs/gpt", "--prompt", "a", "--prompt", "a\xff"}, 3, {"prompt 2:", "UTF-8"});
}

}  // namespace
}  // namespace hearth::train::text_generation_test
