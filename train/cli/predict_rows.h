// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/cli/commands.h"
#include "train/session.h"

namespace hearth::train {

/// Writes a line for each row of the files that are named behind the run: its classes, or the numbers that are
/// predicted. The session's training split is a data::TableDataset.
int predict_rows(const Arguments& arguments, Session& session);

}  // namespace hearth::train
