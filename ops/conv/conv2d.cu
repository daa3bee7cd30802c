// SPDX-License-Identifier: Apache-2.0
// The portable convolution of the device: each pass is a product of matrices that exist only as addresses (implicit
// GEMM), in tiles of 64 x 64 with sums in f32 (f64 for f64). The matrices, per group:
//   forward           y [pixels of y, filters]    = patches of x [pixels of y, taps x channels] . w^T
//   backward_data     dx [pixels of x, channels]  = patches of dy [pixels of x, taps x filters] . w
//   backward_weights  dw [filters, taps x channels] = dy^T . patches of x, the pixels of y shared among blocks
#include "hearth/core/cuda/kernel.h"
#include "hearth/ops/conv/kernels.h"
#include "hearth/ops/epilogue/epilogue.h"
#include "hearth/ops/matmul/tile.cuh"

namespace hearth::kernels {
namespace {

using cpu::dnn::Pass;
using tile::share;

/// The sizes of a convolution, 32 bits wide because divisions by them are frequent. `channels` and `filters` are those
/// of a group.
struct Geometry {
  int h, w, c, k, r, s, p, q, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int channels, filters, groups;
};

Geometry geometry_of(const Conv2dShape& shape) {
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

/// Row = pixel of y, depth = (tap, channel): x under the taps. An operand of tile::multiply.
template <class T>
struct Patches {
  const Geometry& g;
  const T* x;  ///< the first channel of the group
  std::int64_t rows;
  const T* image = nullptr;
  int top = 0, left = 0;

  __device__ bool along_depth() const { return true; }
  __device__ void begin(std::int64_t row) {
    if (row >= rows) return;
    const int pixel = static_cast<int>(row), line = pixel / g.q;
    left = pixel % g.q * g.stride_w - g.pad_w;
    top = line % g.p * g.stride_h - g.pad_h;
    image = x + static_cast<std::int64_t>(line / g.p) * g.h * g.w * g.c;
  }
  __device__ void fetch(std::int64_t k, std::int64_t end, acc_t<T> (&out)[share]) const {
    Column at(g, static_cast<int>(k), g.channels);
    HEARTH_UNROLL
    for (int i = 0; i < share; ++i, at.next(g, g.channels)) {
      const int y = top + at.r * g.dilation_h, column = left + at.s * g.dilation_w;
      const bool inside = image != nullptr && k + i < end && y >= 0 && y < g.h && column >= 0 && column < g.w;
      out[i] = inside ? cuda::widen(image[(static_cast<std::int64_t>(y) * g.w + column) * g.c + at.channel]) : 0;
    }
  }
};

/// Row = pixel of x, depth = (tap, filter): dy of the windows in which the pixel lies under that tap.
template <class T>
struct Windows {
  const Geometry& g;
  const T* dy;  ///< the first filter of the group
  std::int64_t rows;
  const T* image = nullptr;
  int top = 0, left = 0;

  __device__ bool along_depth() const { return true; }
  __device__ void begin(std::int64_t row) {
    if (row >= rows) return;
    const int pixel = static_cast<int>(row), line = pixel / g.w;
    left = pixel % g.w + g.pad_w;
    top = line % g.h + g.pad_h;
    image = dy + static_cast<std::int64_t>(line / g.h) * g.p * g.q * g.k;
  }
  __device__ void fetch(std::int64_t k, std::int64_t end, acc_t<T> (&out)[share]) const {
    Column at(g, static_cast<int>(k), g.filters);
    HEARTH_UNROLL
    for (int i = 0; i < share; ++i, at.next(g, g.filters)) {
      const int y = top - at.r * g.dilation_h, column = left - at.s * g.dilation_w;
      const int p = y / g.stride_h, q = column / g.stride_w;
      const bool inside = image != nullptr && k + i < end && y >= 0 && column >= 0 && p * g.stride_h == y &&
                          q * g.stride_w == column && p < g.p && q < g.q;
      out[i] = inside ? cuda::widen(image[(static_cast<std::int64_t>(p) * g.q + q) * g.k + at.channel]) : 0;
    }
  }
};

/// Row = channel, depth = (tap, filter): w for backward_data.
template <class T>
struct FilterTaps {
  const Geometry& g;
  const T* w;  ///< the first filter of the group
  int channel = 0;

  __device__ bool along_depth() const { return false; }
  __device__ void begin(std::int64_t row) { channel = static_cast<int>(row); }
  __device__ void fetch(std::int64_t k, std::int64_t end, acc_t<T> (&out)[share]) const {
    const int tap = static_cast<int>(k) / g.filters, filter = static_cast<int>(k) % g.filters;
    const T* const from = w + (static_cast<std::int64_t>(filter) * g.r * g.s + tap) * g.channels + channel;
    HEARTH_UNROLL
    for (int i = 0; i < share; ++i) out[i] = k < end && channel + i < g.channels ? cuda::widen(from[i]) : 0;
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
  __device__ void fetch(std::int64_t k, std::int64_t end, acc_t<T> (&out)[share]) const {
    const int pixel = static_cast<int>(k < end ? k : 0), line = pixel / g.q;
    const int top = line % g.p * g.stride_h, left = pixel % g.q * g.stride_w;
    const T* const image = x + static_cast<std::int64_t>(line / g.p) * g.h * g.w * g.c;
    HEARTH_UNROLL
    for (int i = 0; i < share; ++i) {
      const int y = top + down[i], column = left + right[i];
      const bool inside = k < end && channel[i] >= 0 && y >= 0 && y < g.h && column >= 0 && column < g.w;
      out[i] = inside ? cuda::widen(image[(static_cast<std::int64_t>(y) * g.w + column) * g.c + channel[i]]) : 0;
    }
  }
};

/// The tiles of all groups and parts.
struct Tiles {
  std::int64_t rows, columns, depth;  ///< of a group's product
  std::int64_t row_tiles, column_tiles, count;
  tile::Split split;
};

Tiles tiles_of(std::int64_t rows, std::int64_t columns, std::int64_t depth, std::int64_t groups) {
  Tiles t{rows, columns, depth, (rows + tile::side - 1) / tile::side, (columns + tile::side - 1) / tile::side, 0, {}};
  const std::int64_t tiles = t.row_tiles * t.column_tiles * groups;
  t.split = tile::split_of(tiles, depth);
  t.count = tiles * t.split.count;
  return t;
}

/// One tile of a group's product, of the part [begin, end) of its depth.
struct Tile {
  std::int64_t row, column, begin, end, part;
  int group;
  __device__ Tile(const Tiles& t, const Geometry& g, std::int64_t at) {
    column = at % t.column_tiles * tile::side;
    at /= t.column_tiles;
    row = at % t.row_tiles * tile::side;
    at /= t.row_tiles;
    group = static_cast<int>(at % g.groups);
    part = at / g.groups;
    begin = part * t.split.size;
    end = begin + t.split.size < t.depth ? begin + t.split.size : t.depth;
  }
};

/// Makes one pass. A block makes a tile and goes on with the grid's stride. `left` is x, dy, dy; `right` is w, w, x.
/// Each element of an image is read once for each tap and tile of 64 columns, mostly from the caches. With several
/// parts `store` goes to their own memory, [parts, elements].
template <Pass pass, class TA, class TB, class TC>
__global__ void __launch_bounds__(tile::threads)
    conv2d_tiles_kernel(HEARTH_GRID_CONSTANT(Geometry) g, HEARTH_GRID_CONSTANT(Tiles) t, const TA* left,
                        const TB* right, std::int64_t elements, tile::Store<TC> store) {
  using A = acc_t<TC>;
  for (std::int64_t at = blockIdx.x; at < t.count; at += gridDim.x) {
    const Tile z(t, g, at);
    const std::int64_t taps = static_cast<std::int64_t>(g.r) * g.s, first_filter = z.group * g.filters;
    const std::int64_t first_channel = z.group * g.channels, width = taps * g.channels;
    A sum[share][share] = {};
    std::int64_t origin = z.part * elements, row_step = 0;
    if constexpr (pass == Pass::forward) {
      const Patches<TA> a{g, left + first_channel, t.rows};
      const tile::Stored<TB> b{right + first_filter * width, g.filters, width, 1};
      tile::multiply(a, b, z.row, z.column, z.begin, z.end, sum);
      origin += first_filter;
      row_step = g.k;
    } else if constexpr (pass == Pass::backward_data) {
      const Windows<TA> a{g, left + first_filter, t.rows};
      const FilterTaps<TB> b{g, right + first_filter * width};
      tile::multiply(a, b, z.row, z.column, z.begin, z.end, sum);
      origin += first_channel;
      row_step = g.c;
    } else {
      const tile::Stored<TA> a{left + first_filter, g.filters, 1, g.k};
      const PatchColumns<TB> b{g, right + first_channel, width};
      tile::multiply(a, b, z.row, z.column, z.begin, z.end, sum);
      origin += first_filter * width;
      row_step = width;
    }
    tile::visit_own(sum, z.row, z.column, t.rows, t.columns, [&](std::int64_t r, std::int64_t c, A value) {
      store(origin + r * row_step + c, first_filter + c, value);
    });
  }
}

template <Pass pass, class TA, class TB, class TC>
void run_pass(cuda::Stream& stream, const Geometry& g, const Tiles& t, const Tensor& left, const Tensor& right,
              const Tensor& bias, const Tensor& result) {
  using A = acc_t<TC>;
  const cuda::LaunchShape shape{cuda::blocks_for(t.count, 1), tile::threads};
  const bool bias_as_result = bias.defined() && bias.dtype() == result.dtype();
  const Tensor row = bias.defined() && !bias_as_result ? bias.to(dtype_of<A>()) : bias;
  const tile::Store<TC> store{result.data<TC>(), row.defined() ? row.bytes() : nullptr, !bias_as_result, false};
  const TA* const a = left.data<TA>();
  const TB* const b = right.data<TB>();
  if (t.split.count == 1)
    return cuda::launch(stream, "conv2d", shape, conv2d_tiles_kernel<pass, TA, TB, TC>, g, t, a, b, std::int64_t{0},
                        store);
  const std::int64_t elements = result.size();
  const Tensor parts = Tensor::empty({t.split.count, elements}, dtype_of<A>(), result.device());
  cuda::launch(stream, "conv2d parts", shape, conv2d_tiles_kernel<pass, TA, TB, A>, g, t, a, b, elements,
               tile::Store<A>{parts.data<A>(), nullptr, false, false});
  cuda::launch(stream, "conv2d sum", {cuda::blocks_for(elements, 256, 1 << 16), 256}, tile::sum_parts<TC>,
               static_cast<const A*>(parts.data<A>()), t.split.count, elements,
               pass == Pass::forward ? static_cast<std::int64_t>(g.k) : elements, store);
}

template <class T, class W>
void run(cuda::Stream& stream, const Conv2dProblem& problem, const Conv2dOperands& o) {
  const Geometry g = geometry_of(problem.conv.shape);
  const std::int64_t taps = static_cast<std::int64_t>(g.r) * g.s, n = problem.conv.shape.n;
  const std::int64_t outputs = n * g.p * g.q, inputs = n * g.h * g.w;
  switch (problem.pass) {
    case Pass::forward:
      return run_pass<Pass::forward, T, W, T>(stream, g, tiles_of(outputs, g.filters, taps * g.channels, g.groups), o.x,
                                              o.w, o.b, o.y);
    case Pass::backward_data:
      return run_pass<Pass::backward_data, T, W, T>(stream, g, tiles_of(inputs, g.channels, taps * g.filters, g.groups),
                                                    o.y, o.w, Tensor(), o.x);
    case Pass::backward_weights:
      run_pass<Pass::backward_weights, T, T, W>(stream, g, tiles_of(g.filters, taps * g.channels, outputs, g.groups),
                                                o.y, o.x, Tensor(), o.w);
      if (o.b.defined()) sum_rows(stream, o.y, o.b);
  }
}

}  // namespace

void conv2d_tiles(cuda::Stream& stream, const Conv2dProblem& problem, const Conv2dOperands& o) {
  const bool wide_weights = o.w.dtype() == DType::f32;
  switch (o.x.dtype()) {
    case DType::f64:
      return run<double, double>(stream, problem, o);
    case DType::f16:
      return wide_weights ? run<f16, float>(stream, problem, o) : run<f16, f16>(stream, problem, o);
    case DType::bf16:
      return wide_weights ? run<bf16, float>(stream, problem, o) : run<bf16, bf16>(stream, problem, o);
    default:
      return run<float, float>(stream, problem, o);
  }
}

}  // namespace hearth::kernels
