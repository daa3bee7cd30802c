// SPDX-License-Identifier: Apache-2.0
// Layer normalisation of rows that are stored, gathered or made on the way (`Rows`), and its gradient, which is stored,
// scattered or goes further on the way. A row that fits the registers of a warp, or of a block, is read once. The
// gradient reads x and dy once and writes dx; each thread meanwhile sums its columns' shares of dgamma and dbeta over
// all rows that it meets, blocks leave these sums in memory, and a second kernel adds them in order. Which rows meet in
// a thread follows from the shape alone. For kernel sources only.
//
// y and dy have type D: the rows' Element, or f16 or bf16 beside float.
// Rows has an Element and row(row, cols, inside), whose Row has the `inside` that it was given. All threads of a group
// call its begin<held>(group, cols) together before they use the row's values, each of them at most `held`. Units of a
// row come in two steps, so that a thread has many loads under way: fetch<width>(c) loads a Piece<width> and nothing
// waits for it, take(c, piece, value) gives its values; store(c, piece, value) takes those of the gradient. ask_for(at)
// comes a row before the gradient fetches element `at`. For rows of any length there are element(row, cols, c) and
// again(row, cols, c) behind it, and store(row, cols, c, value). What normalises and what makes gradients may be
// different Rows, without store and ask_for the one, without again the other.
// Reference: layer_norm_cpu.cpp.
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/device/multiprocessors.h"
#include "ops/device/row_split.cuh"
#include "ops/norm/layer_norm.h"
#include "ops/norm/parameter.h"

