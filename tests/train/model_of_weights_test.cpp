// SPDX-License-Identifier: Apache-2.0
// Options of a model that a configuration leaves to the weights.
#include <gtest/gtest.h>

#include "core/io/file.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "train/config/run_config.h"

namespace hearth::train::model_of_weights_test {
namespace {

using test::contains;
using test::error_message;

class ModelOfWeights : public testing::Test {
 protected:
  ModelOfWeights() {
    write_file_synced(folder_ / "config.json", R"({"model_type": "bert", "num_hidden_layers": 3, "hidden_size": 24,
      "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 99, "max_position_embeddings": 32})");
  }
  LoadedConfig load(const std::string& model, const std::string& weights) const {
    const std::string text = R"({"model": )" + model + R"(, "data": {"type": "text", "train": ["a.txt"]},
      "optimizer": {"type": "adamw"}, "train": {"steps": 1}, "weights": )" +
                             weights + "}";
    return load_config(folder_.write("run.json", {text.begin(), text.end()}), {});
  }
  std::string weights(const std::string& more = "") const {
    return R"({"path": ")" + (folder_ / "model.safetensors").string() + R"(", "from": "hf-bert")" + more + "}";
  }
  test::TempDir folder_;
};

TEST_F(ModelOfWeights, WhatTheConfigurationLeavesOutIsThatOfTheWeights) {
  const LoadedConfig loaded = load(R"({"type": "bert", "dropout": 0.5, "heads": 4})", weights());
  const Json& model = loaded.resolved.at("model");
  EXPECT_EQ(model.at("layers"), Json(3));
  EXPECT_EQ(model.at("width"), Json(24));
  EXPECT_EQ(model.at("vocabulary"), Json(99));
  EXPECT_EQ(model.at("context"), Json(32));
  EXPECT_EQ(model.at("dropout"), Json(0.5));
  EXPECT_EQ(model.at("heads"), Json(4)) << "what is said stays, and is compared when the weights are loaded";
  EXPECT_PRED2(contains, loaded.of_weights, "layers 3");
  EXPECT_PRED2(contains, loaded.of_weights, ", by " + (folder_ / "config.json").string());
  EXPECT_FALSE(contains(loaded.of_weights, "heads"));
}

TEST_F(ModelOfWeights, AnotherFileCanBeNamed) {
  write_file_synced(folder_ / "other.json", R"({"model_type": "bert", "num_hidden_layers": 5})");
  const LoadedConfig loaded =
      load(R"({"type": "bert"})", weights(R"(, "config": ")" + (folder_ / "other.json").string() + R"(")"));
  EXPECT_EQ(loaded.resolved.at("model").at("layers"), Json(5));
}

TEST_F(ModelOfWeights, NothingIsTakenElsewhere) {
  for (const char* other :
       {R"({"path": "", "from": "hf-bert"})", R"({"path": "absent/model.safetensors", "from": "hf-bert"})"})
    EXPECT_EQ(load(R"({"type": "bert"})", other).of_weights, "") << other;
  EXPECT_EQ(load(R"({"type": "gpt"})", weights()).of_weights, "") << "of another type";
  // A run's own document has all keys.
  const LoadedConfig whole = load(R"({"type": "bert"})", weights());
  const test::TempDir run;
  write_file_synced(run / "config.json", to_text(whole.resolved));
  EXPECT_EQ(load_config(run / "config.json", {}).of_weights, "");
}

TEST_F(ModelOfWeights, AConfigurationThatCannotBeFollowedIsRefused) {
  write_file_synced(folder_ / "config.json", R"({"model_type": "bert", "new_attention": true})");
  EXPECT_PRED2(contains, error_message<FileError>([&] { (void)load(R"({"type": "bert"})", weights()); }),
               "new_attention");
}

}  // namespace
}  // namespace hearth::train::model_of_weights_test
