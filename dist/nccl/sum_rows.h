// SPDX-License-Identifier: Apache-2.0
// The sum of what several ranks sent, on the device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda/stream.h"
#include "core/dtype.h"

namespace hearth::dist::nccl {

/// sum[i] = the sum over r of rows[r * count + i], in the order of reduce_rows() (dist/ordered_sum.h) and with its
/// bits: neighbouring rows in pairs, then pairs of these, 16-bit types in f32. `sum` has the type of the rows, a
/// floating one (DTypeError), and may be one of them. At most 4096 rows.
void sum_rows(cuda::Stream& stream, DType dtype, const std::byte* rows, int row_count, std::int64_t count,
              std::byte* sum);

}  // namespace hearth::dist::nccl