namespace hearth::kernels::layer_norm_rows {

using namespace cuda;

constexpr int held_block = 256;  // threads of a block that holds a row
template <class Group>
constexpr int held_threads = std::is_same_v<Group, LaneGroup> ? row_block : held_block;

// Blocks of lanes that share rows are as many as one of today's devices has at work at once: one even wave, in which
// each thread has its next row under way while it works on one. How many a multiprocessor has follows from the
// registers of a thread: with 32-bit words of its row and of the next, besides some forty.
constexpr int blocks_at_once(int words) { return words <= 36 ? 6 : words <= 48 ? 5 : words <= 72 ? 4 : 3; }
template <class Rows, int width, int units, bool whole>
constexpr int lane_blocks = blocks_at_once(units*(width* static_cast<int>(sizeof(acc_t<typename Rows::Element>)) +
                                                  static_cast<int>(sizeof(typename Rows::Row::template Piece<width>))) /
                                               4 +
                                           (whole ? 0 : 8));

// The gradient's blocks hold four values for each element of a lane; fewer of them leave few partial sums. Where a
// block shares a row it is twice as large, and so many of them may come in several waves.
constexpr int max_grad_elements = 24;
constexpr int grad_blocks_at_once(int elements) { return elements > max_grad_elements ? 2 : 3; }
constexpr std::int64_t max_grad_blocks(int elements) { return multiprocessors * grad_blocks_at_once(elements); }

// The longest row that a block holds, `units` units a thread.
constexpr std::int64_t block_cols(int units, int width) { return std::int64_t{held_block} * units * width; }

// The most units of a lane whose rows have no bounds to look at, because its lanes have as many each.
constexpr int most_whole_units = 6;

// f(unit, column) for what a thread holds of a row, of which `cols` columns exist: all or, where `whole`, all or none.
template <bool whole, int units, int width, class F>
__device__ __forceinline__ void each_held(int index, int threads, int cols, F&& f) {
  if constexpr (whole) {
    if (cols == 0) return;
    HEARTH_UNROLL
    for (int u = 0; u < units; ++u) f(u, (u * threads + index) * width);
  } else {
    each_unit<units, width>(index, threads, cols, f);
  }
}

// The sums of two values over the group.
template <class P>
__device__ __forceinline__ void add_up(const LaneGroup& group, P& a, P& b) {
  for (int step = group.lanes / 2; step > 0; step /= 2) {
    a += __shfl_xor_sync(all_lanes, a, step);
    b += __shfl_xor_sync(all_lanes, b, step);
  }
}
template <class P>
__device__ __forceinline__ void add_up(const BlockGroup& group, P& a, P& b) {
  a = group.template reduce<Sum>(a, P(0));
  b = group.template reduce<Sum>(b, P(0));
}

template <class P>
struct RowStatistics {
  P mean, rstd;
};

// From the sums of deviations from `centre`, which is the mean but for its rounding; `part` is 1 / columns.
template <class P>
__device__ RowStatistics<P> finish_statistics(P centre, P sum, P squares, P part, double eps) {
  const P rest = sum * part;
  const P variance = squares * part - rest * rest;
  return {centre + rest, P(1) / std::sqrt((variance < P(0) ? P(0) : variance) + static_cast<P>(eps))};
}

// A group of threads a row, held in registers: 2 * sizeof(T) bytes an element, gamma and beta from the cache.
template <class Rows, class D, int width, int units, bool whole, class Group, class T = typename Rows::Element>
__global__ void __launch_bounds__(held_threads<Group>,
                                  std::is_same_v<Group, LaneGroup> ? lane_blocks<Rows, width, units, whole> : 1)
    layer_norm_held(Rows in, const acc_t<T>* gamma, const acc_t<T>* beta, double eps, D* y, acc_t<T>* means,
                    acc_t<T>* rstds, std::int64_t rows, int cols, Group group) {
  using P = acc_t<T>;
  using Row = typename Rows::Row;
  const int index = group.index(), threads = group.threads();
  const P part = P(1) / static_cast<P>(cols);
  const auto over = [&](bool inside, auto&& f) {
    each_held<whole, units, width>(index, threads, inside ? cols : 0, f);
  };
  // The row is the last one again where there is none.
  const auto number = [&](std::int64_t first) { return std::min(first + group.row_in_step(), rows - 1); };
  const auto row_at = [&](std::int64_t first) {
    return in.row(number(first), cols, first + group.row_in_step() < rows);
  };
  typename Row::template Piece<width> piece[units];
  Row next = row_at(group.first_row());
  over(next.inside, [&](int u, int c) { piece[u] = next.template fetch<width>(c); });
  for (std::int64_t first = group.first_row(); first < rows; first += group.row_step()) {
    Row of = next;
    of.template begin<units * width>(group, cols);
    P value[units][width];
    P total = 0, none = 0, sum = 0, squares = 0;
    over(of.inside, [&](int u, int c) { of.take(c, piece[u], value[u]); });
    if (first + group.row_step() < rows) {
      next = row_at(first + group.row_step());
      over(next.inside, [&](int u, int c) { piece[u] = next.template fetch<width>(c); });
    }
    over(of.inside, [&](int u, int) {
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) total += value[u][k];
    });
    const P centre = group.template reduce<Sum>(total, none) * part;
    over(of.inside, [&](int u, int) {
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) {
        const P d = value[u][k] - centre;
        sum += d;
        squares += d * d;
      }
    });
    add_up(group, sum, squares);
    const RowStatistics<P> found = finish_statistics(centre, sum, squares, part, eps);
    const std::int64_t row = number(first);
    if (of.inside && index == 0) {
      means[row] = found.mean;
      rstds[row] = found.rstd;
    }
    over(of.inside, [&](int u, int c) {
      P scale[width], shift[width];
      load_unit(gamma + c, scale);
      load_unit(beta + c, shift);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) value[u][k] = (value[u][k] - found.mean) * found.rstd * scale[k] + shift[k];
      store_unit(y + row * cols + c, value[u]);
    });
  }
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
    const P part = P(1) / static_cast<P>(cols), centre = group.template reduce<Sum>(total, P(0)) * part;
    each_column<1>(index, threads, cols, [&](std::int64_t c) {
      const P d = in.again(row, cols, c) - centre;
      sum += d;
      squares += d * d;
    });
    sum = group.template reduce<Sum>(sum, P(0));
    squares = group.template reduce<Sum>(squares, P(0));
    const RowStatistics<P> found = finish_statistics(centre, sum, squares, part, eps);
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
        P so_far[width] = {};
        if (turn > 0) load_unit(merged + c, so_far);
        HEARTH_UNROLL
        for (int k = 0; k < width; ++k) so_far[k] += value[u][k];
        store_unit(merged + c, so_far);
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

// What a thread has of a row for its gradient.
template <class Rows, class D, int width, int units>
struct GradientRow {
  typename Rows::Row row;
  acc_t<typename Rows::Element> mean, rstd;
  typename Rows::Row::template Piece<width> piece[units];
  RawUnit<D, width> dy[units];
};

