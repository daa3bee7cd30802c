// SPDX-License-Identifier: Apache-2.0
// Attention within shifted windows of an image.
#pragma once

#include <cstdint>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/random.h"
#include "core/tensor.h"

namespace hearth {

struct WindowAttentionOptions {
  std::int64_t heads = 1;
  /// Rows and columns of a window, 1 to 12.
  std::int64_t window = 7;
  /// By how many rows and columns the windows are moved, 0 <= shift < window. An axis on which one window covers the
  /// image is not shifted.
  std::int64_t shift = 0;
  /// Probability of dropping a weight after the softmax, 0 <= dropout < 1; 0 outside of training. The choice is that of
  /// dropout() on weights [N, windows, heads, window^2, window^2]; nothing but the key is kept.
  double dropout = 0.0;
  /// [3C], of qkv's type or f32: q, k and v of positions behind the image, where the window does not divide it. As the
  /// image is padded with zeros, that is the bias of the projection. Has a gradient. Absent: zeros.
  Tensor padding = {};
};

/// The largest window, and the largest head, that window_attention takes.
inline constexpr std::int64_t max_window = 12;
inline constexpr std::int64_t max_window_head_width = 64;

/// y = softmax(q k^T / sqrt(D) + bias + mask) v within each window and head, as in Swin: the image is padded at the
/// right and at the bottom to whole windows, rolled by -shift, cut into windows, attended to, and put together again.
/// Tokens stay in the order of the image: nothing is rolled, cut or padded in memory.
///
/// qkv [N, H, W, 3C] holds q, k and v of all heads side by side, each [heads, D] with C = heads D and 1 <= D <= 64, as
/// one projection makes them; any floating type. bias_table [(2 window - 1)^2, heads], of qkv's type or f32: entry (yi
/// - yj + window - 1) (2 window - 1) + xi - xj + window - 1 is added to the score of query i and key j. Tokens of a
/// window that the roll brought together from different sides of the image get -100 added. y is [N, H, W, C],
/// contiguous. Sums in f32 or wider; under autocast qkv is cast down. Saved for the gradient: the inputs.
/// ShapeError, DTypeError, DeviceError, UsageError; the last also where a block of a CUDA device has no shared memory
/// for a head of a window: on an H200 f64 with windows of 11 and heads of more than 55 channels, or of 12 and more
/// than 45. Source: Liu et al., "Swin Transformer" (ICCV 2021).
HEARTH_API Tensor window_attention(const Tensor& qkv, const Tensor& bias_table,
                                   const WindowAttentionOptions& options = {});

namespace kernels {

/// How an image is cut into windows. Coordinates are counted in windows before the roll is undone.
struct WindowGrid {
  std::int64_t height = 0, width = 0;     ///< of the image
  std::int64_t window = 1;                ///< rows and columns of one
  std::int64_t down = 0, across = 0;      ///< windows
  std::int64_t shift_y = 0, shift_x = 0;  ///< 0 on an axis of one window

  constexpr WindowGrid() = default;
  constexpr WindowGrid(std::int64_t rows, std::int64_t columns, std::int64_t side, std::int64_t shift)
      : height(rows),
        width(columns),
        window(side),
        down((rows + side - 1) / side),
        across((columns + side - 1) / side),
        shift_y(down > 1 ? shift : 0),
        shift_x(across > 1 ? shift : 0) {}

  constexpr std::int64_t windows() const { return down * across; }
  constexpr std::int64_t tokens() const { return window * window; }
  constexpr bool pads() const { return height % window != 0 || width % window != 0; }
  /// Entries of the table for one head.
  constexpr std::int64_t entries() const { return (2 * window - 1) * (2 * window - 1); }
  /// Which pixel, row * width + column, token t of window w is; -1 behind the image.
  constexpr std::int64_t pixel(std::int64_t w, std::int64_t t) const {
    const std::int64_t row = (w / across * window + t / window + shift_y) % (down * window);
    const std::int64_t column = (w % across * window + t % window + shift_x) % (across * window);
    return row < height && column < width ? row * width + column : -1;
  }
  /// Tokens of a window that are of one region see each other as they are.
  constexpr int region(std::int64_t w, std::int64_t t) const {
    const bool wraps_y = shift_y > 0 && w / across == down - 1 && t / window >= window - shift_y;
    const bool wraps_x = shift_x > 0 && w % across == across - 1 && t % window >= window - shift_x;
    return (wraps_y ? 2 : 0) + (wraps_x ? 1 : 0);
  }
  /// Whether any window has tokens of several regions, of which w may be one.
  constexpr bool mixes(std::int64_t w) const {
    return (shift_y > 0 && w / across == down - 1) || (shift_x > 0 && w % across == across - 1);
  }
  /// The table's row for query i and key j.
  constexpr std::int64_t entry(std::int64_t i, std::int64_t j) const {
    return (i / window - j / window + window - 1) * (2 * window - 1) + i % window - j % window + window - 1;
  }
};

/// Added to scores between regions.
inline constexpr double window_mask = -100.0;

/// What both passes are given.
struct WindowAttentionArguments {
  Tensor qkv;      ///< [N, H, W, 3C], contiguous
  Tensor table;    ///< [entries, heads], contiguous, in the type of sums
  Tensor padding;  ///< absent, or contiguous [3C] in the type of sums
  WindowGrid grid = {};
  std::int64_t heads = 1;
  double dropout = 0.0;
  RandomKey key = {};

  std::int64_t batch() const { return qkv.shape()[0]; }
  std::int64_t channels() const { return qkv.shape()[3] / 3; }
  std::int64_t head_width() const { return channels() / heads; }
  std::int64_t pixels() const { return grid.height * grid.width; }
  /// Weights of all heads of a window: their numbers count up over heads, windows and samples.
  std::int64_t weights() const { return heads * grid.tokens() * grid.tokens(); }
  /// Operations of `products` of tokens x tokens x D a head and window.
  double flops(int products) const {
    return 2.0 * products * static_cast<double>(batch() * grid.windows()) * static_cast<double>(weights()) *
           static_cast<double>(head_width());
  }
};

/// Where the gradients go: contiguous like qkv, the table and the padding; the last two may be absent.
struct WindowAttentionGradients {
  Tensor dqkv, dtable, dpadding;
};

/// y and dy: [N, H, W, C], contiguous. Both passes report their operations.
void window_attention(cpu::Stream&, const WindowAttentionArguments& arguments, const Tensor& y);
void window_attention(cuda::Stream&, const WindowAttentionArguments& arguments, const Tensor& y);
void window_attention_grad(cpu::Stream&, const WindowAttentionArguments& arguments, const Tensor& dy,
                           const WindowAttentionGradients& gradients);
void window_attention_grad(cuda::Stream&, const WindowAttentionArguments& arguments, const Tensor& dy,
                           const WindowAttentionGradients& gradients);

}  // namespace kernels
}  // namespace hearth
