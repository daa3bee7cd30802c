// SPDX-License-Identifier: Apache-2.0
// One update of the weights.
#pragma once

#include <span>

#include "hearth/data/loader.h"
#include "hearth/train/session.h"

namespace hearth::train {

struct StepResult {
  double loss_sum = 0;  ///< loss times samples, summed over the batches
  std::int64_t correct = 0;
  std::int64_t samples = 0;
  double lr = 0;
  double grad_norm = -1;  ///< before clipping; -1 when nothing asked for it
};

/// Forward, loss, backward for each batch, then clipping, the optimizer and the moving average. The gradient is the
/// mean over all samples of all batches. DivergedError, before the weights are touched, if the loss or a gradient is
/// not finite: names the first parameter with such a gradient.
StepResult training_step(Session& session, std::span<const data::Batch> batches);

/// Loss and accuracy over a data set, in evaluation mode with the averaged weights if there are any.
Meter evaluate(Session& session, const data::DatasetPointer& part);

}  // namespace hearth::train
