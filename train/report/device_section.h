// SPDX-License-Identifier: Apache-2.0
// Where the time of a step on a GPU went.
#pragma once

#include <string>

#include "core/io/json_text.h"

namespace hearth::train {

/// A <section> of what a training with log.profile, or `hearth bench step --profile`, found (device_profile.json); ""
/// where it holds nothing of that kind.
std::string device_section(const Json& profile);

}  // namespace hearth::train
