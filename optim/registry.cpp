// SPDX-License-Identifier: Apache-2.0
// The configuration fields of optimizers and schedules.
#include "optim/registry.h"

#include <utility>
#include <vector>

namespace hearth::optim {

namespace {

/// Options as a configuration spells them: groups are components of their own.
template <class Options>
struct Configured : Options {
  std::vector<ParameterGroups::Component> group_components = {};

  Options options() const {
    Options result = *this;
    for (const auto& component : group_components) result.groups.push_back(component.make());
    return result;
  }
};

struct SgdConfig : Configured<SgdOptions> {};
/// A configuration always has a number for the decay.
template <AdamDecay kind>
struct AdamOf : Configured<AdamOptions> {
  double weight_decay = default_weight_decay(kind);

  AdamOptions options() const {
    AdamOptions result = Configured::options();
    result.decay = kind;
    result.weight_decay = weight_decay;
    return result;
  }
};
struct AdamConfig : AdamOf<AdamDecay::coupled> {};
struct AdamWConfig : AdamOf<AdamDecay::decoupled> {};
struct LarsConfig : Configured<LarsOptions> {};
struct LambConfig : Configured<LambOptions> {};

template <class Config>
void describe_common(Fields<Config>& f) {
  f.number("weight_decay", &Config::weight_decay, {.min = 0}, "Pull of the weights towards zero.");
  f.boolean("decay_norm_bias", &Config::decay_norm_bias, "Whether norms and biases (rank 0 and 1) decay too.");
  f.component("groups", &Config::group_components, parameter_groups(),
              "Parameters that differ; the first match applies.");
  f.object("layer_decay", &Config::layer_decay, "Learning rates that fall towards the bottom of the model.");
}

template <class Config>
void describe_adapt(Fields<Config>& f) {
  f.choice("adapt", &Config::adapt, {{"matrices", Adapt::matrices}, {"decayed", Adapt::decayed}, {"all", Adapt::all}},
           "Parameters whose steps the norms set: of rank 2 and more; whose weight decay is not 0; all.");
}

template <class Config>
void describe_adam(Fields<Config>& f) {
  f.number("lr", &Config::lr, {.min = 0}, "Learning rate; the schedule multiplies it.");
  f.number("beta1", &Config::beta1, {.min = 0, .below = 1}, "Memory of the mean gradient.");
  f.number("beta2", &Config::beta2, {.min = 0, .below = 1}, "Memory of the mean squared gradient.");
  f.number("eps", &Config::eps, {.above = 0}, "Added to the root of the mean squared gradient.");
  describe_common(f);
}

void describe(Fields<SgdConfig>& f) {
  f.number("lr", &SgdConfig::lr, {.min = 0}, "Learning rate; the schedule multiplies it.");
  f.number("momentum", &SgdConfig::momentum, {.min = 0, .below = 1}, "Share of the last step that is kept.");
  f.number("dampening", &SgdConfig::dampening, {.min = 0, .max = 1}, "Share of the gradient kept out of the momentum.");
  f.boolean("nesterov", &SgdConfig::nesterov, "Looks ahead along the momentum.");
  describe_common(f);
  f.rule([](const SgdConfig& o) {
    return o.nesterov && (o.momentum == 0 || o.dampening != 0) ? "nesterov needs momentum above 0 and dampening 0" : "";
  });
}

void describe(Fields<AdamConfig>& f) { describe_adam(f); }
void describe(Fields<AdamWConfig>& f) { describe_adam(f); }
void describe(Fields<LambConfig>& f) {
  describe_adam(f);
  describe_adapt(f);
  f.number("max_grad_norm", &LambConfig::max_grad_norm, {.above = 0},
           "As in NVIDIA's LAMB: divides all gradients by their global norm over this number, if the norm is larger. "
           "null: off.");
  f.number("norm_min", &LambConfig::norm_min, {.min = 0}, "Norms of weights below this count as this.");
  f.number("norm_max", &LambConfig::norm_max, {.above = 0}, "Norms of weights above this count as this. null: none.");
  f.boolean("trust_clip", &LambConfig::trust_clip, "Whether the ratio of norms is at most 1, as timm's trust_clip.");
  f.rule([](const LambConfig& o) {
    return o.norm_max && *o.norm_max < o.norm_min ? "norm_min is at most norm_max; exchange the two" : "";
  });
}

void describe(Fields<LarsConfig>& f) {
  f.number("lr", &LarsConfig::lr, {.min = 0}, "Learning rate; the schedule multiplies it.");
  f.number("momentum", &LarsConfig::momentum, {.min = 0, .below = 1}, "Share of the last step that is kept; above 0.");
  f.number("trust", &LarsConfig::trust, {.above = 0}, "Step in proportion to the norm of the weights.");
  f.number("eps", &LarsConfig::eps, {.min = 0}, "Added to the norm of the gradient.");
  f.boolean("clip_trust", &LarsConfig::clip_trust,
            "As LARC: the norms give the learning rate itself, where that is below `lr`.");
  f.boolean("lr_in_momentum", &LarsConfig::lr_in_momentum,
            "As in MLPerf: the momentum holds steps, learning rate included, which later rates leave as they are.");
  describe_common(f);
  describe_adapt(f);
  f.rule([](const LarsConfig& o) {
    return o.momentum == 0 ? "lars needs momentum above 0; 0.9 is usual, and sgd goes without" : "";
  });
}

template <class Options>
void describe_warmup(Fields<Options>& f) {
  f.integer("warmup_steps", &Options::warmup_steps, {.min = 0}, "Steps of linear warm-up.");
  f.number("warmup_epochs", &Options::warmup_epochs, {.min = 0}, "Epochs of linear warm-up, added to the steps.");
  f.number("warmup_start", &Options::warmup_start, {.min = 0, .max = 1}, "Factor that the warm-up rises from.");
}

template <class Options>
void describe_final_factor(Fields<Options>& f) {
  f.number("final_factor", &Options::final_factor, {.min = 0}, "Factor at the end of the run.");
}

template <class Made, class Config>
void add_optimizer(Optimizers& optimizers, const char* name, const char* doc) {
  optimizers.add<Config>(name, doc, [](const Config& config, FlatParameters& parameters) {
    return std::make_unique<Made>(parameters, config.options());
  });
}

template <class Made, class Options>
void add_schedule(Schedules& schedules, const char* name, const char* doc) {
  schedules.add<Options>(name, doc, [](const Options& options, const ScheduleInfo& info) {
    return std::make_unique<Made>(options, info);
  });
}

}  // namespace

void describe(Fields<ParameterGroup>& f) {
  f.text("match", &ParameterGroup::match, {.min_items = 1}, "Patterns of full names; * and ? are wildcards.")
      .required();
  f.number("lr_scale", &ParameterGroup::lr_scale, {.min = 0}, "Factor on the learning rate.");
  f.number("weight_decay", &ParameterGroup::weight_decay, {.min = 0}, "Instead of the optimizer's weight decay.");
  f.boolean("adapt", &ParameterGroup::adapt,
            "Whether lars and lamb set these steps by the norms. null: as their `adapt` says.");
}

void describe(Fields<LayerDecay>& f) {
  f.number("decay", &LayerDecay::decay, {.above = 0, .max = 1},
           "Factor from each layer to the one below it, on the learning rate of whatever group; 1 turns it off.");
  f.text("layers", &LayerDecay::layers, {},
         "Beginnings of parameters' names, with * and ? within a part; each one found is a layer, as with blocks.*.");
  f.rule([](const LayerDecay& o) {
    return o.decay < 1 && o.layers.empty() ? "decay needs layers, such as [\"blocks.*\", \"head\"]" : "";
  });
}

void describe(Fields<ConstantOptions>& f) { describe_warmup(f); }

void describe(Fields<StepOptions>& f) {
  f.number("milestones", &StepOptions::milestones, {.above = 0}, "Where the learning rate drops, from the start.");
  f.choice("unit", &StepOptions::unit, {{"epochs", ScheduleUnit::epochs}, {"steps", ScheduleUnit::steps}},
           "Unit of the milestones.");
  f.number("gamma", &StepOptions::gamma, {.above = 0}, "Factor at each milestone.");
  describe_warmup(f);
}

void describe(Fields<CosineOptions>& f) {
  describe_final_factor(f);
  describe_warmup(f);
}

void describe(Fields<PolynomialOptions>& f) {
  f.number("power", &PolynomialOptions::power, {.above = 0}, "Exponent; 1 is linear.");
  describe_final_factor(f);
  describe_warmup(f);
}

void describe(Fields<InverseSqrtOptions>& f) { describe_warmup(f); }

ParameterGroups& parameter_groups() {
  static ParameterGroups registry("parameter_group", "Parameters that differ from the rest.", [](ParameterGroups& r) {
    r.add<ParameterGroup>("by_name", "Picked by patterns of their full names.",
                          [](const ParameterGroup& group) { return group; });
  });
  return registry;
}

Optimizers& optimizers() {
  static Optimizers registry("optimizer", "How the weights are updated.", [](Optimizers& r) {
    add_optimizer<Sgd, SgdConfig>(r, "sgd", "Stochastic gradient descent with momentum.");
    add_optimizer<Adam, AdamConfig>(r, "adam", "Adam; weight decay is part of the gradient.");
    add_optimizer<Adam, AdamWConfig>(r, "adamw", "Adam with decoupled weight decay.");
    add_optimizer<Lars, LarsConfig>(r, "lars",
                                    "SGD with steps in proportion to each layer's norm, for very large batches.");
    add_optimizer<Lamb, LambConfig>(r, "lamb",
                                    "Adam with steps in proportion to each layer's norm, for very large batches.");
  });
  return registry;
}

std::int64_t moments_of(const Optimizers::Component& optimizer) {
  if (optimizer.options<AdamConfig>() || optimizer.options<AdamWConfig>() || optimizer.options<LambConfig>()) return 2;
  const auto* const sgd = optimizer.options<SgdConfig>();
  return (sgd && sgd->momentum > 0) || optimizer.options<LarsConfig>() ? 1 : 0;
}

std::optional<SgdOptions> sgd_options(const Optimizers::Component& optimizer) {
  const auto* const sgd = optimizer.options<SgdConfig>();
  return sgd != nullptr ? std::optional(sgd->options()) : std::nullopt;
}

Schedules& schedules() {
  static Schedules registry("schedule", "The learning rate over the run.", [](Schedules& r) {
    add_schedule<ConstantSchedule, ConstantOptions>(r, "constant", "The same learning rate throughout.");
    add_schedule<StepSchedule, StepOptions>(r, "step", "Drops by a factor at milestones.");
    add_schedule<CosineSchedule, CosineOptions>(r, "cosine", "Half a cosine wave down to the end of the run.");
    add_schedule<PolynomialSchedule, PolynomialOptions>(r, "polynomial", "A power of the steps that remain.");
    add_schedule<InverseSqrtSchedule, InverseSqrtOptions>(r, "inverse_sqrt", "Falls with the root of the step.");
  });
  return registry;
}

}  // namespace hearth::optim
