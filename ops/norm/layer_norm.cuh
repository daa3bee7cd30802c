// SPDX-License-Identifier: Apache-2.0
// Layer normalisation of rows that are stored, gathered or made on the way (`Rows`), and its gradient, which is stored,
// scattered or goes further on the way. A row that fits the registers of a warp, or of a block, is read once. The
// gradient reads x and dy once and writes dx; each thread meanwhile sums its columns' shares of dgamma and dbeta over
// all rows that it meets, blocks leave these sums in memory, and a second kernel adds them in order. Which rows meet in
// a thread follows from the shape alone. For kernel sources only.
//
// y and dy have type D: the rows' Element, or f16 or bf16 beside float.
// Rows has an Element; row<held>(group, row, cols, inside), which all threads of a group call together and of which
// each thread holds `held` elements at most: it gives load(c, value) for units of the row, and store(c, value) for
// those of its gradient; ask_for(at) comes a row before the gradient reads element `at`. For rows of any length there
// are element(row, cols, c) and again(row, cols, c) behind it, and store(row, cols, c, value). What normalises and what
// makes gradients may be different Rows, with only load, element and again, or only load, ask_for, element and store.
// Reference: layer_norm_cpu.inc.
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/norm/layer_norm.h"
#include "ops/norm/parameter.h"
#include "ops/row_split.cuh"

namespace hearth::kernels::layer_norm_rows {

using namespace cuda;

constexpr int held_block = 256;  // threads of a block that holds a row
// Of the gradient's kernel the registers of one of today's devices hold three blocks a multiprocessor where lanes share
// rows, or two where a lane has more than 24 elements, for each of which it holds four values; with as many blocks in
// all there is one even wave, and few partial sums are left. Where a block shares a row it is twice as large, and so
// many of them may come in several waves.
constexpr int max_grad_elements = 24;
constexpr int grad_blocks_at_once(int elements) { return elements > max_grad_elements ? 2 : 3; }
constexpr std::int64_t max_grad_blocks(int elements) { return 132 * grad_blocks_at_once(elements); }
template <class Group>
constexpr int held_threads = std::is_same_v<Group, LaneGroup> ? row_block : held_block;

// The longest row that a block holds, `units` units a thread.
constexpr std::int64_t block_cols(int units, int width) { return std::int64_t{held_block} * units * width; }

template <class P>
struct RowStatistics {
  P mean, rstd;
};

// From the sums of deviations from `centre`, which is the mean but for its rounding.
template <class P>
__device__ RowStatistics<P> finish_statistics(P centre, P sum, P squares, P n, double eps) {
  const P rest = sum / n;
  const P variance = squares / n - rest * rest;
  return {centre + rest, P(1) / std::sqrt((variance < P(0) ? P(0) : variance) + static_cast<P>(eps))};
}

// A group of threads a row, held in registers: 2 * sizeof(T) bytes an element, gamma and beta from the cache.
template <class Rows, class D, int width, int units, class Group, class T = typename Rows::Element>
__global__ void __launch_bounds__(held_threads<Group>)
    layer_norm_held(Rows in, const acc_t<T>* gamma, const acc_t<T>* beta, double eps, D* y, acc_t<T>* means,
                    acc_t<T>* rstds, std::int64_t rows, int cols, Group group) {
  using P = acc_t<T>;
  const int index = group.index(), threads = group.threads();
  each_row(group, rows, [&](std::int64_t row, bool inside) {
    const int held = inside ? cols : 0;
    P value[units][width];
    P total = 0, sum = 0, squares = 0;
    const auto from = in.template row<units * width>(group, row, cols, inside);
    each_unit<units, width>(index, threads, held, [&](int u, int c) { from.load(c, value[u]); });
    each_unit<units, width>(index, threads, held, [&](int u, int) {
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) total += value[u][k];
    });
    const P n = static_cast<P>(cols), centre = group.template reduce<Sum>(total, P(0)) / n;
    each_unit<units, width>(index, threads, held, [&](int u, int) {
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) {
        const P d = value[u][k] - centre;
        sum += d;
        squares += d * d;
      }
    });
    sum = group.template reduce<Sum>(sum, P(0));
    squares = group.template reduce<Sum>(squares, P(0));
    const RowStatistics<P> found = finish_statistics(centre, sum, squares, n, eps);
    if (inside && index == 0) {
      means[row] = found.mean;
      rstds[row] = found.rstd;
    }
    each_unit<units, width>(index, threads, held, [&](int u, int c) {
      P scale[width], shift[width];
      load_unit(gamma + c, scale);
      load_unit(beta + c, shift);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) value[u][k] = (value[u][k] - found.mean) * found.rstd * scale[k] + shift[k];
      store_unit(y + row * cols + c, value[u]);
    });
  });
}

