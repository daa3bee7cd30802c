// SPDX-License-Identifier: Apache-2.0
// Small sessions in any precision, and steps on images made here, one of which may hold an infinity.
#pragma once

#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "models/nn/nn.h"
#include "models/registry.h"
#include "ops/ops.h"
#include "tests/support/temp_dir.h"
#include "train/checkpoint/checkpoint.h"
#include "train/step/captured_step.h"

namespace hearth::test {

inline const std::string small_resnet = R"({"type": "resnet", "blocks": [1, 1], "stem": "small", "width": 8})";
/// For emulated devices, which take their time.
inline const std::string tiny_resnet = R"({"type": "resnet", "blocks": [1], "stem": "small", "width": 8})";
inline const std::string small_mlp = R"({"type": "mlp", "hidden": [32, 24], "dropout": 0.2})";

/// Outputs that do not depend on the images. The root of zero, which is all that "root" ever is, has no finite
/// gradient; those of "weight" and "last" are finite.
struct RootOfZero : nn::Module {
  Tensor weight = Tensor::zeros({10}), root = Tensor::zeros({10}), last = Tensor::zeros({10});

  RootOfZero() {
    parameter("weight", weight, nn::init::zeros());
    parameter("root", root, nn::init::zeros());
    parameter("last", last, nn::init::zeros());
  }
  Tensor forward(const Tensor& x) override {
    return expand(reshape(weight + sqrt(root) + last, {1, 10}), {x.dim(0), 10});
  }
};
/// As a model of configurations.
inline std::string root_of_zero() {
  static const bool added = [] {
    models::add("test_root_of_zero", [](const models::InputInfo&) { return std::make_unique<RootOfZero>(); });
    return true;
  }();
  return added ? R"({"type": "test_root_of_zero"})" : "";
}

struct PrecisionRun {
  std::string level = "O2", dtype = "f16";
  std::string device = "cpu";
  std::string model = small_resnet;
  std::string optimizer = R"({"type": "adamw", "lr": 0.005})";
  std::string precision{};  ///< further members of "precision", each after a comma
  std::string train{};      ///< of "train"
  std::string data = R"({"type": "digits"})";
  int batch_size = 16;

  std::unique_ptr<train::Session> session(const TempDir& folder, const std::vector<std::string>& overrides = {}) const {
    const std::string path = folder / "run.json";
    std::ofstream(path) << R"({"seed": 3, "device": ")" << device << R"(", "model": )" << model << R"(, "data": )"
                        << data << R"(, "optimizer": )" << optimizer << R"(, "precision": {"level": ")" << level
                        << R"(", "dtype": ")" << dtype << "\"" << precision << R"(}, "train": {"batch_size": )"
                        << batch_size << R"(, "steps": 100)" << train << "}}";
    return std::make_unique<train::Session>(train::load_config(path, overrides));
  }
};

/// 8 images of noise, the same for the same number.
inline data::Batch noise_batch(int number, bool with_infinity = false) {
  Random random(17, static_cast<std::uint64_t>(number));
  std::vector<float> pixels(8 * 8 * 8);
  for (float& pixel : pixels) pixel = static_cast<float>(random.normal());
  if (with_infinity) pixels[70] = std::numeric_limits<float>::infinity();
  std::vector<std::int64_t> labels(8);
  for (std::int64_t& label : labels) label = static_cast<std::int64_t>(random.below(10));
  data::Batch batch;
  batch.set("images", Tensor::of<float>({8, 8, 8, 1}, pixels));
  batch.set("labels", Tensor::of<std::int64_t>({8}, labels));
  batch.samples.resize(8);
  return batch;
}

/// Steps first, first + 1, ... before `end`. Step `planted` gets an infinity; step `left_out` is passed over.
template <class Step>
void take_steps(train::Session& session, int first, int end, int planted, int left_out, Step&& step) {
  for (int number = first; number < end; ++number) {
    if (number != left_out) {
      const data::Batch batch = noise_batch(number, number == planted);
      session.position.interval.samples += step(std::span(&batch, 1)).samples;
    }
    ++session.position.step;
  }
  session.read_interval();
}

}  // namespace hearth::test
