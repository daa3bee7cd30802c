// SPDX-License-Identifier: Apache-2.0
// Optimizers and schedules by name, for run configurations.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/config/config.h"
#include "optim/adam.h"
#include "optim/layerwise.h"
#include "optim/schedule.h"
#include "optim/sgd.h"

namespace hearth::optim {

using Optimizers = Registry<std::unique_ptr<Optimizer>(FlatParameters&)>;
/// "sgd", "adam", "adamw", "lars", "lamb", and what the program adds.
HEARTH_API Optimizers& optimizers();
/// How many values an optimizer keeps of each weight; 0 for one that the program added, which may keep any number.
HEARTH_API std::int64_t moments_of(const Optimizers::Component& optimizer);
/// The options of an "sgd"; nothing for others.
HEARTH_API std::optional<SgdOptions> sgd_options(const Optimizers::Component& optimizer);

using Schedules = Registry<std::unique_ptr<Schedule>(const ScheduleInfo&)>;
/// "constant", "step", "cosine", "polynomial", "inverse_sqrt", and what the program adds.
HEARTH_API Schedules& schedules();

/// Ways to pick parameters that differ from the rest: "by_name".
using ParameterGroups = Registry<ParameterGroup()>;
HEARTH_API ParameterGroups& parameter_groups();

// The fields of the option structs, where argument-dependent lookup finds them.
HEARTH_API void describe(Fields<ParameterGroup>& fields);
HEARTH_API void describe(Fields<LayerDecay>& fields);
HEARTH_API void describe(Fields<ConstantOptions>& fields);
HEARTH_API void describe(Fields<StepOptions>& fields);
HEARTH_API void describe(Fields<CosineOptions>& fields);
HEARTH_API void describe(Fields<PolynomialOptions>& fields);
HEARTH_API void describe(Fields<InverseSqrtOptions>& fields);

}  // namespace hearth::optim