// A block a row of any length, read three times, mostly from the cache.
template <class Rows, class D, class T = typename Rows::Element>
__global__ void __launch_bounds__(max_row_block)
    layer_norm_long(Rows in, const acc_t<T>* gamma, const acc_t<T>* beta, double eps, D* y, acc_t<T>* means,
                    acc_t<T>* rstds, std::int64_t rows, std::int64_t cols) {
  using P = acc_t<T>;
  const BlockGroup group;
  const int index = group.index(), threads = group.threads();
  each_row(group, rows, [&](std::int64_t row, bool) {
    P total = 0, sum = 0, squares = 0;
    each_column<1>(index, threads, cols, [&](std::int64_t c) { total += in.element(row, cols, c); });
    const P n = static_cast<P>(cols), centre = group.template reduce<Sum>(total, P(0)) / n;
    each_column<1>(index, threads, cols, [&](std::int64_t c) {
      const P d = in.again(row, cols, c) - centre;
      sum += d;
      squares += d * d;
    });
    sum = group.template reduce<Sum>(sum, P(0));
    squares = group.template reduce<Sum>(squares, P(0));
    const RowStatistics<P> found = finish_statistics(centre, sum, squares, n, eps);
    if (index == 0) {
      means[row] = found.mean;
      rstds[row] = found.rstd;
    }
    each_column<1>(index, threads, cols, [&](std::int64_t c) {
      y[row * cols + c] = cast_down<D>((in.again(row, cols, c) - found.mean) * found.rstd * gamma[c] + beta[c]);
    });
  });
}

// Adds the values that the lanes of a warp hold for the same columns, then those of the block's warps in order, and
// leaves them at `total` [cols] of the block. `merged` is shared memory for cols values. All threads call.
template <int width, int units, class P>
__device__ void merge_over_rows(const LaneGroup& group, P (&value)[units][width], int cols, P* merged, P* total) {
  HEARTH_UNROLL
  for (int u = 0; u < units; ++u) {
    HEARTH_UNROLL
    for (int k = 0; k < width; ++k)
      for (int step = warp_size / 2; step >= group.lanes; step /= 2)
        value[u][k] += __shfl_xor_sync(all_lanes, value[u][k], step);
  }
  const int warp = static_cast<int>(threadIdx.x) / warp_size, warps = static_cast<int>(blockDim.x) / warp_size;
  for (int turn = 0; turn < warps; ++turn) {
    if (warp == turn && lane_id() < group.lanes) {
      each_unit<units, width>(group.index(), group.lanes, cols, [&](int u, int c) {
        HEARTH_UNROLL
        for (int k = 0; k < width; ++k) merged[c + k] = turn == 0 ? value[u][k] : merged[c + k] + value[u][k];
      });
    }
    __syncthreads();
  }
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += static_cast<int>(blockDim.x)) total[c] = merged[c];
  __syncthreads();
}

// In a block that shares each row a thread already has the sums of its columns.
template <int width, int units, class P>
__device__ void merge_over_rows(const BlockGroup& group, P (&value)[units][width], int cols, P*, P* total) {
  each_unit<units, width>(group.index(), group.threads(), cols, [&](int u, int c) {
    HEARTH_UNROLL
    for (int k = 0; k < width; ++k) total[c + k] = value[u][k];
  });
}

