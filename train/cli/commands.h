// SPDX-License-Identifier: Apache-2.0
// The table of commands, and the function of each.
#pragma once

#include "train/cli/arguments.h"

namespace hearth::train {

/// Every command, in the order of the help.
const std::vector<CommandSpec>& commands();

// One function a command; the table is in cli.cpp.
int train_command(const Arguments& arguments);
int launch_command(const Arguments& arguments);
int eval_command(const Arguments& arguments);
int predict_command(const Arguments& arguments);
int report_command(const Arguments& arguments);
int schema_command(const Arguments& arguments);
int config_command(const Arguments& arguments);
int summary_command(const Arguments& arguments);
int bench_command(const Arguments& arguments);
int tune_command(const Arguments& arguments);
int devices_command(const Arguments& arguments);
int doctor_command(const Arguments& arguments);
int data_command(const Arguments& arguments);
int weights_command(const Arguments& arguments);
int completion_command(const Arguments& arguments);
int manual_command(const Arguments& arguments);

}  // namespace hearth::train
