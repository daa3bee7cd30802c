// SPDX-License-Identifier: Apache-2.0
// Threads that wait for each other on cores that other programs use too.
#pragma once

#include "core/export.h"

namespace hearth::train {

/// Starts the program again with few spins of OpenMP's waiting threads where more threads want to run than the machine
/// has cores: a thread that spins keeps the one that it waits for from running. OpenMP reads that when it is loaded,
/// so it has to be there before. Nothing where the user has set it, or the command computes nothing.
HEARTH_API void spin_briefly_on_shared_cores(int argc, char** argv);
/// Threads of other programs that run or want to, the median of some looks; 0 where the system does not tell.
int other_threads();

}  // namespace hearth::train
