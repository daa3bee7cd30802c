// SPDX-License-Identifier: Apache-2.0
#include "train/task/text_tasks.h"

#include <gtest/gtest.h>

#include "models/nn/nn.h"
#include "models/registry.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "train/session.h"

namespace hearth::train::text_tasks_test {
namespace {

using test::contains;
using test::error_message;

constexpr const char* bert = R"({"type": "bert", "layers": 1, "heads": 2, "width": 8})";
constexpr const char* gpt = R"({"type": "gpt", "layers": 1, "heads": 2, "width": 8})";

/// Of a program's own: nobody knows in which direction it looks.
struct OwnModel : nn::Module {
  explicit OwnModel(const models::InputInfo& input) : table(input.vocabulary, 8), out(8, input.classes) {
    register_module("table", table);
    register_module("out", out);
  }
  Tensor forward(const Tensor& ids) override { return out(table(ids)); }
  nn::Embedding table;
  nn::Linear out;
};

class TextTasks : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    models::add("test_own_text_model",
                [](const models::InputInfo& input) { return std::make_unique<OwnModel>(input); });
  }
  std::string put(const std::string& name, const std::string& text) const {
    return folder_.write(name, {text.begin(), text.end()});
  }
  /// The node of a token stream, with `rest` behind its tokenizer.
  std::string stream(const std::string& rest = "") const {
    const std::string letters = put("letters.txt", std::string(400, 'a') + "bcdefgh");
    return R"({"type": "text", "train": [")" + letters + R"("], "length": 16, "tokenizer": {"type": "characters"})" +
           rest + "}";
  }
  std::unique_ptr<Session> session(const std::string& model, const std::string& data) const {
    return std::make_unique<Session>(load_config(
        put("run.json", R"({"device": "cpu", "model": )" + model + R"(, "data": )" + data +
                            R"(, "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"steps": 1, "batch_size": 4}})"),
        {}));
  }
  std::string refusal(const std::string& model, const std::string& data) const {
    return error_message<ConfigError>([&] { (void)session(model, data); });
  }

  test::TempDir folder_;
};

TEST_F(TextTasks, AModelOfBothDirectionsNeedsMaskedTokens) {
  const std::string message = refusal(bert, stream());
  EXPECT_PRED2(contains, message, "/data/mask_probability: 0 with /model/type \"bert\"");
  EXPECT_PRED2(contains, message, "give a mask_probability, as 0.15, or use the model \"gpt\"");
  EXPECT_NE(session(bert, stream(R"(, "mask_probability": 0.15)")), nullptr);
}

TEST_F(TextTasks, AModelOfEarlierTokensTakesNoMaskedOnes) {
  const std::string message = refusal(gpt, stream(R"(, "mask_probability": 0.15)"));
  EXPECT_PRED2(contains, message, "/data/mask_probability: 0.15 with /model/type \"gpt\"");
  EXPECT_PRED2(contains, message, "leave mask_probability out, or use the model \"bert\"");
  EXPECT_NE(session(gpt, stream()), nullptr);
}

TEST_F(TextTasks, EachSourceOfAMixtureIsLookedAt) {
  const std::string masked = stream(R"(, "mask_probability": 0.15)");
  const std::string mixture =
      R"({"type": "mixture", "weights": [1, 1], "sources": [)" + masked + ", " + stream() + "]}";
  EXPECT_PRED2(contains, refusal(bert, mixture), "/data/sources/1/mask_probability: 0 with");
  EXPECT_PRED2(contains, refusal(gpt, mixture), "/data/sources/0/mask_probability: 0.15 with");
}

TEST_F(TextTasks, OnlyAHeadThatScoresTokensFitsATokenStream) {
  const std::string masked = stream(R"(, "mask_probability": 0.15)");
  for (const std::string head : {"classification", "embedding"}) {
    const std::string model = R"({"type": "bert", "layers": 1, "heads": 2, "width": 8, "head": ")" + head + "\"}";
    EXPECT_PRED2(contains, refusal(model, masked),
                 "/model/head: \"" + head + "\" gives one result of a row, but each id of /data/type \"text\"");
  }
}

TEST_F(TextTasks, ModelsOfOtherDataAreNamed) {
  const std::string resnet = R"({"type": "resnet", "blocks": [1], "width": 4, "in_channels": 1})";
  const std::string lines = put("lines.tsv", "a\tb\nb\ta\na\tbb\nb\taa\n");
  const auto of_lines = [&](const std::string& type) {
    return R"({"type": ")" + type + R"(", "train": [")" + lines + R"("], "tokenizer": {"type": "characters"}})";
  };
  const auto message = [](const std::string& model, const std::string& data, const std::string& remedy) {
    return "/model/type: \"" + model + "\" is not for /data/type \"" + data + "\"; use " + remedy + ", or other data";
  };
  EXPECT_PRED2(contains, refusal(resnet, stream()), message("resnet", "text", R"("gpt" or "bert")"));
  for (const std::string model : {"resnet", "gpt", "bert"})
    EXPECT_PRED2(contains,
                 refusal(model == "resnet" ? resnet
                         : model == "gpt"  ? gpt
                                           : bert,
                         of_lines("parallel_text")),
                 message(model, "parallel_text", R"("transformer")"));
  EXPECT_PRED2(contains, refusal(gpt, of_lines("labelled_text")), message("gpt", "labelled_text", R"("bert")"));
  EXPECT_NE(session(R"({"type": "test_own_text_model"})", of_lines("labelled_text")), nullptr);
}

TEST_F(TextTasks, AModelOfImagesIsNotForTheRowsOfATable) {
  const std::string resnet = R"({"type": "resnet", "blocks": [1], "width": 4})";
  std::string rows = "a,b,kind,size\n";
  for (int i = 0; i < 12; ++i) rows += std::to_string(i) + "," + std::to_string(i % 5) + (i % 2 ? ",x,1\n" : ",y,2\n");
  const std::string file = R"({"type": "csv", "path": ")" + put("rows.csv", rows) + R"(", "target": )";
  EXPECT_PRED2(
      contains, refusal(resnet, file + "\"kind\"}"),
      "/model/type: \"resnet\" is for images, [H, W, C], but samples of /data/type \"csv\" are [3]; use \"mlp\"");
  EXPECT_PRED2(contains, refusal(resnet, file + R"("size"}, "task": {"type": "regression"})"),
               "but samples of /data/type \"csv\" are [");
}

TEST_F(TextTasks, AModelOfAProgramsOwnTakesBoth) {
  const std::string own = R"({"type": "test_own_text_model"})";
  EXPECT_NE(session(own, stream()), nullptr);
  EXPECT_NE(session(own, stream(R"(, "mask_probability": 0.15)")), nullptr);
}

}  // namespace
}  // namespace hearth::train::text_tasks_test
