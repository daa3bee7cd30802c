// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "train/cli/commands.h"
#include "train/predictor.h"
#include "train/session.h"

namespace hearth::train {

/// The numbers of a row of f32 [n, ...].
std::vector<double> row_of(const Tensor& rows, std::int64_t row);
/// Sets the most probable class of an input, and the list of those that come next.
void set_classes(Json& line, const std::vector<Predictor::Class>& top);
/// Writes a line for each row of the files that are named behind the run: its classes, or the numbers that are
/// predicted. The session is that of a run on a table.
int predict_rows(const Arguments& arguments, std::unique_ptr<Session> session);

}  // namespace hearth::train
