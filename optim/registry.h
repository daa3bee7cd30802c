// SPDX-License-Identifier: Apache-2.0
// Optimizers and schedules by name, for run configurations.
#pragma once

#include <memory>

#include "core/config/config.h"
#include "optim/adam.h"
#include "optim/layerwise.h"
#include "optim/schedule.h"
#include "optim/sgd.h"

namespace hearth::optim {

using Optimizers = Registry<std::unique_ptr<Optimizer>(FlatParameters&)>;
/// "sgd", "adam", "adamw", "lars", "lamb", and what the program adds.
Optimizers& optimizers();

using Schedules = Registry<std::unique_ptr<Schedule>(const ScheduleInfo&)>;
/// "constant", "step", "cosine", "polynomial", "inverse_sqrt", and what the program adds.
Schedules& schedules();

/// Ways to pick parameters that differ from the rest: "by_name".
using ParameterGroups = Registry<ParameterGroup()>;
ParameterGroups& parameter_groups();

// The fields of the option structs, where argument-dependent lookup finds them.
void describe(Fields<ParameterGroup>& fields);
void describe(Fields<LayerDecay>& fields);
void describe(Fields<ConstantOptions>& fields);
void describe(Fields<StepOptions>& fields);
void describe(Fields<CosineOptions>& fields);
void describe(Fields<PolynomialOptions>& fields);
void describe(Fields<InverseSqrtOptions>& fields);

}  // namespace hearth::optim
