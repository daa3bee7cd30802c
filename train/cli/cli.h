// SPDX-License-Identifier: Apache-2.0
// The program `hearth`, callable from a program of one's own: register models, data sets or optimizers first, and they
// are known to every command.
#pragma once

#include "train/cli/arguments.h"

namespace hearth::train {

/// Runs the command line and returns the exit code: 0 done, 2 usage or config, 3 data or file, 4 device or memory,
/// 5 diverged, 70 internal, 128 + n ended by signal n after a checkpoint. Messages go to stderr, results to stdout.
int run_cli(int argc, char** argv);

/// Every command, in the order of the help.
const std::vector<CommandSpec>& commands();

// One function a command; see the table in cli.cpp.
int train_command(const Arguments& arguments);
int eval_command(const Arguments& arguments);
int predict_command(const Arguments& arguments);
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