// A group of threads a row: x and dy are read once and dx, which may be dy, is written once; 3 * sizeof(T) bytes an
// element. `partial` [blocks, 2, cols] receives the block's share of dgamma and dbeta. Dynamic shared memory: cols
// values of P where lanes share rows.
template <class Rows, class D, int width, int units, class Group, class T = typename Rows::Element>
__global__ void __launch_bounds__(held_threads<Group>,
                                  std::is_same_v<Group, LaneGroup> ? grad_blocks_at_once(units* width) : 1)
    layer_norm_grad_held(Rows x, const D* dy, const acc_t<T>* gamma, const acc_t<T>* means, const acc_t<T>* rstds,
                         acc_t<T>* partial, std::int64_t rows, int cols, Group group) {
  using P = acc_t<T>;
  const int index = group.index(), threads = group.threads();
  P d_gamma[units][width], d_beta[units][width];
  HEARTH_UNROLL
  for (int u = 0; u < units; ++u) {
    HEARTH_UNROLL
    for (int k = 0; k < width; ++k) d_gamma[u][k] = d_beta[u][k] = 0;
  }
  each_row(group, rows, [&](std::int64_t row, bool inside) {
    const int held = inside ? cols : 0;
    const P mean = means[row], rstd = rstds[row];
    const auto of = x.template row<units * width>(group, row, cols, inside);
    P normal[units][width], slope[units][width];
    P sum = 0, product = 0;
    each_unit<units, width>(index, threads, held, [&](int u, int c) {
      of.load(c, normal[u]);
      load_unit(dy + row * cols + c, slope[u]);
    });
    // Too few warps have registers here to keep memory busy with their own rows alone.
    const std::int64_t next = row + group.row_step();
    each_unit<units, width>(index, threads, next < rows ? cols : 0, [&](int, int c) {
      x.ask_for(next * cols + c);
      prefetch(dy + next * cols + c);
    });
    each_unit<units, width>(index, threads, held, [&](int u, int c) {
      P scale[width];
      load_unit(gamma + c, scale);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) {
        const P d = slope[u][k], centred = (normal[u][k] - mean) * rstd, g = d * scale[k];
        sum += g;
        product += g * centred;
        d_gamma[u][k] += d * centred;
        d_beta[u][k] += d;
        normal[u][k] = centred;
        slope[u][k] = g;
      }
    });
    const P n = static_cast<P>(cols);
    const P a = group.template reduce<Sum>(sum, P(0)) / n, b = group.template reduce<Sum>(product, P(0)) / n;
    each_unit<units, width>(index, threads, held, [&](int u, int c) {
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) slope[u][k] = rstd * (slope[u][k] - a - normal[u][k] * b);
      of.store(c, slope[u]);
    });
  });
  P* merged = nullptr;
  if constexpr (std::is_same_v<Group, LaneGroup>) merged = dynamic_shared<P>();
  P* const total = partial + static_cast<std::int64_t>(blockIdx.x) * 2 * cols;
  merge_over_rows(group, d_gamma, cols, merged, total);
  merge_over_rows(group, d_beta, cols, merged, total + cols);
}

// A block a row of any length; dx only, which may be dy.
template <class Rows, class D, class T = typename Rows::Element>
__global__ void __launch_bounds__(max_row_block)
    layer_norm_grad_long(Rows x, const D* dy, const acc_t<T>* gamma, const acc_t<T>* means, const acc_t<T>* rstds,
                         std::int64_t rows, std::int64_t cols) {
  using P = acc_t<T>;
  const BlockGroup group;
  const int index = group.index(), threads = group.threads();
  each_row(group, rows, [&](std::int64_t row, bool) {
    const P mean = means[row], rstd = rstds[row];
    P sum = 0, product = 0;
    each_column<1>(index, threads, cols, [&](std::int64_t c) {
      const P g = upcast(dy[row * cols + c]) * gamma[c];
      sum += g;
      product += g * ((x.element(row, cols, c) - mean) * rstd);
    });
    const P n = static_cast<P>(cols);
    const P a = group.template reduce<Sum>(sum, P(0)) / n, b = group.template reduce<Sum>(product, P(0)) / n;
    each_column<1>(index, threads, cols, [&](std::int64_t c) {
      const P g = upcast(dy[row * cols + c]) * gamma[c];
      x.store(row, cols, c, rstd * (g - a - (x.element(row, cols, c) - mean) * rstd * b));
    });
  });
}

// The shares of dgamma and dbeta of rows that no block holds: a thread a column, blockIdx.y a run of rows.
template <class Rows, class D, class T = typename Rows::Element>
__global__ void layer_norm_parameter_shares(Rows x, const D* dy, const acc_t<T>* means, const acc_t<T>* rstds,
                                            acc_t<T>* partial, std::int64_t rows, std::int64_t cols,
                                            std::int64_t rows_each) {
  using P = acc_t<T>;
  const std::int64_t c = global_thread(), begin = blockIdx.y * rows_each;
  if (c >= cols) return;
  P d_gamma = 0, d_beta = 0;
  for (std::int64_t row = begin; row < begin + rows_each && row < rows; ++row) {
    const P d = upcast(dy[row * cols + c]);
    d_gamma += d * ((x.element(row, cols, c) - means[row]) * rstds[row]);
    d_beta += d;
  }
  P* const total = partial + blockIdx.y * 2 * cols;
  total[c] = d_gamma;
  total[cols + c] = d_beta;
}

