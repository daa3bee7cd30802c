// SPDX-License-Identifier: Apache-2.0
// What the ranks of a run compare, beside what each collective and each step does: PeerErrors name the rank and both
// values. Every rank calls them.
#pragma once

#include <string>

#include "core/collective.h"
#include "core/io/json_text.h"
#include "train/run/run_config.h"

namespace hearth::train {

class Session;

/// The configuration, the build and the kind of device.
void require_same_run(Collective& group, const RunConfig& config, const Json& resolved, Device device);
/// The data, the weights and the state that a run begins with.
void require_same_start(Session& session);
/// Weights and buffers at `when`, to the bit.
void require_same_weights(Session& session, const std::string& when);

}  // namespace hearth::train
