// SPDX-License-Identifier: Apache-2.0
// One update of the weights.
#pragma once

#include <span>
#include <vector>

#include "data/loading/loader.h"
#include "train/session.h"

namespace hearth::train {

/// A batch of `rows` blank samples, each as long as it can be, of the names, shapes and types that the run's loader
/// gives for a device of this kind; on the host.
data::Batch blank_batch(const Session& session, std::int64_t rows, DeviceType target);
/// The same with the values of training samples, blank behind their ends: models may look at what they get.
data::Batch sample_batch(const Session& session, std::int64_t rows, DeviceType target);

/// Batches as the run's loaders give them: labels that its loss ignores have one number, and the others are counted.
/// Those of a loader already are; a step asks for them where a program brings its own. `held` has what had to be made.
std::span<const data::Batch> as_loaded(const Session& session, std::span<const data::Batch> batches,
                                       std::vector<data::Batch>& held);

/// A batch where the run computes. On a CUDA device its tensors arrive by the session's feed, from pinned memory unless
/// train.pinned is false: the device does not wait for the copy while it has other work.
data::Batch on_device(Session& session, const data::Batch& batch);

/// One update: accumulates the gradients of the batches' losses, decides (found-inf check, clipping, loss scale), and
/// applies the optimizer and the moving average. The gradient is the mean over all samples of all batches, but for
/// those whose label does not count (Loss::ignored_label), by Loss::weight if there is one. Losses and correct
/// predictions are added to the session's interval.
///
/// On the CPU without loss scaling: DivergedError, before the weights are touched, if the loss or a gradient is not
/// finite; it names the first parameter with such a gradient. Elsewhere nothing waits, and Session::read_interval()
/// reports it. With loss scaling an update whose gradients are not finite is skipped, and its samples are not counted.
StepResult training_step(Session& session, std::span<const data::Batch> batches);

/// Tells the session's meter and the trace of its ranks that the step under way is in this phase from here on.
void enter(Session& session, Phase phase);

/// Its two halves, for steps that are recorded once and replayed: what the host does each time, and what is done where
/// the run computes, `inputs` being there.
StepResult begin_step(Session& session, std::int64_t samples);
void run_step(Session& session, std::span<const data::Batch> inputs);

/// One batch of an evaluation: adds its loss and correct predictions to `sums`, and returns what its loss counts for
/// there: the labels that count, or the sum of their classes' weights. No gradients; the caller sets the model's mode.
double evaluation_step(Session& session, const data::Batch& input, const Sums& sums, Metrics* metrics = nullptr);

/// Loss and accuracy over a dataset, in evaluation mode with the averaged weights if there are any. The ranks of a data
/// parallel run, which all call it, evaluate a part of the batches each, unless the task's metrics are not reducible,
/// and have the same result, with the bits of one process.
Meter evaluate(Session& session, const data::DatasetPointer& part);

}  // namespace hearth::train
