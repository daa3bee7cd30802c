// SPDX-License-Identifier: Apache-2.0
// How long batches take to a device, as a run brings them there.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "data/batch.h"
#include "train/bench/bench.h"

namespace hearth::train {

/// Times a batch's way to the device by a run's feed, until it is there: from pinned memory or from pageable. Nothing
/// on a CPU.
Timing time_copy(cpu::Stream& stream, const data::Batch& batch, bool pinned);
Timing time_copy(cuda::Stream& stream, const data::Batch& batch, bool pinned);

}  // namespace hearth::train
