// SPDX-License-Identifier: Apache-2.0
// The two passes of a resize, in integers: every instruction-set level gives the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth::kernels {

/// Bits behind the point of what lies between the passes.
inline constexpr int resize_point = 6;
/// weigh_columns() writes and weigh_rows() reads up to so many values behind a row.
inline constexpr std::size_t resize_slack = 32;

/// Where the outputs of a row come from.
struct ColumnTaps {
  const int* first;             ///< of each output, the first byte; [width rounded up to 4]
  const std::int16_t* weights;  ///< [width][slots]; what a weight of 0 stands for may lie behind the row's end
  int slots;                    ///< at least 2 * pairs
  const std::int32_t* spread;   ///< the same in pairs, of four outputs at a time; best at a line's beginning
  int pairs;                    ///< of columns
  int width;
};
/// Where in `spread` a pair of an output's weights is. Of one channel: [width / 4][pairs][4 outputs]. Of three, where
/// it stands four times: [width / 4][2][pairs][2][4], of outputs 0 and 2 first, then of 1 and 3. Others have none.
constexpr std::size_t spread_at(int x, int pair, int pairs, int channels) {
  const int at =
      channels == 3 ? (((x / 4 * 2 + x % 2) * pairs + pair) * 2 + x % 4 / 2) * 4 : (x / 4 * pairs + pair) * 4 + x % 4;
  return static_cast<std::size_t>(at);
}
/// Two rows, which share what is loaded of the taps; one may be there twice.
struct RowPair {
  const std::uint8_t* in[2];
  std::int16_t* out[2];
};
/// out[x * channels + c] = the sum of in[first[x] + k * channels + c] * weights[x][k], shifted, in 16 bits.
/// bytes_behind() of a row may be read from an output's first byte on.
void weigh_columns(const RowPair& rows, const ColumnTaps& taps, int shift, int channels);
constexpr std::size_t bytes_behind(int pairs) { return static_cast<std::size_t>((pairs + 1) / 2) * 12 + 4; }

/// Rows of the first pass, and their weights of `bits` bits, at most 15.
struct RowTaps {
  const std::int16_t* const* rows;
  const std::int16_t* weights;
  int taps, bits;
};
/// out[i] = the sum of rows[k][i] * weights[k], halves rounded up, limited to 0..255, for `count` values. Where taps
/// are few each product is rounded to 1/64 of a level, which is faster and as exact.
void weigh_rows(const RowTaps& taps, std::size_t count, std::uint8_t* out);

}  // namespace hearth::kernels
