// SPDX-License-Identifier: Apache-2.0
// The matrices of a convolution as operands of the tiles of a matrix product: they exist as addresses only (implicit
// GEMM). For kernel sources only. Per group:
//   forward           y [pixels of y, filters]    = patches of x [pixels of y, taps x channels] . w^T
//   backward_data     dx [pixels of x, channels]  = patches of dy [pixels of x, taps x filters] . w
//   backward_weights  dw [filters, taps x channels] = dy^T . patches of x, the pixels of y shared among blocks
#pragma once

#include "core/cuda/kernel.h"
#include "ops/conv/kernels.h"
#include "ops/device/row_split.cuh"
#include "ops/matmul/cuda/tile.cuh"

namespace hearth::kernels::conv_operands {

using tile::share;

/// The sizes of a convolution, 32 bits wide because divisions by them are frequent. `channels` and `filters` are those
/// of a group.
struct Geometry {
  int h, w, c, k, r, s, p, q, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int channels, filters, groups;
};

inline Geometry geometry_of(const ConvShape& shape) {
  const auto size = [](std::int64_t value) { return static_cast<int>(value); };
  Geometry g{};
  g.h = size(shape.h);
  g.w = size(shape.w);
  g.c = size(shape.c);
  g.k = size(shape.k);
  g.r = size(shape.r);
  g.s = size(shape.s);
  g.p = size(shape.p);
  g.q = size(shape.q);
  // The stride of a single window is without meaning, and may be any number.
  g.stride_h = shape.p == 1 ? 1 : size(shape.stride_h);
  g.stride_w = shape.q == 1 ? 1 : size(shape.stride_w);
  g.pad_h = size(shape.pad_h);
  g.pad_w = size(shape.pad_w);
  g.dilation_h = size(shape.dilation_h);
  g.dilation_w = size(shape.dilation_w);
  g.groups = size(shape.groups);
  g.channels = g.c / g.groups;
  g.filters = g.k / g.groups;
  return g;
}

/// A column (tap r, tap s, channel) of a matrix of patches.
struct Column {
  int r, s, channel;
  __device__ Column(const Geometry& g, int at, int channels) : channel(at % channels) {
    const int tap = at / channels;
    r = tap / g.s;
    s = tap % g.s;
  }
  __device__ void next(const Geometry& g, int channels) {
    if (++channel < channels) return;
    channel = 0;
    if (++s < g.s) return;
    s = 0;
    ++r;
  }
};

/// An operand of tile::multiply and, where the innermost extent is a multiple of 8, of mma_tile::multiply, whose depth
/// is (tap, one of depth() channels): what Pixels finds there, and zeros where it finds nothing.
template <class T, template <class> class Pixels>
struct ByTap : Pixels<T> {
  __device__ bool along_depth() const { return true; }
  __device__ const T* base() const { return this->data; }
  __device__ const T* chunk(std::int64_t k, std::int64_t end) const {
    return k < end ? this->find(Column(this->g, static_cast<int>(k), this->depth())) : nullptr;
  }
  __device__ void fetch(std::int64_t k, std::int64_t end, acc_t<T> (&out)[share]) const {
    Column at(this->g, static_cast<int>(k), this->depth());
    HEARTH_UNROLL
    for (int i = 0; i < share; ++i, at.next(this->g, this->depth())) {
      const T* const from = k + i < end ? this->find(at) : nullptr;
      out[i] = from != nullptr ? cuda::upcast(*from) : 0;
    }
  }
};

/// Row = pixel of y, depth = (tap, channel): x under the taps.
template <class T>
struct PatchPixels {
  const Geometry& g;
  const T* data;  ///< the first channel of the group
  std::int64_t rows;
  const T* image = nullptr;
  int top = 0, left = 0;

