// SPDX-License-Identifier: Apache-2.0
// The two passes of a resize, in integers: every instruction-set level gives the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth::kernels {

/// Bits behind the point of what lies between the passes.
inline constexpr int resize_point = 6;

/// out[i] = (sum over k < taps of rows[k * stride + i] * weights[k] + half) >> shift, for `count` values of a row.
/// `weights` has an even number of values, of which one behind the last tap is 0.
void weigh_rows(const std::uint8_t* rows, std::size_t stride, const std::int16_t* weights, int taps, int shift,
                std::size_t count, std::int16_t* out);

/// Where the outputs of a row come from.
struct ColumnTaps {
  const int* first;             ///< of each output, the first column
  const std::int16_t* weights;  ///< [outputs][2 * pairs]
  int pairs;                    ///< of columns; what a weight of 0 stands for is read, and may lie behind the row's end
};
/// out[x * channels + c] = the sum of row[(first[x] + k) * channels + c] * weights[x][k], halves rounded up, shifted and
/// limited to 0..255. 16 values behind what is used of the row can be read.
void weigh_columns(const std::int16_t* row, const ColumnTaps& taps, int shift, int width, int channels,
                   std::uint8_t* out);

}  // namespace hearth::kernels
