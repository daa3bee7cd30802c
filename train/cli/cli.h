// SPDX-License-Identifier: Apache-2.0
// The program `hearth`, callable from a program of one's own: register models, datasets or optimizers first, and they
// are known to every command.
#pragma once

#include "core/export.h"

namespace hearth::train {

/// Runs the command line and returns the exit code: 0 done, 2 usage or config, 3 data or file, 4 device or memory,
/// 5 diverged, 70 internal, 128 + n ended by signal n after a checkpoint. Messages go to stderr, results to stdout.
HEARTH_API int run_cli(int argc, char** argv);

}  // namespace hearth::train
