// SPDX-License-Identifier: Apache-2.0
// The table of commands, and the function of each.
#pragma once

#include "train/cli/arguments.h"

namespace hearth::train {

/// Every command, in the order of the help.
const std::vector<CommandSpec>& commands();

/// An option that several commands have.
OptionSpec set_option();

// What each command takes and calls.
CommandSpec train_spec();
CommandSpec launch_spec();
CommandSpec eval_spec();
CommandSpec predict_spec();
CommandSpec status_spec();
CommandSpec trace_spec();
CommandSpec report_spec();
CommandSpec compare_spec();
CommandSpec schema_spec();
CommandSpec config_spec();
CommandSpec plan_spec();
CommandSpec summary_spec();
CommandSpec bench_spec();
CommandSpec tune_spec();
CommandSpec data_spec();
CommandSpec weights_spec();
CommandSpec devices_spec();
CommandSpec doctor_spec();
CommandSpec completion_spec();
CommandSpec manual_spec();

}  // namespace hearth::train
