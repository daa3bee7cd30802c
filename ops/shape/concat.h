// SPDX-License-Identifier: Apache-2.0
// Joining tensors, and surrounding one with a constant.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

/// The tensors one behind the other along `axis`. Any one element type; all other extents are equal.
/// UsageError for an empty list or an absent tensor, ShapeError or DTypeError for parts that do not fit together.
HEARTH_API Tensor concat(const std::vector<Tensor>& parts, int axis);

/// Elements put before and behind an axis.
struct PadWidth {
  std::int64_t before = 0;
  std::int64_t after = 0;
};

/// x surrounded by `value`; widths[i] belongs to axis i. Any element type. UsageError for a value that it does not
/// have. ShapeError unless there is one width an axis and all are at least 0.
HEARTH_API Tensor pad(const Tensor& x, const std::vector<PadWidth>& widths, double value = 0);

namespace kernels {
/// Copies `rows` runs of `bytes` bytes, which lie `from_pitch` and `to_pitch` bytes apart.
void copy_runs(cpu::Stream&, const std::byte* from, std::int64_t from_pitch, std::byte* to, std::int64_t to_pitch,
               std::int64_t rows, std::int64_t bytes);
void copy_runs(cuda::Stream&, const std::byte* from, std::int64_t from_pitch, std::byte* to, std::int64_t to_pitch,
               std::int64_t rows, std::int64_t bytes);
}  // namespace kernels
}  // namespace hearth