// A group of threads a row: x and dy are read once and dx, which may be dy, is written once; 3 * sizeof(T) bytes an
// element. `partial` [blocks, 2, cols] receives the block's share of dgamma and dbeta. Dynamic shared memory: cols
// values of P where lanes share rows.
template <class Rows, class D, int width, int units, bool whole, class Group, class T = typename Rows::Element>
__global__ void __launch_bounds__(held_threads<Group>,
                                  std::is_same_v<Group, LaneGroup> ? grad_blocks_at_once(units* width) : 1)
    layer_norm_grad_held(Rows x, const D* dy, const acc_t<T>* gamma, const acc_t<T>* means, const acc_t<T>* rstds,
                         acc_t<T>* partial, std::int64_t rows, int cols, Group group) {
  using P = acc_t<T>;
  // The next row waits in registers, or else in the cache.
  constexpr bool ahead = whole && units * width <= 32;
  const int index = group.index(), threads = group.threads();
  const P part = P(1) / static_cast<P>(cols);
  const auto over = [&](bool inside, auto&& f) {
    each_held<whole, units, width>(index, threads, inside ? cols : 0, f);
  };
  P d_gamma[units][width], d_beta[units][width];
  HEARTH_UNROLL
  for (int u = 0; u < units; ++u) {
    HEARTH_UNROLL
    for (int k = 0; k < width; ++k) d_gamma[u][k] = d_beta[u][k] = 0;
  }
  // The row is the last one again where there is none.
  const auto load = [&](std::int64_t first) {
    const bool inside = first + group.row_in_step() < rows;
    const std::int64_t row = inside ? first + group.row_in_step() : rows - 1;
    GradientRow<Rows, D, width, units> loaded{x.row(row, cols, inside), means[row], rstds[row], {}, {}};
    over(inside, [&](int u, int c) {
      loaded.piece[u] = loaded.row.template fetch<width>(c);
      loaded.dy[u] = load_raw<width>(dy + row * cols + c);
    });
    return loaded;
  };
  const std::int64_t step = group.row_step();
  auto next = load(group.first_row());
  for (std::int64_t first = group.first_row(); first < rows; first += step) {
    auto now = next;
    now.row.template begin<units * width>(group, cols);
    if (ahead && first + step < rows) next = load(first + step);
    if constexpr (!ahead) {
      const std::int64_t row = first + step + group.row_in_step();
      each_unit<units, width>(index, threads, row < rows ? cols : 0, [&](int, int c) {
        x.ask_for(row * cols + c);
        prefetch(dy + row * cols + c);
      });
    }
    // f(unit, column, dy, normalised x, slope of the result by it)
    const auto values = [&](auto&& f) {
      over(now.row.inside, [&](int u, int c) {
        P d[width], normal[width], slope[width];
        now.row.take(c, now.piece[u], normal);
        unpack<D, width>(now.dy[u], d);
        load_unit(gamma + c, slope);
        HEARTH_UNROLL
        for (int k = 0; k < width; ++k) {
          normal[k] = (normal[k] - now.mean) * now.rstd;
          slope[k] *= d[k];
        }
        f(u, c, d, normal, slope);
      });
    };
    P sum = 0, product = 0;
    values([&](int u, int, const auto& d, const auto& normal, const auto& slope) {
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) {
        sum += slope[k];
        product += slope[k] * normal[k];
        d_gamma[u][k] += d[k] * normal[k];
        d_beta[u][k] += d[k];
      }
    });
    add_up(group, sum, product);
    const P a = sum * part, b = product * part;
    values([&](int u, int c, const auto&, const auto& normal, auto& slope) {
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) slope[k] = now.rstd * (slope[k] - a - normal[k] * b);
      now.row.store(c, now.piece[u], slope);
    });
    if (!ahead && first + step < rows) next = load(first + step);
  }
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
// block, whose warps add every 32nd share each: then a dozen loads are all that one waits for.
constexpr int share_warps = 32;

