// SPDX-License-Identifier: Apache-2.0
// Files of weights, and commands that read them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/io/safetensors.h"
#include "models/transformer/bert.h"
#include "models/weights/weights.h"
#include "tests/support/temp_dir.h"
#include "train/cli/cli.h"

namespace hearth::test {

class WeightsCommand : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  void put(const std::string& name, const std::string& text) const {
    (void)folder_.write(name, {text.begin(), text.end()});
  }
  int run(std::vector<std::string> words) const {
    words.insert(words.begin(), "hearth");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStderr();
    const int code = train::run_cli(static_cast<int>(argv.size()), argv.data());
    message_ = testing::internal::GetCapturedStderr();
    return code;
  }
  /// A small BERT for masked sequences as transformers would save it, in parts behind an index if wanted.
  void put_bert(bool in_parts) const {
    models::Bert network({.vocabulary = 30, .context = 16, .layers = 1, .heads = 2, .width = 8});
    nn::initialize(network, 7);
    models::WeightSet ours;
    for (const NamedTensor& named : network.parameters()) ours.weights.push_back({named.name, named.tensor->clone()});
    models::NameReport report;
    const models::WeightSet theirs = models::from_hearth(ours, models::WeightFormat::hf_bert, report);
    std::vector<SafetensorsEntry> parts[2];
    std::string map;
    for (std::size_t i = 0; i < theirs.weights.size(); ++i) {
      const models::Weight& weight = theirs.weights[i];
      const int part = in_parts && i % 3 == 0 ? 1 : 0;
      parts[part].push_back({weight.name, DType::f32, weight.value.shape(),
                             std::span<const std::byte>(weight.value.bytes(), weight.value.byte_size())});
      map += (map.empty() ? "\"" : ", \"") + weight.name + "\": \"part" + std::to_string(part) + ".safetensors\"";
    }
    if (!in_parts) return write_plain_safetensors(path("bert.safetensors"), parts[0], {{"format", "pt"}});
    for (int part = 0; part < 2; ++part)
      write_plain_safetensors(path("part" + std::to_string(part) + ".safetensors"), parts[part], {{"format", "pt"}});
    put("model.safetensors.index.json", "{\"weight_map\": {" + map + "}}");
  }
  std::string config(const std::string& weights) const {
    put("text.txt", std::string(400, 'a') + "bcdefgh");
    put("run.json", R"({"device": "cpu", "model": {"type": "bert", "layers": 1, "heads": 2, "width": 8, "context": 16,
        "vocabulary": 30}, "data": {"type": "text", "train": [")" +
                        path("text.txt") +
                        R"("], "length": 16, "mask_probability": 0.2, "tokenizer": {"type": "characters"}},
        "optimizer": {"type": "sgd", "lr": 0.001}, "train": {"batch_size": 4, "steps": 1, "ema": 0.9},
        "weights": )" + weights +
                        "}");
    return path("run.json");
  }

  TempDir folder_;
  mutable std::string message_;
};

}  // namespace hearth::test
