// SPDX-License-Identifier: Apache-2.0
// What compressed gradients have left to later steps, in checkpoints.
#pragma once

#include <string>

#include "train/session.h"

namespace hearth::train {

/// ConfigError where the state of a checkpoint has residuals of other ranks than this run.
void require_same_residuals(const Session& session, const std::string& path);

}  // namespace hearth::train
