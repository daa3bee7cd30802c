// SPDX-License-Identifier: Apache-2.0
// What a run's steps waited for.
#pragma once

#include <string>
#include <vector>

#include "core/io/json_text.h"

namespace hearth::train {

/// A <section> on the loader: where its workers' time went, whether its queue ran dry and, where steps waited, the
/// stage to blame and what to change. "" where the records tell nothing of it.
std::string input_section(const std::vector<Json>& records);

}  // namespace hearth::train
