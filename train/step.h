// SPDX-License-Identifier: Apache-2.0
// One update of the weights.
#pragma once

#include <span>

#include "data/loader.h"
#include "train/session.h"

namespace hearth::train {

struct StepResult {
  std::int64_t samples = 0;
  double lr = 0;
};

/// What a batch gives the network and its loss.
inline constexpr Tensor data::Batch::*batch_tensors[] = {
    &data::Batch::images, &data::Batch::labels, &data::Batch::erased, &data::Batch::share,
    &data::Batch::input,  &data::Batch::source, &data::Batch::target};

/// So many rows of zeros as the run's data has them, and their labels, where the run computes.
data::Batch blank_rows(const Session& session, std::int64_t rows);

/// The loss of an input: of what the network makes of images, of texts, or of pairs of texts. To `correct`, one i64
/// where the run computes, is added how many labels were predicted, unless it is absent.
Tensor loss_of(Session& session, const data::Batch& input, const Tensor& correct = {});

/// The tensors of a batch, and how many labels count, where the run computes.
data::Batch moved_input(const Session& session, const data::Batch& batch);

/// Forward, loss, backward for each batch, then clipping, the optimizer and the moving average. The gradient is the
/// mean over all samples of all batches, but for those whose label does not count (Loss::ignored_label). Losses and
/// hits are added to the session's interval.
///
/// On the CPU: DivergedError, before the weights are touched, if the loss or a gradient is not finite; it names the
/// first parameter with such a gradient. On a CUDA device nothing waits, and Session::read_interval() reports it. With
/// loss scaling an update whose gradients are not finite is skipped, and its samples are not counted.
StepResult training_step(Session& session, std::span<const data::Batch> batches);

/// The two halves of a step on a CUDA device, and of one with loss scaling on any, for steps that are recorded once and
/// replayed: what the host does each time, and what the device does.
StepResult begin_device_step(Session& session, std::int64_t samples);
void run_device_step(Session& session, std::span<const data::Batch> inputs);

/// One batch of an evaluation: adds its loss and hits to `sums`. No gradients; the caller sets the model's mode.
void evaluation_step(Session& session, const data::Batch& input, const Sums& sums);

/// Loss and accuracy over a data set, in evaluation mode with the averaged weights if there are any.
Meter evaluate(Session& session, const data::DatasetPointer& part);

}  // namespace hearth::train
