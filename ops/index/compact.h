// SPDX-License-Identifier: Apache-2.0
// Elements where a mask is true, in order. How many there are stays on the device (CountedList). `capacity` is how many
// the memory of a result holds; absent: as many as x has. IndexError if more are found, on a CUDA device when the host
// next waits.
#pragma once

#include <cstdint>
#include <optional>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"
#include "ops/index/counted_list.h"

namespace hearth {

/// Rows in order, and where they were.
struct HEARTH_API Compacted : CountedList {
  Tensor indices;  ///< i64 [capacity]: the row of x of each; zeros behind the last, so that index_select() takes them
};

/// The rows of x [n, ...] where the mask, bool [n], is true, and their indices: values [capacity, ...]. Any element
/// type. The gradient goes back to the rows. On a CUDA device two launches for any n. UsageError, ShapeError,
/// DTypeError, DeviceError.
HEARTH_API Compacted compact(const Tensor& x, const Tensor& mask, std::optional<std::int64_t> capacity = {});

/// The elements of x where the mask, bool of x's shape, is true: [capacity], in row-major order. Otherwise as
/// compact().
HEARTH_API CountedList masked_select(const Tensor& x, const Tensor& mask, std::optional<std::int64_t> capacity = {});

/// The positions of the elements of x that are not 0: i64 [capacity, rank], in row-major order. Any element type; NaN
/// is not 0. On a CUDA device two launches for a mask of bool, three for another type. No gradient.
/// UsageError, ShapeError for a scalar.
HEARTH_API CountedList nonzero(const Tensor& x, std::optional<std::int64_t> capacity = {});

/// The different elements of x, ascending: [capacity] of its type. NaN is behind all others, each by itself. No
/// gradient.
HEARTH_API CountedList unique(const Tensor& x, std::optional<std::int64_t> capacity = {});

namespace kernels {

/// Elements of a mask that are counted together.
inline constexpr std::int64_t mask_chunk = 4096;

/// Where a mask is true.
struct MaskedRows {
  Tensor mask;            ///< bool [n], contiguous
  Tensor starts;          ///< i64 [chunks + 1]: how many are true before each chunk, and in all
  std::int64_t capacity;  ///< further ones are left out
};

/// Fills the starts; `count`, one i64, becomes how many there are, at most the capacity. IndexError, naming `op`.
void find_rows(cpu::Stream&, const char* op, const MaskedRows&, const Tensor& count);
void find_rows(cuda::Stream&, const char* op, const MaskedRows&, const Tensor& count);
/// y [capacity, ...]: these rows of x; both may be absent. indices i64 [capacity, rank]: the positions of these
/// elements of a tensor of this shape. Both with zeros behind the last. Contiguous.
void pack_rows(cpu::Stream&, const MaskedRows&, const Tensor& x, const Tensor& y, const Shape& shape,
               const Tensor& indices);
void pack_rows(cuda::Stream&, const MaskedRows&, const Tensor& x, const Tensor& y, const Shape& shape,
               const Tensor& indices);
/// dx: the rows of dy where they came from, zeros elsewhere.
void spread_rows(cpu::Stream&, const MaskedRows&, const Tensor& dy, const Tensor& dx);
void spread_rows(cuda::Stream&, const MaskedRows&, const Tensor& dy, const Tensor& dx);

}  // namespace kernels
}  // namespace hearth