  __device__ void begin(std::int64_t row) {
    if (row >= rows) return;
    const int pixel = static_cast<int>(row), line = pixel / g.q;
    left = pixel % g.q * g.stride_w - g.pad_w;
    top = line % g.p * g.stride_h - g.pad_h;
    image = data + static_cast<std::int64_t>(line / g.p) * g.h * g.w * g.c;
  }
  /// The element, or null outside of the image.
  __device__ const T* find(const Column& at) const {
    const int y = top + at.r * g.dilation_h, column = left + at.s * g.dilation_w;
    if (image == nullptr || y < 0 || y >= g.h || column < 0 || column >= g.w) return nullptr;
    return image + (static_cast<std::int64_t>(y) * g.w + column) * g.c + at.channel;
  }
  __device__ int depth() const { return g.channels; }
};
template <class T>
using Patches = ByTap<T, PatchPixels>;

/// Row = pixel of x, depth = (tap, filter): dy of the windows in which the pixel lies under that tap.
template <class T>
struct WindowPixels {
  const Geometry& g;
  const T* data;  ///< the first filter of the group
  std::int64_t rows;
  const T* image = nullptr;
  int top = 0, left = 0;

  __device__ void begin(std::int64_t row) {
    if (row >= rows) return;
    const int pixel = static_cast<int>(row), line = pixel / g.w;
    left = pixel % g.w + g.pad_w;
    top = line % g.h + g.pad_h;
    image = data + static_cast<std::int64_t>(line / g.h) * g.p * g.q * g.k;
  }
  /// The element, or null where no window has the pixel under this tap.
  __device__ const T* find(const Column& at) const {
    const int y = top - at.r * g.dilation_h, column = left - at.s * g.dilation_w;
    if (image == nullptr || y < 0 || column < 0) return nullptr;
    const int p = y / g.stride_h, q = column / g.stride_w;
    if (p * g.stride_h != y || q * g.stride_w != column || p >= g.p || q >= g.q) return nullptr;
    return image + (static_cast<std::int64_t>(p) * g.q + q) * g.k + at.channel;
  }
  __device__ int depth() const { return g.filters; }
};
template <class T>
using Windows = ByTap<T, WindowPixels>;

/// Row = channel, depth = (tap, filter): w for backward_data.
template <class T>
struct FilterTaps {
  const Geometry& g;
  const T* w;  ///< the first filter of the group
  int channel = 0;

  __device__ bool along_depth() const { return false; }
  __device__ void begin(std::int64_t row) { channel = static_cast<int>(row); }
  __device__ const T* base() const { return w; }
  __device__ const T* find(std::int64_t k) const {
    const int tap = static_cast<int>(k) / g.filters, filter = static_cast<int>(k) % g.filters;
    return w + (static_cast<std::int64_t>(filter) * g.r * g.s + tap) * g.channels + channel;
  }
  __device__ const T* chunk(std::int64_t k, std::int64_t end) const {
    return k < end && channel < g.channels ? find(k) : nullptr;
  }
  __device__ void fetch(std::int64_t k, std::int64_t end, acc_t<T> (&out)[share]) const {
    const T* const from = find(k);
    HEARTH_UNROLL
    for (int i = 0; i < share; ++i) out[i] = k < end && channel + i < g.channels ? cuda::upcast(from[i]) : 0;
  }
};

/// Row = (tap, channel), depth = pixel of y: the patches, transposed.
template <class T>
struct PatchColumns {
  const Geometry& g;
  const T* x;  ///< the first channel of the group
  std::int64_t rows;
  int down[share] = {}, right[share] = {}, channel[share] = {};

