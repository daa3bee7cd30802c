// SPDX-License-Identifier: Apache-2.0
// What the ranks of a run compare, beside what each collective and each step does: PeerErrors name the rank and both
// values. Every rank calls them.
#pragma once

#include <string>
#include <vector>

#include "autograd/parameters.h"
#include "core/collective.h"
#include "core/io/json_text.h"
#include "core/io/state.h"
#include "data/splits.h"
#include "train/config/run_config.h"

namespace hearth::train {

/// The configuration, the build and the kind of device.
void require_same_run(Collective& group, const RunConfig& config, const Json& resolved, Device device);
/// The data, of which `fingerprint` is data::fingerprint(), and the weights and the state that a run begins with.
void require_same_start(Collective& group, const data::DataSplits& data, const Json& fingerprint, const State& model,
                        const State& training);
/// Weights and buffers at `when`, to the bit.
void require_same_weights(Collective& group, const FlatParameters& parameters, const std::vector<NamedTensor>& buffers,
                          const std::string& when);

}  // namespace hearth::train
