// SPDX-License-Identifier: Apache-2.0
// Rows that fit the registers of a warp are read once and written once; longer ones are shared by a block, which finds
// the largest element and the sum in one reading and reads the row again, mostly from the cache, to write the result.
// The two forms of the op differ in a few instructions only, so they share kernels.
// Reference: softmax_cpu.cpp.
#include "ops/softmax/softmax.h"

#include "ops/softmax/online_sum.cuh"

namespace hearth::kernels {
namespace {

using namespace cuda;

template <class P>
__device__ __forceinline__ P softmax_value(bool logarithm, P x, P most, P sum, P log_sum) {
  return logarithm ? (x - most) - log_sum : std::exp(x - most) / sum;
}

template <class P>
__device__ __forceinline__ P softmax_slope(bool logarithm, P y, P dy, P sum) {
  return logarithm ? dy - std::exp(y) * sum : y * (dy - sum);
}

// `lanes` lanes a row, kept in registers. 2 * sizeof(T) bytes an element; sums in acc_t.
template <class T, int width>
__global__ void __launch_bounds__(row_block)
    softmax_short(const T* x, T* y, std::int64_t rows, int cols, int lanes, bool logarithm) {
  using P = acc_t<T>;
  constexpr int units = lane_units<T, width>;
  const LaneGroup group{lanes};
  each_row(group, rows, [&](std::int64_t row, bool inside) {
    const int held = inside ? cols : 0;
    P value[units][width];
    P most = -std::numeric_limits<P>::infinity();
    const T* const from = x + row * cols;
    each_unit<units, width>(group.index(), lanes, held, [&](int u, int c) { load_unit(from + c, value[u]); });
    each_unit<units, width>(group.index(), lanes, held, [&](int u, int) {
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) most = value[u][k] > most ? value[u][k] : most;
    });
    most = group.reduce<Largest>(most, most);
    P sum = 0;
    each_unit<units, width>(group.index(), lanes, held, [&](int u, int) {
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) {
        const P above = value[u][k] - most, e = std::exp(above);
        sum += e;
        value[u][k] = logarithm ? above : e;
      }
    });
    sum = group.reduce<Sum>(sum, sum);
    const P log_sum = std::log(sum), inverse = P(1) / sum;
    T* const to = y + row * cols;
    each_unit<units, width>(group.index(), lanes, held, [&](int u, int c) {
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) value[u][k] = logarithm ? value[u][k] - log_sum : value[u][k] * inverse;
      store_unit(to + c, value[u]);
    });
  });
}

// A block a row. From memory x is read once and y written once as long as the rows under way fit the cache.
template <class T, int width>
__global__ void __launch_bounds__(max_row_block)
    softmax_long(const T* x, T* y, std::int64_t rows, std::int64_t cols, bool logarithm) {
  using P = acc_t<T>;
  const BlockGroup group;
  each_row(group, rows, [&](std::int64_t row, bool) {
    const T* const from = x + row * cols;
    OnlineSum<P> state;
    each_column<width>(group.index(), group.threads(), cols, [&](std::int64_t c) {
      P value[width];
      load_unit(from + c, value);
      state.add(value);
    });
    state.join(group);
    const P log_sum = std::log(state.sum);
    each_column<width>(group.index(), group.threads(), cols, [&](std::int64_t c) {
      P value[width];
      load_unit(from + c, value);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) value[k] = softmax_value(logarithm, value[k], state.most, state.sum, log_sum);
      store_unit(y + row * cols + c, value);
    });
  });
}

