// SPDX-License-Identifier: Apache-2.0
// Convolution as products of gathered pixels and filters, in tiles that stay in the cache. Work is cut by shape only;
// no two pieces write the same memory, so results do not depend on the number of threads.
#include <algorithm>

#include "core/cpu/parallel.h"
#include "ops/conv/cpu/conv2d_cpu.h"
#include "ops/conv/cpu/im2col.h"
#include "ops/epilogue/epilogue.h"
#include "ops/matmul/cpu/gemm.h"
#include "ops/scratch.h"

namespace hearth::kernels {
namespace {

/// Sizes that all passes need.
struct Sizes {
  std::int64_t rows;      ///< output pixels of the whole batch
  std::int64_t channels;  ///< input channels of a group
  std::int64_t filters;   ///< filters of a group
  std::int64_t taps;
  std::int64_t width;  ///< taps * channels
  bool pointwise;      ///< the pixels are the matrix: nothing to gather, and none that no filter reads

  explicit Sizes(const ConvShape& s)
      : rows(s.n * s.p * s.q),
        channels(s.c / s.groups),
        filters(s.k / s.groups),
        taps(s.r * s.s),
        width(checked_mul(taps, channels, "conv2d: elements of a filter")),
        pointwise(taps == 1 && s.groups == 1 && s.stride_h == 1 && s.stride_w == 1 && s.pad_h == 0 && s.pad_w == 0 &&
                  s.p == s.h && s.q == s.w) {}
};

/// Output pixels whose gathered rows of `bytes` each make a tile: about a megabyte, but enough rows to
/// pay for packing the filters.
std::int64_t tile_rows(std::int64_t bytes) { return std::clamp<std::int64_t>((1 << 20) / bytes, 96, 512); }

template <class T>
void forward(const ConvShape& s, const T* x, const T* w, T* y) {
  const Sizes z(s);
  if (z.pointwise) return cpu::gemm<T>(false, true, z.rows, s.k, s.c, x, s.c, w, s.c, false, y, s.k);
  const std::int64_t tile = tile_rows(z.width * static_cast<std::int64_t>(sizeof(T)));
  const std::int64_t tiles = (z.rows + tile - 1) / tile;
  cpu::parallel_chunks(tiles * s.groups, [&](std::int64_t piece) {
    const std::int64_t group = piece % s.groups, row = piece / s.groups * tile;
    const std::int64_t rows = std::min(tile, z.rows - row);
    cpu::Scratch scratch;
    T* cols = scratch.take<T>(rows * z.width);
    gather(s, {group, 0, z.taps}, row, rows, x, cols);
    cpu::gemm<T>(false, true, rows, z.filters, z.width, cols, z.width, w + group * z.filters * z.width, z.width, false,
                 y + row * s.k + group * z.filters, s.k);
  });
}

template <class T>
void backward_data(const ConvShape& s, const T* dy, const T* w, T* dx) {
  const Sizes z(s);
  if (z.pointwise) return cpu::gemm<T>(false, false, z.rows, s.c, s.k, dy, s.k, w, s.c, false, dx, s.c);
  const std::int64_t tile = tile_rows(z.width * static_cast<std::int64_t>(sizeof(T)));
  // Each piece owns whole images, so that sums of overlapping taps never meet.
  const std::int64_t pixels = s.p * s.q;
  const std::int64_t images = std::max<std::int64_t>(1, tile / pixels);
  const std::int64_t image_size = s.h * s.w * s.c;
  cpu::parallel_for(s.n, images, [&](std::int64_t begin, std::int64_t end) {
    std::fill_n(dx + begin * image_size, (end - begin) * image_size, T(0));
    cpu::Scratch scratch;
    T* cols = scratch.take<T>(std::min(tile, (end - begin) * pixels) * z.width);
    for (std::int64_t group = 0; group < s.groups; ++group)
      for (std::int64_t row = begin * pixels; row < end * pixels; row += tile) {
        const std::int64_t rows = std::min(tile, end * pixels - row);
        cpu::gemm<T>(false, false, rows, z.width, z.filters, dy + row * s.k + group * z.filters, s.k,
                     w + group * z.filters * z.width, z.width, false, cols, z.width);
        scatter_add(s, {group, 0, z.taps}, row, rows, cols, dx);
      }
  });
}

template <class T>
void backward_weights(const ConvShape& s, const T* x, const T* dy, T* dw) {
  const Sizes z(s);
  if (z.pointwise) return cpu::gemm<T>(true, false, s.k, s.c, z.rows, dy, s.k, x, s.c, false, dw, s.c);
  // Each piece owns a block of dw: some filters of one group times some taps, wide enough for the product's kernel.
  const std::int64_t taps_a_piece = std::min(z.taps, (63 + z.channels) / z.channels);
  const std::int64_t tap_pieces = (z.taps + taps_a_piece - 1) / taps_a_piece;
  const std::int64_t filters_a_piece = std::min<std::int64_t>(z.filters, s.groups * tap_pieces >= 8 ? 128 : 64);
  const std::int64_t filter_pieces = (z.filters + filters_a_piece - 1) / filters_a_piece;
  const std::int64_t tile = tile_rows(taps_a_piece * z.channels * static_cast<std::int64_t>(sizeof(T)));
  cpu::parallel_chunks(s.groups * tap_pieces * filter_pieces, [&](std::int64_t piece) {
    const std::int64_t filter = piece % filter_pieces * filters_a_piece;
    const std::int64_t filters = std::min(filters_a_piece, z.filters - filter);
    const std::int64_t first = piece / filter_pieces % tap_pieces * taps_a_piece;
    const std::int64_t group = piece / filter_pieces / tap_pieces;
    const TapRange taps{group, first, std::min(z.taps, first + taps_a_piece)};
    const std::int64_t width = (taps.last - taps.first) * z.channels;
    cpu::Scratch scratch;
    T* cols = scratch.take<T>(std::min(tile, z.rows) * width);
    T* into = dw + (group * z.filters + filter) * z.width + first * z.channels;
    for (std::int64_t row = 0; row < z.rows; row += tile) {
      const std::int64_t rows = std::min(tile, z.rows - row);
      gather(s, taps, row, rows, x, cols);
      cpu::gemm<T>(true, false, filters, width, rows, dy + row * s.k + group * z.filters + filter, s.k, cols, width,
                   row > 0, into, z.width);
    }
  });
}

}  // namespace

void conv2d_im2col(const ConvProblem& problem, const Conv2dOperands& o) {
  cpu::Stream& stream = cpu::stream_of(o.x.device());
  const ConvShape& s = problem.shape;
  visit_dtype("conv2d", o.x.dtype(), FullFloats{}, [&]<class T>() {
    switch (problem.pass) {
      case Pass::forward:
        forward<T>(s, o.x.data<T>(), o.w.data<T>(), o.y.data<T>());
        if (o.b.defined()) add_bias(stream, o.b, o.y);
        return;
      case Pass::backward_data:
        return backward_data<T>(s, o.y.data<T>(), o.w.data<T>(), o.x.data<T>());
      case Pass::backward_weights:
        backward_weights<T>(s, o.x.data<T>(), o.y.data<T>(), o.w.data<T>());
        if (o.b.defined()) sum_rows(stream, o.y, o.b);
        return;
    }
  });
}

}  // namespace hearth::kernels
