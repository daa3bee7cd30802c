// SPDX-License-Identifier: Apache-2.0
// A run configuration with every kind of field, described the way the modules describe theirs.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"

namespace config_example {

using hearth::Fields;
using hearth::Json;
using hearth::Registry;

enum class Stem { imagenet, small };

struct SgdOptions {
  double lr = 0.1;
  double momentum = 0;
  bool nesterov = false;
};
inline void describe(Fields<SgdOptions>& f) {
  f.number("lr", &SgdOptions::lr, {.above = 0}, "Learning rate.");
  f.number("momentum", &SgdOptions::momentum, {.min = 0, .below = 1}, "Share of the last step that is kept.");
  f.boolean("nesterov", &SgdOptions::nesterov, "Looks ahead along the momentum.");
  f.rule([](const SgdOptions& o) { return o.nesterov && o.momentum == 0 ? "nesterov needs momentum" : ""; });
}

struct AdamwOptions {
  float lr = 1e-3f;
  float weight_decay = 0.01f;
};
inline void describe(Fields<AdamwOptions>& f) {
  f.number("lr", &AdamwOptions::lr, {.above = 0}, "Learning rate.");
  f.number("weight_decay", &AdamwOptions::weight_decay, {.min = 0}, "Decoupled weight decay | a step.");
}

/// What an optimizer is, in this example: a text that tells how it was made.
using Optimizers = Registry<std::string(int parameters)>;
inline Optimizers& optimizers() {
  static Optimizers registry("optimizer", "Update rules.", [](Optimizers& r) {
    r.add<SgdOptions>("sgd", "Stochastic gradient descent.", [](const SgdOptions& o, int parameters) {
      return hearth::join_text("sgd ", o.lr, " ", o.momentum, " for ", parameters);
    });
    r.add<AdamwOptions>("adamw", "Adam with decoupled decay.", [](const AdamwOptions& o, int parameters) {
      return hearth::join_text("adamw ", o.lr, " for ", parameters);
    });
  });
  return registry;
}

struct ConstantOptions {
  int warmup = 0;
};
inline void describe(Fields<ConstantOptions>& f) {
  f.integer("warmup", &ConstantOptions::warmup, {.min = 0}, "Steps of linear warm-up.");
}
using Schedules = Registry<int()>;
inline Schedules& schedules() {
  static Schedules registry("schedule", "Learning rates over time.", [](Schedules& r) {
    r.add<ConstantOptions>("constant", "No change.", [](const ConstantOptions& o) { return o.warmup; });
  });
  return registry;
}

struct CropOptions {
  std::int64_t size = 32;
};
inline void describe(Fields<CropOptions>& f) { f.integer("size", &CropOptions::size, {.min = 1}, "Side in pixels."); }

/// A registry one of whose types holds another component of the same registry.
using Transforms = Registry<int()>;

struct MaybeOptions {
  double probability = 0.5;
  Transforms::Component inner;
};
void describe(Fields<MaybeOptions>& f);

inline Transforms& transforms() {
  static Transforms registry("transform", "Changes of an image.", [](Transforms& r) {
    r.add<hearth::NoOptions>("flip", "Mirrors.", [](const hearth::NoOptions&) { return 1; });
    r.add<CropOptions>("crop", "Cuts out a square.", [](const CropOptions& o) { return static_cast<int>(o.size); });
    r.add<MaybeOptions>("maybe", "Applies another at random.", [](const MaybeOptions& o) { return o.inner.make(); });
  });
  return registry;
}
inline void describe(Fields<MaybeOptions>& f) {
  f.number("probability", &MaybeOptions::probability, {.min = 0, .max = 1}, "How often.");
  f.component("inner", &MaybeOptions::inner, transforms(), "What is applied.").required();
}

struct TrainOptions {
  int batch_size = 0;
  float label_smoothing = 0;
  std::optional<int> epochs{};
  std::optional<std::int64_t> steps{};
};
inline void describe(Fields<TrainOptions>& f) {
  f.integer("batch_size", &TrainOptions::batch_size, {.min = 1}, "Samples a step.").required();
  f.number("label_smoothing", &TrainOptions::label_smoothing, {.min = 0, .below = 1}, "Share given to other classes.");
  f.integer("epochs", &TrainOptions::epochs, {.min = 1}, "Passes over the data.");
  f.integer("steps", &TrainOptions::steps, {.min = 1}, "Steps in all.");
  f.rule([](const TrainOptions& o) { return o.epochs && o.steps ? "give epochs or steps, not both" : ""; });
}

struct RunConfig {
  std::string name = "run";
  std::uint64_t seed = 1;
  std::string device = "auto";
  Stem stem = Stem::imagenet;
  double loss_scale = 0;
  std::array<double, 2> betas{0.9, 0.999};
  std::vector<std::int64_t> milestones;
  std::vector<std::string> tags;
  std::vector<Transforms::Component> transforms;
  Optimizers::Component optimizer;
  Schedules::Component schedule = schedules().parse(Json::object().set("type", "constant"));
  TrainOptions train{.label_smoothing = 0.25f};
  bool deterministic = false;
};
inline void describe(Fields<RunConfig>& f) {
  f.text("name", &RunConfig::name, "Name of the run.");
  f.integer("seed", &RunConfig::seed, {.min = 0}, "Seed of everything random.");
  f.choice("device", &RunConfig::device, {"auto", "cpu", "cuda"}, "Where it runs.");
  f.choice("stem", &RunConfig::stem, {{"imagenet", Stem::imagenet}, {"small", Stem::small}}, "First layers.");
  f.number("loss_scale", &RunConfig::loss_scale, {.min = 1, .words = {{"dynamic", 0}}}, "Factor of the loss.");
  f.number("betas", &RunConfig::betas, {.min = 0, .below = 1}, "Decay of the moments.");
  f.integer("milestones", &RunConfig::milestones, {.above = 0, .max_items = 3}, "Epochs at which the rate drops.");
  f.text("tags", &RunConfig::tags, "Free words.");
  f.component("transforms", &RunConfig::transforms, transforms(), "What is done to each image.");
  f.component("optimizer", &RunConfig::optimizer, optimizers(), "How weights are updated.").required();
  f.component("schedule", &RunConfig::schedule, schedules(), "The learning rate over time.");
  f.object("train", &RunConfig::train, "The training loop.").required();
  f.boolean("deterministic", &RunConfig::deterministic, "Same bits on every run.");
}

inline const char* const example_run = R"({
  "$schema": "schema.json", "comment": "an example",
  "name": "cifar", "seed": 7, "device": "cuda", "stem": "small", "loss_scale": "dynamic",
  "betas": [0.8, 0.99], "milestones": [10, 2e1], "tags": ["a", "b"],
  "transforms": [{"type": "flip"}, {"type": "maybe", "inner": {"type": "crop"}}],
  "optimizer": {"type": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": true},
  "train": {"batch_size": 128, "label_smoothing": 0.1, "epochs": 30}
})";

}  // namespace config_example
