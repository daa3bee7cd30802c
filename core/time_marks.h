// SPDX-License-Identifier: Apache-2.0
// Times of parts of a device's work, added up by marks in its stream, so that the host need not wait for any.
#pragma once

#include <cstdint>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth::kernels {

/// Parts that marks can tell apart.
inline constexpr std::int64_t timed_parts = 14;
/// Elements of a tensor of marks, i64, zero at first: nanoseconds of each part, time of the last mark, and the number
/// of the part under way plus 1.
inline constexpr std::int64_t time_mark_words = timed_parts + 2;

/// The part under way, if any, ends when the stream arrives here, and this one begins.
HEARTH_API void mark_time(cuda::Stream& stream, const Tensor& marks, int part);
/// Only devices of their own clock have marks: does nothing.
inline void mark_time(cpu::Stream&, const Tensor&, int) {}

}  // namespace hearth::kernels