  __device__ bool along_depth() const { return false; }
  __device__ void begin(std::int64_t row) {
    Column at(g, static_cast<int>(row < rows ? row : 0), g.channels);
    HEARTH_UNROLL
    for (int i = 0; i < share; ++i, at.next(g, g.channels)) {
      down[i] = at.r * g.dilation_h - g.pad_h;
      right[i] = at.s * g.dilation_w - g.pad_w;
      channel[i] = row + i < rows ? at.channel : -1;
    }
  }
  /// A pixel of y: its image, and where its window begins but for the padding.
  struct Window {
    const T* image;
    int top, left;
  };
  __device__ Window window(std::int64_t k) const {
    const int pixel = static_cast<int>(k), line = pixel / g.q;
    return {x + static_cast<std::int64_t>(line / g.p) * g.h * g.w * g.c, line % g.p * g.stride_h,
            pixel % g.q * g.stride_w};
  }
  __device__ const T* find(const Window& at, int i) const {
    const int y = at.top + down[i], column = at.left + right[i];
    if (channel[i] < 0 || y < 0 || y >= g.h || column < 0 || column >= g.w) return nullptr;
    return at.image + (static_cast<std::int64_t>(y) * g.w + column) * g.c + channel[i];
  }
  __device__ const T* base() const { return x; }
  __device__ const T* chunk(std::int64_t k, std::int64_t end) const { return k < end ? find(window(k), 0) : nullptr; }
  __device__ void fetch(std::int64_t k, std::int64_t end, acc_t<T> (&out)[share]) const {
    const Window at = window(k < end ? k : 0);
    HEARTH_UNROLL
    for (int i = 0; i < share; ++i) {
      const T* const from = k < end ? find(at, i) : nullptr;
      out[i] = from != nullptr ? cuda::upcast(*from) : 0;
    }
  }
};

/// The tiles of all groups and parts.
struct Tiles {
  std::int64_t rows, columns, depth;  ///< of a group's product
  std::int64_t side, row_tiles, column_tiles, count;
  tile::Split split;
};

/// Rows, columns and depth of a pass, cut into tiles of this side and depths of a multiple of `step`.
inline Tiles tiles_of(const ConvShape& s, Pass pass, std::int64_t side, std::int64_t step) {
  const std::int64_t taps = s.r * s.s, channels = s.c / s.groups, filters = s.k / s.groups;
  Tiles t{};
  t.side = side;
  switch (pass) {
    case Pass::forward:
      t.rows = s.n * s.p * s.q, t.columns = filters, t.depth = taps * channels;
      break;
    case Pass::backward_data:
      t.rows = s.n * s.h * s.w, t.columns = channels, t.depth = taps * filters;
      break;
    case Pass::backward_weights:
      t.rows = filters, t.columns = taps * channels, t.depth = s.n * s.p * s.q;
      break;
  }
  t.row_tiles = (t.rows + side - 1) / side;
  t.column_tiles = (t.columns + side - 1) / side;
  const std::int64_t tiles = t.row_tiles * t.column_tiles * s.groups;
  t.split = tile::split_of(tiles, t.depth, step);
  t.count = tiles * t.split.count;
  return t;
}

/// One tile of a group's product, of the part [begin, end) of its depth.
struct Tile {
  std::int64_t row, column, begin, end, part;
  int group;
  __device__ Tile(const Tiles& t, const Geometry& g, std::int64_t at) {
    column = at % t.column_tiles * t.side;
    at /= t.column_tiles;
    row = at % t.row_tiles * t.side;
    at /= t.row_tiles;
    group = static_cast<int>(at % g.groups);
    part = at / g.groups;
    begin = part * t.split.size;
    end = begin + t.split.size < t.depth ? begin + t.split.size : t.depth;
  }
};

/// What a launch of a pass moves: its operands, the result or its parts, and the result again where it is added to.
inline std::int64_t bytes_of_pass(const ConvShape& shape, Pass pass, const Tensor& left, const Tensor& right,
                                  bool accumulate, const tile::Split& split, const Tensor& result,
                                  std::int64_t part_elements, std::size_t part_element) {
  std::int64_t in = cuda::bytes_of(left, right);
  if (pass != Pass::backward_data) in -= skipped_bytes(shape, left.dtype());
  if (accumulate) in += cuda::bytes_of(result);
  return tile::moved_by(in, split, result, part_elements, part_element);
}

}  // namespace hearth::kernels::conv_operands
