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
/// out[x * channels + c] = the sum of row[(first[x] + k) * channels + c] * weights[x][k], halves rounded up, shifted
/// and limited to 0..255. 16 values behind what is used of the row can be read.
void weigh_columns(const std::int16_t* row, const ColumnTaps& taps, int shift, int width, int channels,
                   std::uint8_t* out);

/// Rows of the source that make one row of the result.
struct RowTaps {
  const std::uint8_t* rows;     ///< the first of them
  const std::int16_t* weights;  ///< as of weigh_rows()
  int taps;
};
/// As ColumnTaps, of `taps` columns for each output, at most max_few_taps. Weights are in 1/32768 and stand there
/// twice, in both halves.
struct FewTaps {
  const int* first;
  const std::int32_t* weights;  ///< [outputs][taps]
  int taps;
};
inline constexpr int max_few_taps = 16;
inline constexpr int rows_at_once = 8;

/// Both passes for up to rows_at_once rows: sums of products that are each rounded to 1/64 of a level, faster than
/// weigh_columns() and as exact while they are few. `scratch` has rows_at_once * (count + (taps + width) * channels +
/// 32) values.
void resize_rows(const RowTaps* rows, int row_count, std::size_t stride, int shift, std::size_t count,
                 const FewTaps& columns, int width, int channels, std::uint8_t* out, std::int16_t* scratch);

}  // namespace hearth::kernels
