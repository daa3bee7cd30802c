// SPDX-License-Identifier: Apache-2.0
// Descriptors of files beside those of standard input, output and error.
#pragma once

#include "core/export.h"

namespace hearth {

/// The descriptor, or a duplicate above 2 in its place: where a standard stream is closed, the next file takes its
/// number, and what the program prints would land in the file. Negative ones stay; -1 with errno where none is free.
int above_standard_streams(int descriptor);

/// Opens the null device, so that writing to it fails, for each standard stream that is closed. For the start of a
/// program.
void open_standard_streams();

}  // namespace hearth
