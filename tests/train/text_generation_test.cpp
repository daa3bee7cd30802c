// SPDX-License-Identifier: Apache-2.0
// Texts written by trained runs, by the commands that users have.
#include <gtest/gtest.h>

#include "hearth/core/file.h"
#include "hearth/core/json_text.h"
#include "support/error_message.h"
#include "support/run_program.h"

namespace hearth::train {
namespace {

using test::contains;
using test::ProgramResult;

class TextGeneration : public testing::Test {
 protected:
  static ProgramResult hearth(std::vector<std::string> words) {
    words.insert(words.begin(), HEARTH_PROGRAM);
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
    const ProgramResult trained = hearth({"train", "gpt.json"});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
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
  EXPECT_EQ(result.out, expected + "\n") << "longer than the 16 ids that the network sees at once";
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

TEST_F(TextGeneration, WhatDoesNotFitIsRefusedWithARemedy) {
  expect_refused({"runs/gpt"}, 2, {"--prompt TEXT"});
  expect_refused({"runs/gpt", "a.txt"}, 2, {"--prompt TEXT"});
  expect_refused({"runs/gpt", "--prompt", "a", "--top", "3"}, 2, {"--top ", "a running text"});
  expect_refused({"runs/gpt", "--prompt", "a", "--greedy", "--top-k", "3"}, 2, {"--greedy", "--top-k"});
  expect_refused({"runs/gpt", "--prompt", "a", "--temperature", "warm"}, 2, {"--temperature warm", "number"});
  expect_refused({"runs/gpt", "--prompt", "a", "--temperature", "-1"}, 2, {"temperature of -1"});
  expect_refused({"runs/gpt", "--prompt", "a", "--top-p", "0"}, 2, {"top_p 0"});
  expect_refused({"runs/gpt", "--prompt", "a", "--max-tokens", "0"}, 2, {"--max-tokens 0"});
  expect_refused({"runs/gpt", "--prompt", "a", "--seed", "-4"}, 2, {"--seed -4"});
  expect_refused({"runs/gpt", "--promt", "a"}, 2, {"--promt", "--prompt"});
  expect_refused({"runs/gpt", "--prompt", "a\xff"}, 3, {"prompt", "UTF-8"});
}

}  // namespace
}  // namespace hearth::train