template <class P>
__global__ void __launch_bounds__(share_warps* warp_size)
    layer_norm_add_shares(const P* partial, std::int64_t shares, std::int64_t cols, P* d_gamma, P* d_beta) {
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

// Calls f<units>() and is true where 16-byte units of 16-bit elements fill the lanes of a row evenly.
template <class T, int width, class F>
bool with_whole_units(std::int64_t cols, F&& f) {
  if constexpr (sizeof(T) == 2 && width > 1) {
    const std::int64_t units = cols / width;
    const int lanes = lanes_for(cols, width, most_whole_units);
    if (units % lanes != 0) return false;
    return [&]<int... less>(std::integer_sequence<int, less...>) {
      return ((units / lanes == less + 1 && (f.template operator()<less + 1>(LaneGroup{lanes}), true)) || ...);
    }
    (std::make_integer_sequence<int, most_whole_units>());
  } else {
    return false;
  }
}

/// y of the rows of `in`, whose arrays have `row_bytes` bytes and may be read in units of `width`.
template <class D, int width, class Rows, class T = typename Rows::Element>
void normalize_rows(cuda::Stream& stream, const char* name, const Rows& in, std::int64_t row_bytes,
                    const Normalized& o) {
  constexpr int units = lane_units<T, width>;
  using P = acc_t<T>;
  const std::int64_t cols = o.y.dim(-1), rows = o.y.size() / cols;
  const std::int64_t bytes = row_bytes + bytes_of(o.gamma, o.beta, o.y, o.mean, o.rstd);
  const auto run = [&]<int held, bool whole, class Group>(Group group) {
    std::int64_t blocks = rows;
    if constexpr (std::is_same_v<Group, LaneGroup>)
      blocks = blocks_for(rows, row_block / group.lanes, multiprocessors * lane_blocks<Rows, width, held, whole>);
    launch(stream, name, {blocks_for(blocks, 1), held_threads<Group>, 0, bytes},
           layer_norm_held<Rows, D, width, held, whole, Group>, in, o.gamma.data<P>(), o.beta.data<P>(), o.eps,
           o.y.data<D>(), o.mean.data<P>(), o.rstd.data<P>(), rows, cols, group);
  };
  if (with_whole_units<T, width>(cols, [&]<int held>(LaneGroup group) { run.template operator()<held, true>(group); }))
    return;
  if (cols <= warp_cols<T, width>)
    run.template operator()<units, false>(LaneGroup{lanes_for(cols, width, units)});
  else if (cols <= block_cols(8 / width, width))
    run.template operator()<8 / width, false>(BlockGroup{});
  else if (cols <= block_cols(units, width))
    run.template operator()<units, false>(BlockGroup{});
  else
    launch(stream, name, {blocks_for(rows, 1), long_row_block(cols), 0, bytes}, layer_norm_long<Rows, D>, in,
           o.gamma.data<P>(), o.beta.data<P>(), o.eps, o.y.data<D>(), o.mean.data<P>(), o.rstd.data<P>(), rows, cols);
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
  using P = acc_t<T>;
  const std::int64_t cols = g.dy.dim(-1), rows = g.dy.size() / cols;
  const auto run = [&]<int held, bool whole, class Group>(Group group) {
    std::int64_t blocks = rows;
    std::size_t shared = 0;
    if constexpr (std::is_same_v<Group, LaneGroup>) {
      blocks = lane_group_blocks(rows, group.lanes);
      shared = static_cast<std::size_t>(cols) * sizeof(P);
    }
    blocks = std::min(blocks, max_grad_blocks(held * width));
    const Tensor partial = Tensor::empty({blocks, 2, cols}, dtype_of<P>(), g.dy.device());
    launch(stream, name,
           {static_cast<unsigned>(blocks), held_threads<Group>, shared,
            row_bytes + bytes_of(g.dy, g.gamma, g.mean, g.rstd, partial)},
           layer_norm_grad_held<Rows, D, width, held, whole, Group>, x, g.dy.data<D>(), g.gamma.data<P>(),
           g.mean.data<P>(), g.rstd.data<P>(), partial.data<P>(), rows, cols, group);
    add_shares<P>(stream, partial, cols, g.d_gamma, g.d_beta);
  };
  if (with_whole_units<T, width>(cols, [&]<int held>(LaneGroup group) { run.template operator()<held, true>(group); }))
    return;
  if (cols <= warp_size * fewer * width)
    run.template operator()<fewer, false>(LaneGroup{lanes_for(cols, width, fewer)});
  else if (cols <= warp_cols<T, width>)
    run.template operator()<units, false>(LaneGroup{lanes_for(cols, width, units)});
  else if (cols <= block_cols(8 / width, width))
    run.template operator()<8 / width, false>(BlockGroup{});
  else if (cols <= block_cols(units, width))
    run.template operator()<units, false>(BlockGroup{});
  else
    run_long_gradient<D>(stream, name, x, row_bytes, g);
}

}  // namespace hearth::kernels::layer_norm_rows