// d_gamma and d_beta (null where not wanted) from the shares [shares, 2, cols], in f64: 32 neighbouring columns a
// block, whose eight warps add every eighth share each.
constexpr int share_warps = 8;

template <class P>
__global__ void layer_norm_add_shares(const P* partial, std::int64_t shares, std::int64_t cols, P* d_gamma, P* d_beta) {
  HEARTH_SHARED(double, sums, [share_warps][warp_size]);
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * warp_size + lane;
  double sum = 0;
  if (column < 2 * cols)
    for (std::int64_t share = warp; share < shares; share += share_warps)
      sum += static_cast<double>(partial[share * 2 * cols + column]);
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= 2 * cols) return;
  for (int w = 1; w < share_warps; ++w) sum += sums[w][lane];
  P* const to = column < cols ? d_gamma : d_beta;
  if (to != nullptr) to[column % cols] = static_cast<P>(sum);
}

template <class D, int width, int units, class Rows, class Group, class T = typename Rows::Element>
void run_held(cuda::Stream& stream, const char* name, const Rows& in, const Normalized& o, Group group,
              const LaunchShape& shape) {
  using P = acc_t<T>;
  const std::int64_t cols = o.y.dim(-1);
  launch(stream, name, shape, layer_norm_held<Rows, D, width, units, Group>, in, o.gamma.data<P>(), o.beta.data<P>(),
         o.eps, o.y.data<D>(), o.mean.data<P>(), o.rstd.data<P>(), o.y.size() / cols, cols, group);
}

/// y of the rows of `in`, whose arrays have `row_bytes` bytes and may be read in units of `width`.
template <class D, int width, class Rows, class T = typename Rows::Element>
void normalize_rows(cuda::Stream& stream, const char* name, const Rows& in, std::int64_t row_bytes,
                    const Normalized& o) {
  constexpr int units = lane_units<T, width>;
  using P = acc_t<T>;
  const std::int64_t cols = o.y.dim(-1), rows = o.y.size() / cols;
  const std::int64_t bytes = row_bytes + bytes_of(o.gamma, o.beta, o.y, o.mean, o.rstd);
  if (cols <= warp_cols<T, width>) {
    const int lanes = lanes_for(cols, width, units);
    run_held<D, width, units>(stream, name, in, o, LaneGroup{lanes},
                              {lane_group_blocks(rows, lanes), row_block, 0, bytes});
  } else if (cols <= block_cols(8 / width, width)) {
    run_held<D, width, 8 / width>(stream, name, in, o, BlockGroup{}, {blocks_for(rows, 1), held_block, 0, bytes});
  } else if (cols <= block_cols(units, width)) {
    run_held<D, width, units>(stream, name, in, o, BlockGroup{}, {blocks_for(rows, 1), held_block, 0, bytes});
  } else {
    launch(stream, name, {blocks_for(rows, 1), long_row_block(cols), 0, bytes}, layer_norm_long<Rows, D>, in,
           o.gamma.data<P>(), o.beta.data<P>(), o.eps, o.y.data<D>(), o.mean.data<P>(), o.rstd.data<P>(), rows, cols);
  }
}

template <class P>
void add_shares(cuda::Stream& stream, const Tensor& partial, std::int64_t cols, const Tensor& d_gamma,
                const Tensor& d_beta) {
  if (!d_gamma.defined() && !d_beta.defined()) return;
  launch(stream, "layer_norm_add_shares",
         {blocks_for(2 * cols, warp_size), share_warps * warp_size, 0, bytes_of(partial, d_gamma, d_beta)},
         layer_norm_add_shares<P>, partial.data<P>(), partial.dim(0), cols,
         d_gamma.defined() ? d_gamma.data<P>() : nullptr, d_beta.defined() ? d_beta.data<P>() : nullptr);
}

