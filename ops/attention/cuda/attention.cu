// SPDX-License-Identifier: Apache-2.0
// Attention on a CUDA device in ordinary arithmetic, for every type and width. A block of 256 threads works on a square
// tile of 64, 32 or 16 queries by as many keys at a time, as much as shared memory holds; thread (y, x) of 16 x 16 owns
// the rows y + 16 a and the columns x + 16 b of the tile and the channels x + 16 c of results. Forward and the gradient
// of q walk over the keys, that of k and v over the queries, so that nothing is added across blocks and bits repeat.
// Sums are f32 (f64 beside f64). Traffic: k and v are read once for each tile of queries.
// Reference: attention_cpu.cpp, attention_grad_cpu.cpp.
#include <limits>

#include "ops/attention/cuda/problem.cuh"
#include "ops/attention/kernels.h"

namespace hearth::kernels {
namespace {

using namespace cuda;
using namespace attention_problem;

constexpr int side = 16;  ///< of the square of threads
constexpr int threads = side * side;

/// Sizes of a kernel for heads of up to side * columns channels; P is the type of sums.
template <class P, int columns>
struct Sizes {
  // Five tiles of rows at most, and two of weights, in 99 KB (f64 and more than 128 channels: 134 KB).
  static constexpr int share = 256 / columns / static_cast<int>(sizeof(P)) >= 16  ? 4
                               : 256 / columns / static_cast<int>(sizeof(P)) >= 8 ? 2
                                                                                  : 1;
  static constexpr int tile = side * share;
  // Odd, so that neighbouring rows begin in different banks.
  static constexpr int pitch = side * columns + 1;
  static constexpr int weight_pitch = tile + 1;
  static constexpr std::size_t rows = static_cast<std::size_t>(tile) * pitch;
  static constexpr std::size_t weights = static_cast<std::size_t>(tile) * weight_pitch;
};

__device__ __forceinline__ int own_x() { return static_cast<int>(threadIdx.x) % side; }
__device__ __forceinline__ int own_y() { return static_cast<int>(threadIdx.x) / side; }

/// The rows [first, first + tile) of a head times `factor`; zeros behind row `end` and channel `width`.
template <class Size, int columns, class T, class P>
__device__ void load_rows(const T* head, std::int64_t row_step, std::int64_t first, std::int64_t end, int width,
                          P factor, P* to) {
  for (int r = static_cast<int>(threadIdx.x) / warp_size; r < Size::tile; r += threads / warp_size) {
    const bool inside = first + r < end;
    const T* const from = head + (inside ? (first + r) * row_step : 0);
    for (int d = lane_id(); d < side * columns; d += warp_size)
      to[r * Size::pitch + d] = inside && d < width ? upcast(from[d]) * factor : P(0);
  }
}

/// sum[i][j] = the product of this thread's row i of a and row j of b.
template <class Size, class P>
__device__ __forceinline__ void multiply_rows(const P* a, const P* b, int width, P (&sum)[Size::share][Size::share]) {
  HEARTH_UNROLL
  for (int i = 0; i < Size::share; ++i) {
    HEARTH_UNROLL
    for (int j = 0; j < Size::share; ++j) sum[i][j] = P(0);
  }
  const P* const left = a + own_y() * Size::pitch;
  const P* const right = b + own_x() * Size::pitch;
  for (int d = 0; d < width; ++d) {
    P x[Size::share], y[Size::share];
    HEARTH_UNROLL
    for (int i = 0; i < Size::share; ++i) {
      x[i] = left[side * i * Size::pitch + d];
      y[i] = right[side * i * Size::pitch + d];
    }
    HEARTH_UNROLL
    for (int i = 0; i < Size::share; ++i) {
      HEARTH_UNROLL
      for (int j = 0; j < Size::share; ++j) sum[i][j] += x[i] * y[j];
    }
  }
}

/// sum[i][c] += sum over t of weight(row i, t) rows[t][channel c], where weight (r, t) lies at
/// weights[r * row_step + t * term_step].
template <class Size, int columns, class P>
__device__ __forceinline__ void add_weighted(const P* weights, int row_step, int term_step, const P* rows,
                                             P (&sum)[Size::share][columns]) {
  for (int t = 0; t < Size::tile; ++t) {
    P x[Size::share];
    HEARTH_UNROLL
    for (int i = 0; i < Size::share; ++i) x[i] = weights[(own_y() + side * i) * row_step + t * term_step];
    HEARTH_UNROLL
    for (int c = 0; c < columns; ++c) {
      const P y = rows[t * Size::pitch + own_x() + side * c];
      HEARTH_UNROLL
      for (int i = 0; i < Size::share; ++i) sum[i][c] += x[i] * y;
    }
  }
}

/// The reduction over the 16 threads that share a row.
template <class Join, class P>
__device__ __forceinline__ P reduce_row(P value) {
  HEARTH_UNROLL
  for (int step = side / 2; step > 0; step /= 2) value = Join::join(value, __shfl_xor_sync(all_lanes, value, step));
  return value;
}

/// The scaled products of a tile become scores: the bias is added, and hidden keys get -infinity.
template <class Size, class T, class P>
__device__ __forceinline__ void mask_scores(const Problem<T>& p, const Head<T>& head, std::int64_t first_query,
                                            std::int64_t first_key, P (&score)[Size::share][Size::share]) {
  HEARTH_UNROLL
  for (int i = 0; i < Size::share; ++i) {
    const std::int64_t query = first_query + own_y() + side * i;
    const Range seen = head.seen(p, query);
    HEARTH_UNROLL
    for (int j = 0; j < Size::share; ++j) {
      const std::int64_t key = first_key + own_x() + side * j;
      if (!seen.has(key))
        score[i][j] = -std::numeric_limits<P>::infinity();
      else if (p.bias != nullptr)
        score[i][j] += p.bias[head.h * p.bias_step + query * p.keys + key];
    }
  }
}

/// Writes sum[i][c] * factor[i] to this thread's rows and channels of a head.
template <class Size, int columns, class T, class P>
__device__ __forceinline__ void store_rows(const P (&sum)[Size::share][columns], const P (&factor)[Size::share],
                                           std::int64_t first, std::int64_t end, int width, T* head,
                                           std::int64_t row_step) {
  HEARTH_UNROLL
  for (int i = 0; i < Size::share; ++i) {
    const std::int64_t row = first + own_y() + side * i;
    HEARTH_UNROLL
    for (int c = 0; c < columns; ++c) {
      const int channel = own_x() + side * c;
      if (row < end && channel < width) head[row * row_step + channel] = cast_down<T>(sum[i][c] * factor[i]);
    }
  }
}

/// A block makes one tile of queries of one head.
template <class T, int columns>
__global__ void __launch_bounds__(threads)
    attend(HEARTH_GRID_CONSTANT(Problem<T>) p, Heads<T> y, acc_t<T>* lse, std::int64_t tiles) {
  using P = acc_t<T>;
  using Size = Sizes<P, columns>;
  P* const q = dynamic_shared<P>();
  P *const k = q + Size::rows, *const v = k + Size::rows, *const weights = v + Size::rows;
  const Head<T> head(p, blockIdx.x / tiles);
  const std::int64_t first = blockIdx.x % tiles * Size::tile;
  load_rows<Size, columns>(p.q.head(head.n, head.h), p.q.row_step, first, p.queries, p.width, p.scale, q);
  P sum[Size::share][columns] = {}, most[Size::share], total[Size::share] = {};
  HEARTH_UNROLL
  for (int i = 0; i < Size::share; ++i) most[i] = -std::numeric_limits<P>::infinity();
  const Range seen = head.seen(p, first, first + Size::tile);
  for (std::int64_t key = seen.begin; key < seen.end; key += Size::tile) {
    load_rows<Size, columns>(p.k.head(head.n, head.h), p.k.row_step, key, head.keys, p.width, P(1), k);
    load_rows<Size, columns>(p.v.head(head.n, head.h), p.v.row_step, key, head.keys, p.width, P(1), v);
    __syncthreads();
    P score[Size::share][Size::share];
    multiply_rows<Size>(q, k, p.width, score);
    mask_scores<Size>(p, head, first, key, score);
    HEARTH_UNROLL
    for (int i = 0; i < Size::share; ++i) {
      P next = score[i][0];
      HEARTH_UNROLL
      for (int j = 1; j < Size::share; ++j) next = Largest::join(score[i][j], next);
      next = Largest::join(most[i], reduce_row<Largest>(next));
      // A query that has seen no key yet: any finite shift leaves its weights 0.
      const P shift = next == -std::numeric_limits<P>::infinity() ? P(0) : next;
      const P factor = std::exp(most[i] - shift);
      most[i] = next;
      total[i] *= factor;
      HEARTH_UNROLL
      for (int c = 0; c < columns; ++c) sum[i][c] *= factor;
      P kept[Size::share];
      draw(p.draws, head.row(p, first + own_y() + side * i) * p.keys + key + own_x(), kept);
      HEARTH_UNROLL
      for (int j = 0; j < Size::share; ++j) {
        const P weight = std::exp(score[i][j] - shift);
        total[i] += weight;
        weights[(own_y() + side * i) * Size::weight_pitch + own_x() + side * j] = weight * kept[j];
      }
    }
    __syncthreads();
    add_weighted<Size, columns>(weights, Size::weight_pitch, 1, v, sum);
    __syncthreads();
  }
  P inverse[Size::share];
  HEARTH_UNROLL
  for (int i = 0; i < Size::share; ++i) {
    const P whole = reduce_row<Sum>(total[i]);
    inverse[i] = whole == P(0) ? P(0) : P(1) / whole;
    const std::int64_t query = first + own_y() + side * i;
    if (own_x() == 0 && query < p.queries)
      lse[head.row(p, query)] =
          whole == P(0) ? std::numeric_limits<P>::infinity() : most[i] + static_cast<P>(std::log(whole));
  }
  store_rows<Size, columns>(sum, inverse, first, p.queries, p.width, y.head(head.n, head.h), y.row_step);
}

/// delta[n, h, i] = dy . y, a warp a row.
template <class T>
__global__ void __launch_bounds__(threads) multiply_results(HEARTH_GRID_CONSTANT(Problem<T>) p, Heads<const T> y,
                                                            Heads<const T> dy, acc_t<T>* delta, std::int64_t rows) {
  for (std::int64_t row = global_thread() / warp_size; row < rows; row += global_threads() / warp_size) {
    const std::int64_t query = row % p.queries, index = row / p.queries, n = index / p.heads, h = index % p.heads;
    const T* const left = y.head(n, h) + query * y.row_step;
    const T* const right = dy.head(n, h) + query * dy.row_step;
    acc_t<T> sum = 0;
    for (int d = lane_id(); d < p.width; d += warp_size) sum += upcast(left[d]) * upcast(right[d]);
    sum = warp_reduce<Sum>(sum);
    if (lane_id() == 0) delta[row] = sum;
  }
}

/// The weights after dropout and the slopes of the scores of one tile.
template <class Size, class T, class P>
__device__ __forceinline__ void differentiate(const Problem<T>& p, const Saved<T>& saved, const Head<T>& head,
                                              std::int64_t first_query, std::int64_t first_key,
                                              P (&weight)[Size::share][Size::share],
                                              P (&slope)[Size::share][Size::share]) {
  mask_scores<Size>(p, head, first_query, first_key, weight);
  HEARTH_UNROLL
  for (int i = 0; i < Size::share; ++i) {
    const std::int64_t query = first_query + own_y() + side * i;
    const bool inside = query < p.queries;
    const P lse = inside ? saved.lse[head.row(p, query)] : P(0),
            delta = inside ? saved.delta[head.row(p, query)] : P(0);
    P kept[Size::share];
    draw(p.draws, head.row(p, query) * p.keys + first_key + own_x(), kept);
    HEARTH_UNROLL
    for (int j = 0; j < Size::share; ++j) {
      const P value = std::exp(weight[i][j] - lse);
      weight[i][j] = value * kept[j];
      slope[i][j] = value * (slope[i][j] * kept[j] - delta);
    }
  }
}

template <class Size, class P>
__device__ __forceinline__ void put_weights(const P (&weight)[Size::share][Size::share], P* to) {
  HEARTH_UNROLL
  for (int i = 0; i < Size::share; ++i) {
    HEARTH_UNROLL
    for (int j = 0; j < Size::share; ++j)
      to[(own_y() + side * i) * Size::weight_pitch + own_x() + side * j] = weight[i][j];
  }
}

/// A block makes one tile of dq of one head, over the keys in order.
template <class T, int columns>
__global__ void __launch_bounds__(threads)
    attend_grad_q(HEARTH_GRID_CONSTANT(Problem<T>) p, Saved<T> saved, Heads<T> dq, std::int64_t tiles) {
  using P = acc_t<T>;
  using Size = Sizes<P, columns>;
  P* const q = dynamic_shared<P>();
  P *const dy = q + Size::rows, *const k = dy + Size::rows, *const v = k + Size::rows, *const slopes = v + Size::rows;
  const Head<T> head(p, blockIdx.x / tiles);
  const std::int64_t first = blockIdx.x % tiles * Size::tile;
  load_rows<Size, columns>(p.q.head(head.n, head.h), p.q.row_step, first, p.queries, p.width, p.scale, q);
  load_rows<Size, columns>(saved.dy.head(head.n, head.h), saved.dy.row_step, first, p.queries, p.width, P(1), dy);
  P sum[Size::share][columns] = {};
  const Range seen = head.seen(p, first, first + Size::tile);
  for (std::int64_t key = seen.begin; key < seen.end; key += Size::tile) {
    load_rows<Size, columns>(p.k.head(head.n, head.h), p.k.row_step, key, head.keys, p.width, P(1), k);
    load_rows<Size, columns>(p.v.head(head.n, head.h), p.v.row_step, key, head.keys, p.width, P(1), v);
    __syncthreads();
    P weight[Size::share][Size::share], slope[Size::share][Size::share];
    multiply_rows<Size>(q, k, p.width, weight);
    multiply_rows<Size>(dy, v, p.width, slope);
    differentiate<Size>(p, saved, head, first, key, weight, slope);
    put_weights<Size>(slope, slopes);
    __syncthreads();
    add_weighted<Size, columns>(slopes, Size::weight_pitch, 1, k, sum);
    __syncthreads();
  }
  P factor[Size::share];
  HEARTH_UNROLL
  for (int i = 0; i < Size::share; ++i) factor[i] = p.scale;
  store_rows<Size, columns>(sum, factor, first, p.queries, p.width, dq.head(head.n, head.h), dq.row_step);
}

/// A block makes one tile of dk and dv of one head, over the queries in order.
template <class T, int columns>
__global__ void __launch_bounds__(threads)
    attend_grad_kv(HEARTH_GRID_CONSTANT(Problem<T>) p, Saved<T> saved, Heads<T> dk, Heads<T> dv, std::int64_t tiles) {
  using P = acc_t<T>;
  using Size = Sizes<P, columns>;
  P* const q = dynamic_shared<P>();
  P *const dy = q + Size::rows, *const k = dy + Size::rows, *const v = k + Size::rows;
  P *const slopes = v + Size::rows, *const weights = slopes + Size::weights;
  const Head<T> head(p, blockIdx.x / tiles);
  const std::int64_t first = blockIdx.x % tiles * Size::tile;
  load_rows<Size, columns>(p.k.head(head.n, head.h), p.k.row_step, first, head.keys, p.width, P(1), k);
  load_rows<Size, columns>(p.v.head(head.n, head.h), p.v.row_step, first, head.keys, p.width, P(1), v);
  P sum_k[Size::share][columns] = {}, sum_v[Size::share][columns] = {};
  const Range seeing = head.seeing(p, first, first + Size::tile);
  for (std::int64_t query = seeing.begin / Size::tile * Size::tile; query < seeing.end; query += Size::tile) {
    load_rows<Size, columns>(p.q.head(head.n, head.h), p.q.row_step, query, p.queries, p.width, p.scale, q);
    load_rows<Size, columns>(saved.dy.head(head.n, head.h), saved.dy.row_step, query, p.queries, p.width, P(1), dy);
    __syncthreads();
    P weight[Size::share][Size::share], slope[Size::share][Size::share];
    multiply_rows<Size>(q, k, p.width, weight);
    multiply_rows<Size>(dy, v, p.width, slope);
    differentiate<Size>(p, saved, head, query, first, weight, slope);
    put_weights<Size>(weight, weights);
    put_weights<Size>(slope, slopes);
    __syncthreads();
    add_weighted<Size, columns>(weights, 1, Size::weight_pitch, dy, sum_v);
    add_weighted<Size, columns>(slopes, 1, Size::weight_pitch, q, sum_k);
    __syncthreads();
  }
  P one[Size::share];
  HEARTH_UNROLL
  for (int i = 0; i < Size::share; ++i) one[i] = P(1);
  store_rows<Size, columns>(sum_k, one, first, p.keys, p.width, dk.head(head.n, head.h), dk.row_step);
  store_rows<Size, columns>(sum_v, one, first, p.keys, p.width, dv.head(head.n, head.h), dv.row_step);
}

/// How the samples that share a bias are dealt out to the blocks of its gradient.
struct BiasShares {
  std::int64_t heads;         ///< of the bias
  std::int64_t count;         ///< heads of samples that share the bias of one of those
  std::int64_t parts;         ///< partial sums
  std::int64_t size;          ///< heads of samples in a part
  std::int64_t across, down;  ///< tiles of keys and of queries
};

/// A block makes one tile of one part of the bias' gradient, over its samples in order.
template <class T, int columns>
__global__ void __launch_bounds__(threads)
    attend_grad_bias(HEARTH_GRID_CONSTANT(Problem<T>) p, Saved<T> saved, BiasShares shares, acc_t<T>* to) {
  using P = acc_t<T>;
  using Size = Sizes<P, columns>;
  P* const q = dynamic_shared<P>();
  P *const dy = q + Size::rows, *const k = dy + Size::rows, *const v = k + Size::rows;
  const std::int64_t key = blockIdx.x % shares.across * Size::tile;
  const std::int64_t first = blockIdx.x / shares.across % shares.down * Size::tile;
  const std::int64_t matrix = blockIdx.x / shares.across / shares.down;  // part, then head
  const std::int64_t begin = matrix / shares.heads * shares.size;
  const std::int64_t end = begin + shares.size < shares.count ? begin + shares.size : shares.count;
  P sum[Size::share][Size::share] = {};
  for (std::int64_t at = begin; at < end; ++at) {
    const Head<T> head(p, at * shares.heads + matrix % shares.heads);
    const Range seen = head.seen(p, first, first + Size::tile);
    if (key >= seen.end || key + Size::tile <= seen.begin) continue;
    load_rows<Size, columns>(p.q.head(head.n, head.h), p.q.row_step, first, p.queries, p.width, p.scale, q);
    load_rows<Size, columns>(saved.dy.head(head.n, head.h), saved.dy.row_step, first, p.queries, p.width, P(1), dy);
    load_rows<Size, columns>(p.k.head(head.n, head.h), p.k.row_step, key, head.keys, p.width, P(1), k);
    load_rows<Size, columns>(p.v.head(head.n, head.h), p.v.row_step, key, head.keys, p.width, P(1), v);
    __syncthreads();
    P weight[Size::share][Size::share], slope[Size::share][Size::share];
    multiply_rows<Size>(q, k, p.width, weight);
    multiply_rows<Size>(dy, v, p.width, slope);
    differentiate<Size>(p, saved, head, first, key, weight, slope);
    HEARTH_UNROLL
    for (int i = 0; i < Size::share; ++i) {
      HEARTH_UNROLL
      for (int j = 0; j < Size::share; ++j) sum[i][j] += slope[i][j];
    }
    __syncthreads();
  }
  HEARTH_UNROLL
  for (int i = 0; i < Size::share; ++i) {
    HEARTH_UNROLL
    for (int j = 0; j < Size::share; ++j) {
      const std::int64_t row = first + own_y() + side * i, column = key + own_x() + side * j;
      if (row < p.queries && column < p.keys) to[(matrix * p.queries + row) * p.keys + column] = sum[i][j];
    }
  }
}

/// to[i] = the sum of `parts` arrays of n elements, in order.
template <class P>
__global__ void __launch_bounds__(threads) sum_bias_parts(const P* from, std::int64_t parts, std::int64_t n, P* to) {
  for (std::int64_t i = global_thread(); i < n; i += global_threads()) {
    P sum = from[i];
    for (std::int64_t part = 1; part < parts; ++part) sum += from[part * n + i];
    to[i] = sum;
  }
}

/// f.operator()<T, columns>() for the type and the width of the heads.
template <class F>
void visit(const AttentionArguments& a, F&& f) {
  visit_dtype("attention", a.q.dtype(), Floats{}, [&]<class T>() {
    if (a.width() <= 4 * side) return f.template operator()<T, 4>();
    if (a.width() <= 8 * side) return f.template operator()<T, 8>();
    static_assert(max_head_width == 16 * side);
    f.template operator()<T, 16>();
  });
}

std::int64_t tiles_of(std::int64_t rows, int tile) { return (rows + tile - 1) / tile; }

template <class T, int columns>
void make_bias_gradient(Stream& stream, const AttentionArguments& a, const Problem<T>& p, const Saved<T>& saved,
                        const Tensor& dbias) {
  using P = acc_t<T>;
  using Size = Sizes<P, columns>;
  BiasShares shares{};
  shares.heads = dbias.dim(0);
  shares.count = a.batch() * a.heads() / shares.heads;
  shares.across = tiles_of(a.keys(), Size::tile);
  shares.down = tiles_of(a.queries(), Size::tile);
  // Few tiles: several blocks share the samples of each.
  constexpr std::int64_t wanted = 256;
  const std::int64_t tiles = shares.heads * shares.across * shares.down;
  shares.size = tiles_of(shares.count, static_cast<int>(std::clamp<std::int64_t>(wanted / tiles, 1, shares.count)));
  shares.parts = (shares.count + shares.size - 1) / shares.size;
  const Tensor parts =
      shares.parts == 1 ? dbias : Tensor::empty({shares.parts, dbias.size()}, dbias.dtype(), dbias.device());
  launch(stream, "attention_grad_bias",
         {blocks_for(tiles * shares.parts, 1), threads, 4 * Size::rows * sizeof(P),
          bytes_of(a.q, a.q, a.k, a.v, a.bias, parts)},  // dy is like q
         attend_grad_bias<T, columns>, p, saved, shares, parts.data<P>());
  if (shares.parts > 1)
    launch(stream, "attention_grad_bias sum",
           {blocks_for(dbias.size(), threads, 1 << 16), threads, 0, bytes_of(parts, dbias)}, sum_bias_parts<P>,
           static_cast<const P*>(parts.data<P>()), shares.parts, dbias.size(), dbias.data<P>());
}

}  // namespace

void attention_portable(Stream& stream, const AttentionArguments& a, const Tensor& y, const Tensor& lse) {
  visit(a, [&]<class T, int columns>() {
    using P = acc_t<T>;
    using Size = Sizes<P, columns>;
    const std::int64_t tiles = tiles_of(a.queries(), Size::tile);
    launch(stream, "attention",
           {blocks_for(a.batch() * a.heads() * tiles, 1), threads, (3 * Size::rows + Size::weights) * sizeof(P),
            bytes_of(a.q, a.k, a.v, a.bias, a.segments, y, lse)},
           attend<T, columns>, problem_of<T>(stream, a), heads_of<T>(y), lse.data<P>(), tiles);
  });
}

void attention_row_products(Stream& stream, const AttentionArguments& a, const AttentionSaved& saved,
                            const Tensor& delta) {
  visit_dtype("attention", a.q.dtype(), Floats{}, [&]<class T>() {
    launch(stream, "attention_grad rows",
           {blocks_for(delta.size(), threads / warp_size, 1 << 16), threads, 0, bytes_of(saved.y, saved.dy, delta)},
           multiply_results<T>, problem_of<T>(stream, a), heads_of<const T>(saved.y), heads_of<const T>(saved.dy),
           delta.data<acc_t<T>>(), delta.size());
  });
}

void attention_bias_grad(Stream& stream, const AttentionArguments& a, const AttentionSaved& saved, const Tensor& delta,
                         const Tensor& dbias) {
  visit(a, [&]<class T, int columns>() {
    using P = acc_t<T>;
    make_bias_gradient<T, columns>(stream, a, problem_of<T>(stream, a),
                                   {heads_of<const T>(saved.dy), saved.lse.data<P>(), delta.data<P>()}, dbias);
  });
}

void attention_grad_portable(Stream& stream, const AttentionArguments& a, const AttentionSaved& given,
                             const AttentionGradients& gradients) {
  const Tensor delta = Tensor::empty_like(given.lse);
  attention_row_products(stream, a, given, delta);
  visit(a, [&]<class T, int columns>() {
    using P = acc_t<T>;
    using Size = Sizes<P, columns>;
    const Problem<T> p = problem_of<T>(stream, a);
    const Saved<T> saved{heads_of<const T>(given.dy), given.lse.data<P>(), delta.data<P>()};
    const std::int64_t heads = a.batch() * a.heads();
    const std::int64_t down = tiles_of(a.queries(), Size::tile), across = tiles_of(a.keys(), Size::tile);
    const std::int64_t moved = bytes_of(a.q, a.k, a.v, a.bias, a.segments, given.dy, given.lse, delta);
    launch(stream, "attention_grad q",
           {blocks_for(heads * down, 1), threads, (4 * Size::rows + Size::weights) * sizeof(P),
            moved + bytes_of(gradients.dq)},
           attend_grad_q<T, columns>, p, saved, heads_of<T>(gradients.dq), down);
    launch(stream, "attention_grad kv",
           {blocks_for(heads * across, 1), threads, (4 * Size::rows + 2 * Size::weights) * sizeof(P),
            moved + bytes_of(gradients.dk, gradients.dv)},
           attend_grad_kv<T, columns>, p, saved, heads_of<T>(gradients.dk), heads_of<T>(gradients.dv), across);
  });
  if (gradients.dbias.defined()) attention_bias_grad(stream, a, given, delta, gradients.dbias);
}

}  // namespace hearth::kernels
