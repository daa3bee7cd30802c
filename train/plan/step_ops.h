// SPDX-License-Identifier: Apache-2.0
// The ops of a training step with their arithmetic, bytes and time, recorded from real steps of a few rows and
// extended to any number of rows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/export.h"
#include "core/profiler_spans.h"
#include "train/session.h"

namespace hearth::train {

/// Arithmetic of one implementation within an op.
struct OpPart {
  std::string implementation;  ///< "conv2d:winograd"; the op's name where it has no choice
  double flops = 0;
};

/// One op call of a step, without the ops that it calls.
struct StepOp {
  std::string op;     ///< "conv2d", "optimizer"
  std::string layer;  ///< dotted path; "" outside of modules
  bool backward = false;
  double bytes = 0;  ///< operands and results, each once
  double us = 0;     ///< on the device that the step was recorded on, by the host's clock
  std::vector<OpPart> parts{};

  double flops() const;
  /// "conv2d (backward)".
  std::string name() const;
};

/// The calling thread's op calls among `spans`, in the order of their ends.
HEARTH_API std::vector<StepOp> ops_of_spans(std::span<const profiler::Span> spans);

/// The ops of one pass over a batch and the update, at one number of rows.
struct StepOps {
  std::int64_t rows = 0;
  std::vector<StepOp> ops;
  double us = 0;              ///< of the whole step
  double input_bytes = 0;     ///< of the batch, as a loader hands it over
  std::int64_t launches = 0;  ///< kernels, library calls, copies and fills on a CUDA device

  double flops() const;
  double bytes() const;
};

/// Runs steps of `rows` samples, as a run on a device of type `target` gets them, and gives the least time of each op
/// among `repeats` of them. The session is of no use for training afterwards.
HEARTH_API StepOps record_step(Session& session, std::int64_t rows, DeviceType target, int repeats);

/// The same step at another number of rows: each quantity is an offset and a part in proportion to the rows, as two
/// recorded steps show them. Where the two differ in their ops, those of the larger one in proportion.
HEARTH_API StepOps step_at(const StepOps& small, const StepOps& large, std::int64_t rows);

}  // namespace hearth::train