template <class D, int width, int units, class Rows, class Group, class T = typename Rows::Element>
void run_held_gradient(cuda::Stream& stream, const char* name, const Rows& x, std::int64_t row_bytes,
                       const NormGradient& g, Group group, std::int64_t blocks_wanted, unsigned block) {
  using P = acc_t<T>;
  const std::int64_t cols = g.dy.dim(-1), blocks = std::min(blocks_wanted, max_grad_blocks(units * width));
  const Tensor partial = Tensor::empty({blocks, 2, cols}, dtype_of<P>(), g.dy.device());
  const std::size_t shared = std::is_same_v<Group, LaneGroup> ? static_cast<std::size_t>(cols) * sizeof(P) : 0;
  launch(stream, name,
         {static_cast<unsigned>(blocks), block, shared, row_bytes + bytes_of(g.dy, g.gamma, g.mean, g.rstd, partial)},
         layer_norm_grad_held<Rows, D, width, units, Group>, x, g.dy.data<D>(), g.gamma.data<P>(), g.mean.data<P>(),
         g.rstd.data<P>(), partial.data<P>(), g.dy.size() / cols, cols, group);
  add_shares<P>(stream, partial, cols, g.d_gamma, g.d_beta);
}

template <class D, class Rows, class T = typename Rows::Element>
void run_long_gradient(cuda::Stream& stream, const char* name, const Rows& x, std::int64_t row_bytes,
                       const NormGradient& g) {
  using P = acc_t<T>;
  const std::int64_t cols = g.dy.dim(-1), rows = g.dy.size() / cols;
  // Before dx, which may be dy, is written.
  const std::int64_t rows_each = std::max<std::int64_t>(16, (rows + 63) / 64),
                     shares = (rows + rows_each - 1) / rows_each;
  const Tensor partial = Tensor::empty({shares, 2, cols}, dtype_of<P>(), g.dy.device());
  launch(stream, "layer_norm_parameter_shares",
         {{blocks_for(cols, 256), static_cast<unsigned>(shares)},
          256,
          0,
          row_bytes + bytes_of(g.dy, g.mean, g.rstd, partial)},
         layer_norm_parameter_shares<Rows, D>, x, g.dy.data<D>(), g.mean.data<P>(), g.rstd.data<P>(), partial.data<P>(),
         rows, cols, rows_each);
  add_shares<P>(stream, partial, cols, g.d_gamma, g.d_beta);
  launch(stream, name,
         {blocks_for(rows, 1), long_row_block(cols), 0, row_bytes + bytes_of(g.dy, g.gamma, g.mean, g.rstd)},
         layer_norm_grad_long<Rows, D>, x, g.dy.data<D>(), g.gamma.data<P>(), g.mean.data<P>(), g.rstd.data<P>(), rows,
         cols);
}

/// Whether there are no rows; the gradients of gamma and beta become zeros then.
inline bool settles_empty(const NormGradient& g) {
  if (g.dy.size() > 0) return false;
  for (const Tensor* const gradient : {&g.d_gamma, &g.d_beta})
    if (gradient->defined()) gradient->fill_(0);
  return true;
}

/// The gradient of the rows `x`, which take it, and of gamma and beta. The arrays of `x` have `row_bytes` bytes.
template <class D, int width, class Rows, class T = typename Rows::Element>
void normalize_rows_grad(cuda::Stream& stream, const char* name, const Rows& x, std::int64_t row_bytes,
                         const NormGradient& g) {
  constexpr int units = lane_units<T, width>, fewer = std::min(units, max_grad_elements / width);
  const std::int64_t cols = g.dy.dim(-1), rows = g.dy.size() / cols;
  if (cols <= warp_size * fewer * width) {
    const int lanes = lanes_for(cols, width, fewer);
    run_held_gradient<D, width, fewer>(stream, name, x, row_bytes, g, LaneGroup{lanes}, lane_group_blocks(rows, lanes),
                                       row_block);
  } else if (cols <= warp_cols<T, width>) {
    const int lanes = lanes_for(cols, width, units);
    run_held_gradient<D, width, units>(stream, name, x, row_bytes, g, LaneGroup{lanes}, lane_group_blocks(rows, lanes),
                                       row_block);
  } else if (cols <= block_cols(8 / width, width)) {
    run_held_gradient<D, width, 8 / width>(stream, name, x, row_bytes, g, BlockGroup{}, rows, held_block);
  } else if (cols <= block_cols(units, width)) {
    run_held_gradient<D, width, units>(stream, name, x, row_bytes, g, BlockGroup{}, rows, held_block);
  } else {
    run_long_gradient<D>(stream, name, x, row_bytes, g);
  }
}

}  // namespace hearth::kernels::layer_norm_rows
