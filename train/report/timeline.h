// SPDX-License-Identifier: Apache-2.0
// The picture of a step of several ranks.
#pragma once

#include <string>

#include "core/io/json_text.h"

namespace hearth::train {

/// Ranks that are shown; of more, the first ones.
constexpr std::size_t max_lanes = 16;

/// An <svg> element with a lane of computation and one of communication for each rank of step_trace.json; "" where it
/// holds nothing of that kind.
std::string timeline_svg(const Json& trace);

}  // namespace hearth::train
