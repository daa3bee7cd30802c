// SPDX-License-Identifier: Apache-2.0
// Which op of a run computes in which types.
#pragma once

#include <string>
#include <vector>

#include "train/session.h"

namespace hearth::train {

/// One op call of forward, after autocast.
struct OpPrecision {
  std::string layer;  ///< dotted path; "" outside of modules
  std::string op;
  std::string policy;              ///< name of its Autocast
  std::vector<std::string> reads;  ///< type of each input; "" for one that is absent
  std::string gives;
  /// The type its arithmetic is rounded to: that of the first input, or f32 for an op that upcasts or takes mixed
  /// types; tf32 where a CUDA device's libraries may round the operands to it. Sums are f32 or wider everywhere.
  std::string runs_in;
};

/// The op calls of a training step's forward pass and loss at a batch of two blank images or text, in order, as
/// they are on the session's device. The session is of no use for training afterwards.
std::vector<OpPrecision> precision_of_ops(Session& session);

/// The run's level and type, and why, where the configuration left them open: "O0 f32 (auto: ...)".
std::string precision_text(const Session& session);

}  // namespace hearth::train