// `lanes` lanes a row: y and dy are read once, dx written once. dx may be dy.
template <class T, int width>
__global__ void __launch_bounds__(row_block)
    softmax_grad_short(const T* y, const T* dy, T* dx, std::int64_t rows, int cols, int lanes, bool logarithm) {
  using P = acc_t<T>;
  constexpr int units = lane_units<T, width>;
  const LaneGroup group{lanes};
  each_row(group, rows, [&](std::int64_t row, bool inside) {
    const int held = inside ? cols : 0;
    P result[units][width], slope[units][width];
    P sum = 0;
    each_unit<units, width>(group.index(), lanes, held, [&](int u, int c) {
      load_unit(y + row * cols + c, result[u]);
      load_unit(dy + row * cols + c, slope[u]);
    });
    each_unit<units, width>(group.index(), lanes, held, [&](int u, int) {
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) sum += logarithm ? slope[u][k] : result[u][k] * slope[u][k];
    });
    sum = group.reduce<Sum>(sum, sum);
    each_unit<units, width>(group.index(), lanes, held, [&](int u, int c) {
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) slope[u][k] = softmax_slope(logarithm, result[u][k], slope[u][k], sum);
      store_unit(dx + row * cols + c, slope[u]);
    });
  });
}

// A block a row, read twice, the second time mostly from the cache. dx may be dy.
template <class T, int width>
__global__ void __launch_bounds__(max_row_block)
    softmax_grad_long(const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t cols, bool logarithm) {
  using P = acc_t<T>;
  const BlockGroup group;
  each_row(group, rows, [&](std::int64_t row, bool) {
    P sum = 0;
    each_column<width>(group.index(), group.threads(), cols, [&](std::int64_t c) {
      P result[width], slope[width];
      load_unit(y + row * cols + c, result);
      load_unit(dy + row * cols + c, slope);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) sum += logarithm ? slope[k] : result[k] * slope[k];
    });
    sum = group.template reduce<Sum>(sum, P(0));
    each_column<width>(group.index(), group.threads(), cols, [&](std::int64_t c) {
      P result[width], slope[width];
      load_unit(y + row * cols + c, result);
      load_unit(dy + row * cols + c, slope);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) slope[k] = softmax_slope(logarithm, result[k], slope[k], sum);
      store_unit(dx + row * cols + c, slope);
    });
  });
}

}  // namespace

void softmax(cuda::Stream& stream, bool logarithm, const Tensor& x, const Tensor& y) {
  if (x.size() == 0) return;
  const char* const op = logarithm ? "log_softmax" : "softmax";
  const std::int64_t cols = x.dim(-1), rows = x.size() / cols;
  visit_rows(op, x.dtype(), cols, {x.bytes(), y.bytes()}, [&]<class T, int width>() {
    if (cols <= warp_cols<T, width>) {
      const int lanes = lanes_for(cols, width, lane_units<T, width>);
      launch(stream, op, {lane_group_blocks(rows, lanes), row_block, 0, bytes_of(x, y)}, softmax_short<T, width>,
             x.data<T>(), y.data<T>(), rows, cols, lanes, logarithm);
    } else {
      launch(stream, op, {blocks_for(rows, 1), long_row_block(cols), 0, bytes_of(x, y)}, softmax_long<T, width>,
             x.data<T>(), y.data<T>(), rows, cols, logarithm);
    }
  });
}

void softmax_grad(cuda::Stream& stream, bool logarithm, const Tensor& y, const Tensor& dy, const Tensor& dx) {
  if (y.size() == 0) return;
  const char* const op = logarithm ? "log_softmax_grad" : "softmax_grad";
  const std::int64_t cols = y.dim(-1), rows = y.size() / cols;
  visit_rows(op, y.dtype(), cols, {y.bytes(), dy.bytes(), dx.bytes()}, [&]<class T, int width>() {
    if (cols <= warp_cols<T, width>) {
      const int lanes = lanes_for(cols, width, lane_units<T, width>);
      launch(stream, op, {lane_group_blocks(rows, lanes), row_block, 0, bytes_of(y, dy, dx)},
             softmax_grad_short<T, width>, y.data<T>(), dy.data<T>(), dx.data<T>(), rows, cols, lanes, logarithm);
    } else {
      launch(stream, op, {blocks_for(rows, 1), long_row_block(cols), 0, bytes_of(y, dy, dx)},
             softmax_grad_long<T, width>, y.data<T>(), dy.data<T>(), dx.data<T>(), rows, cols, logarithm);
    }
  });
}

}  // namespace hearth::kernels
