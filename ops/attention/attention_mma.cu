// SPDX-License-Identifier: Apache-2.0
// Attention of 16-bit types on tensor cores, f32 sums. A block of 4 warps makes 64 rows of a result (queries, or for dk
// and dv keys), 16 a warp; the other sequence passes by in tiles of 64 or 32 rows, of which the next is on its way from
// memory by cp.async while one is multiplied. Scores stay in registers: the layout of a product's result is that of the
// next product's left operand, so weights are rounded to 16 bits and multiplied where they are. For dk and dv the
// scores are made transposed. Nothing is added across blocks. Traffic: the passing sequence is read once for 64 rows.
// Source: Dao, "FlashAttention-2" (ICLR 2024), with dq and dk, dv as kernels of their own so that bits repeat.
// Reference: attention_cpu.cpp, attention_grad_cpu.cpp.
#include <limits>

#include "ops/attention/kernels.h"
#include "ops/attention/mma_rows.cuh"
#include "ops/attention/problem.cuh"

namespace hearth::kernels {
namespace {

using namespace cuda;
using namespace attention_problem;
using namespace attention_mma_rows;

constexpr int warps = 4;
constexpr int threads = warps * warp_size;
constexpr int warp_rows = 16;
constexpr int block_rows = warps * warp_rows;

/// Sizes for heads of up to `width` channels where `passing` rows pass by at a time.
template <int width, int passing>
struct Sizes {
  static constexpr int pitch = width + run;  ///< an odd number of 16-byte units: ldmatrix meets no bank twice
  static constexpr int block = block_rows * pitch;
  static constexpr int step = passing * pitch;
};

/// Starts to bring `rows` rows of a head from row `first` on; zeros behind row `end` and the head's width.
template <int rows, int width, class T>
__device__ __forceinline__ void start_rows(const T* head, std::int64_t row_step, std::int64_t first, std::int64_t end,
                                           int own_width, T* to) {
  constexpr int chunks = width / run;
  static_assert(rows * chunks % threads == 0);
  HEARTH_UNROLL
  for (int i = 0; i < rows * chunks / threads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * threads;
    const int r = at / chunks, d = at % chunks * run;
    const bool inside = first + r < end && d < own_width;
    cp_async(to + r * (width + run) + d, inside ? head + (first + r) * row_step + d : head, inside);
  }
}

__device__ __forceinline__ int warp_row() { return static_cast<int>(threadIdx.x) / warp_size * warp_rows; }

/// Whether each of these queries sees each of these keys and nothing is added to their products; then
/// score_of need not look at each.
template <int queries, int keys, class T>
__device__ __forceinline__ bool sees_all(const Problem<T>& p, const Head<T>& head, std::int64_t query,
                                         std::int64_t key) {
  return p.bias == nullptr && query + queries <= p.queries && key + keys <= head.keys &&
         (!p.causal || key + keys <= p.query_offset + query + 1);
}

/// The score of a product, -infinity where the key is hidden.
template <class T>
__device__ __forceinline__ float score_of(const Problem<T>& p, const Head<T>& head, bool whole, std::int64_t query,
                                          std::int64_t key, float product) {
  if (whole) return product * p.scale;
  if (!head.sees(p, query, key)) return -std::numeric_limits<float>::infinity();
  const float scaled = product * p.scale;
  return p.bias != nullptr ? scaled + p.bias[head.h * p.bias_step + query * p.keys + key] : scaled;
}

/// factor[j][e]: what dropout multiplies this lane's weights [16 queries, passing keys] with.
template <int passing, class T>
__device__ __forceinline__ void draw_weights(const Problem<T>& p, const Head<T>& head, std::int64_t first_query,
                                             std::int64_t first_key, float (&factor)[passing / 8][4]) {
  // Every second fragment is 16 keys on: those share Philox blocks.
  HEARTH_UNROLL
  for (int e = 0; e < 4; ++e) {
    HEARTH_UNROLL
    for (int odd = 0; odd < 2; ++odd) {
      float shared[passing / 16];
      draw(p.draws, head.row(p, first_query + own_row(e)) * p.keys + first_key + odd * 8 + own_column(e), shared);
      HEARTH_UNROLL
      for (int i = 0; i < passing / 16; ++i) factor[2 * i + odd][e] = shared[i];
    }
  }
}

/// Writes sum * factor[row half] to this warp's rows of a head, in pairs.
template <int width, class T>
__device__ __forceinline__ void store_rows(const float (&sum)[width / 8][4], const float (&factor)[2],
                                           std::int64_t first, std::int64_t end, int own_width, T* head,
                                           std::int64_t row_step) {
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = first + own_row(2 * half);
    HEARTH_UNROLL
    for (int j = 0; j < width / 8; ++j) {
      const int d = 8 * j + own_column(0);
      if (row >= end || d >= own_width) continue;
      Pack<T, 2> pair;
      pair.at[0] = cast_down<T>(sum[j][2 * half] * factor[half]);
      pair.at[1] = cast_down<T>(sum[j][2 * half + 1] * factor[half]);
      store_pack(head + row * row_step + d, pair);
    }
  }
}

/// A block makes 64 queries of one head.
template <class T, int width>
__global__ void __launch_bounds__(threads)
    attend_mma(HEARTH_GRID_CONSTANT(Problem<T>) p, Heads<T> y, float* lse, std::int64_t tiles) {
  constexpr int passing = 64;
  using Size = Sizes<width, passing>;
  T* const q = dynamic_shared<T>();
  T *const k = q + Size::block, *const v = k + 2 * Size::step;
  const Head<T> head(p, blockIdx.x / tiles);
  // The last queries see the most keys when the mask is causal, so their blocks start first.
  const std::int64_t first = (tiles - 1 - blockIdx.x % tiles) * block_rows;
  const std::int64_t seen = head.seen(p, first + block_rows);
  const auto start = [&](std::int64_t key, int stage) {
    if (key < seen) {
      start_rows<passing, width>(p.k.head(head.n, head.h), p.k.row_step, key, head.keys, p.width,
                                 k + stage * Size::step);
      start_rows<passing, width>(p.v.head(head.n, head.h), p.v.row_step, key, head.keys, p.width,
                                 v + stage * Size::step);
    }
    cp_async_commit();
  };
  start_rows<block_rows, width>(p.q.head(head.n, head.h), p.q.row_step, first, p.queries, p.width, q);
  start(0, 0);
  float sum[width / 8][4] = {}, total[2] = {};
  float most[2] = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  int stage = 0;
  for (std::int64_t key = 0; key < seen; key += passing) {
    cp_async_wait<0>();
    __syncthreads();
    start(key + passing, 1 - stage);
    float weight[passing / 8][4];
    multiply_rows<width, passing>(q + warp_row() * Size::pitch, k + stage * Size::step, weight);
    const bool whole = sees_all<warp_rows, passing>(p, head, first + warp_row(), key);
    float shift[2];
    HEARTH_UNROLL
    for (int half = 0; half < 2; ++half) {
      float next = most[half];
      HEARTH_UNROLL
      for (int j = 0; j < passing / 8; ++j) {
        HEARTH_UNROLL
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          weight[j][e] =
              score_of(p, head, whole, first + warp_row() + own_row(e), key + 8 * j + own_column(e), weight[j][e]);
          next = Largest::join(weight[j][e], next);
        }
      }
      next = reduce_row<Largest>(next);
      // A query that has seen no key yet: any finite shift leaves its weights 0.
      shift[half] = next == -std::numeric_limits<float>::infinity() ? 0.0f : next;
      const float factor = __expf(most[half] - shift[half]);
      most[half] = next;
      total[half] *= factor;
      HEARTH_UNROLL
      for (int j = 0; j < width / 8; ++j) {
        sum[j][2 * half] *= factor;
        sum[j][2 * half + 1] *= factor;
      }
    }
    HEARTH_UNROLL
    for (int j = 0; j < passing / 8; ++j) {
      HEARTH_UNROLL
      for (int e = 0; e < 4; ++e) {
        weight[j][e] = __expf(weight[j][e] - shift[e / 2]);
        total[e / 2] += weight[j][e];
      }
    }
    if (p.draws.on) {
      float factor[passing / 8][4];
      draw_weights<passing>(p, head, first + warp_row(), key, factor);
      HEARTH_UNROLL
      for (int j = 0; j < passing / 8; ++j) {
        HEARTH_UNROLL
        for (int e = 0; e < 4; ++e) weight[j][e] *= factor[j][e];
      }
    }
    add_weighted<width, passing>(weight, v + stage * Size::step, sum);
    stage = 1 - stage;
  }
  cp_async_wait<0>();
  float inverse[2];
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const float whole = reduce_row<Sum>(total[half]);
    inverse[half] = whole == 0.0f ? 0.0f : 1.0f / whole;
    const std::int64_t query = first + warp_row() + own_row(2 * half);
    if (lane_id() % 4 == 0 && query < p.queries)
      lse[head.row(p, query)] = whole == 0.0f ? std::numeric_limits<float>::infinity() : most[half] + std::log(whole);
  }
  store_rows<width>(sum, inverse, first + warp_row(), p.queries, p.width, y.head(head.n, head.h), y.row_step);
}

/// Rows that pass by at a time in the gradient, where twice as many sums are held.
template <int width>
constexpr int grad_passing = width > 64 ? 32 : 64;

/// A block makes dq of 64 queries of one head, over the keys in order.
template <class T, int width>
__global__ void __launch_bounds__(threads)
    attend_grad_q_mma(HEARTH_GRID_CONSTANT(Problem<T>) p, Saved<T> saved, Heads<T> dq, std::int64_t tiles) {
  constexpr int passing = grad_passing<width>;
  using Size = Sizes<width, passing>;
  T* const q = dynamic_shared<T>();
  T *const dy = q + Size::block, *const k = dy + Size::block, *const v = k + 2 * Size::step;
  const Head<T> head(p, blockIdx.x / tiles);
  const std::int64_t first = (tiles - 1 - blockIdx.x % tiles) * block_rows;
  const std::int64_t seen = head.seen(p, first + block_rows);
  const auto start = [&](std::int64_t key, int stage) {
    if (key < seen) {
      start_rows<passing, width>(p.k.head(head.n, head.h), p.k.row_step, key, head.keys, p.width,
                                 k + stage * Size::step);
      start_rows<passing, width>(p.v.head(head.n, head.h), p.v.row_step, key, head.keys, p.width,
                                 v + stage * Size::step);
    }
    cp_async_commit();
  };
  start_rows<block_rows, width>(p.q.head(head.n, head.h), p.q.row_step, first, p.queries, p.width, q);
  start_rows<block_rows, width>(saved.dy.head(head.n, head.h), saved.dy.row_step, first, p.queries, p.width, dy);
  start(0, 0);
  float lse[2], delta[2];
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const std::int64_t query = first + warp_row() + own_row(2 * half);
    lse[half] = query < p.queries ? saved.lse[head.row(p, query)] : 0.0f;
    delta[half] = query < p.queries ? saved.delta[head.row(p, query)] : 0.0f;
  }
  float sum[width / 8][4] = {};
  int stage = 0;
  for (std::int64_t key = 0; key < seen; key += passing) {
    cp_async_wait<0>();
    __syncthreads();
    start(key + passing, 1 - stage);
    float weight[passing / 8][4], slope[passing / 8][4];
    multiply_rows<width, passing>(q + warp_row() * Size::pitch, k + stage * Size::step, weight);
    multiply_rows<width, passing>(dy + warp_row() * Size::pitch, v + stage * Size::step, slope);
    if (p.draws.on) {
      float factor[passing / 8][4];
      draw_weights<passing>(p, head, first + warp_row(), key, factor);
      HEARTH_UNROLL
      for (int j = 0; j < passing / 8; ++j) {
        HEARTH_UNROLL
        for (int e = 0; e < 4; ++e) slope[j][e] *= factor[j][e];
      }
    }
    const bool whole = sees_all<warp_rows, passing>(p, head, first + warp_row(), key);
    HEARTH_UNROLL
    for (int j = 0; j < passing / 8; ++j) {
      HEARTH_UNROLL
      for (int e = 0; e < 4; ++e) {
        const float score =
            score_of(p, head, whole, first + warp_row() + own_row(e), key + 8 * j + own_column(e), weight[j][e]);
        slope[j][e] = __expf(score - lse[e / 2]) * (slope[j][e] - delta[e / 2]);
      }
    }
    add_weighted<width, passing>(slope, k + stage * Size::step, sum);
    stage = 1 - stage;
  }
  cp_async_wait<0>();
  const float factor[2] = {p.scale, p.scale};
  store_rows<width>(sum, factor, first + warp_row(), p.queries, p.width, dq.head(head.n, head.h), dq.row_step);
}

/// A block makes dk and dv of 64 keys of one head, over the queries in order. Scores are [16 keys, passing queries].
template <class T, int width>
__global__ void __launch_bounds__(threads) attend_grad_kv_mma(HEARTH_GRID_CONSTANT(Problem<T>) p, Saved<T> saved,
                                                              Heads<T> dk, Heads<T> dv, std::int64_t tiles) {
  constexpr int passing = grad_passing<width>;
  using Size = Sizes<width, passing>;
  T* const k = dynamic_shared<T>();
  T *const v = k + Size::block, *const q = v + Size::block, *const dy = q + 2 * Size::step;
  float* const rows = reinterpret_cast<float*>(dy + 2 * Size::step);  // [stages][lse, delta][passing]
  const Head<T> head(p, blockIdx.x / tiles);
  const std::int64_t first = blockIdx.x % tiles * block_rows;
  // The first query that sees a key of the block.
  std::int64_t begin = p.causal && first > p.query_offset ? (first - p.query_offset) / passing * passing : 0;
  if (first >= head.keys) begin = p.queries;
  const auto start = [&](std::int64_t query, int stage) {
    if (query < p.queries) {
      start_rows<passing, width>(p.q.head(head.n, head.h), p.q.row_step, query, p.queries, p.width,
                                 q + stage * Size::step);
      start_rows<passing, width>(saved.dy.head(head.n, head.h), saved.dy.row_step, query, p.queries, p.width,
                                 dy + stage * Size::step);
      for (int i = static_cast<int>(threadIdx.x); i < 2 * passing; i += threads) {
        const float* const from = i < passing ? saved.lse : saved.delta;
        const std::int64_t row = query + i % passing;
        rows[stage * 2 * passing + i] = row < p.queries ? from[head.row(p, row)] : 0.0f;
      }
    }
    cp_async_commit();
  };
  start_rows<block_rows, width>(p.k.head(head.n, head.h), p.k.row_step, first, head.keys, p.width, k);
  start_rows<block_rows, width>(p.v.head(head.n, head.h), p.v.row_step, first, head.keys, p.width, v);
  start(begin, 0);
  float sum_k[width / 8][4] = {}, sum_v[width / 8][4] = {};
  int stage = 0;
  for (std::int64_t query = begin; query < p.queries; query += passing) {
    cp_async_wait<0>();
    __syncthreads();
    start(query + passing, 1 - stage);
    float weight[passing / 8][4], slope[passing / 8][4];
    multiply_rows<width, passing>(k + warp_row() * Size::pitch, q + stage * Size::step, weight);
    multiply_rows<width, passing>(v + warp_row() * Size::pitch, dy + stage * Size::step, slope);
    const float* const lse = rows + stage * 2 * passing;
    const float* const delta = lse + passing;
    const bool whole = sees_all<passing, warp_rows>(p, head, query, first + warp_row());
    HEARTH_UNROLL
    for (int j = 0; j < passing / 8; ++j) {
      HEARTH_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int column = 8 * j + own_column(e);
        const std::int64_t key = first + warp_row() + own_row(e);
        float factor[1];
        draw(p.draws, head.row(p, query + column) * p.keys + key, factor);
        const float value = __expf(score_of(p, head, whole, query + column, key, weight[j][e]) - lse[column]);
        weight[j][e] = value * factor[0];
        slope[j][e] = value * (slope[j][e] * factor[0] - delta[column]);
      }
    }
    add_weighted<width, passing>(weight, dy + stage * Size::step, sum_v);
    add_weighted<width, passing>(slope, q + stage * Size::step, sum_k);
    stage = 1 - stage;
  }
  cp_async_wait<0>();
  const float one[2] = {1.0f, 1.0f}, scale[2] = {p.scale, p.scale};
  store_rows<width>(sum_k, scale, first + warp_row(), p.keys, p.width, dk.head(head.n, head.h), dk.row_step);
  store_rows<width>(sum_v, one, first + warp_row(), p.keys, p.width, dv.head(head.n, head.h), dv.row_step);
}

/// f.operator()<T, width>() for the type and the next larger width there is.
template <class F>
void visit(const AttentionArguments& a, F&& f) {
  visit_dtype("attention", a.q.dtype(), Types<f16, bf16>{}, [&]<class T>() {
    if (a.width() <= 32) return f.template operator()<T, 32>();
    if (a.width() <= 64) return f.template operator()<T, 64>();
    static_assert(max_mma_width == 128);
    f.template operator()<T, 128>();
  });
}

std::int64_t tiles_of(std::int64_t rows) { return (rows + block_rows - 1) / block_rows; }

}  // namespace

void attention_mma(Stream& stream, const AttentionArguments& a, const Tensor& y, const Tensor& lse) {
  visit(a, [&]<class T, int width>() {
    using Size = Sizes<width, 64>;
    const std::int64_t tiles = tiles_of(a.queries());
    launch(stream, "attention mma",
           {blocks_for(a.batch() * a.heads() * tiles, 1), threads, (Size::block + 4 * Size::step) * sizeof(T),
            bytes_of(a.q, a.k, a.v, a.bias, y, lse)},
           attend_mma<T, width>, problem_of<T>(stream, a), heads_of<T>(y), lse.data<float>(), tiles);
  });
}

void attention_grad_mma(Stream& stream, const AttentionArguments& a, const AttentionSaved& given,
                        const AttentionGradients& gradients) {
  const Tensor delta = Tensor::empty_like(given.lse);
  attention_row_products(stream, a, given, delta);
  visit(a, [&]<class T, int width>() {
    constexpr int passing = grad_passing<width>;
    using Size = Sizes<width, passing>;
    const Problem<T> p = problem_of<T>(stream, a);
    const Saved<T> saved{heads_of<const T>(given.dy), given.lse.data<float>(), delta.data<float>()};
    const std::int64_t heads = a.batch() * a.heads(), down = tiles_of(a.queries()), across = tiles_of(a.keys());
    const std::size_t shared = (2 * Size::block + 4 * Size::step) * sizeof(T);
    const std::int64_t moved = bytes_of(a.q, a.k, a.v, a.bias, given.dy, given.lse, delta);
    launch(stream, "attention_grad q mma",
           {blocks_for(heads * down, 1), threads, shared, moved + bytes_of(gradients.dq)}, attend_grad_q_mma<T, width>,
           p, saved, heads_of<T>(gradients.dq), down);
    launch(stream, "attention_grad kv mma",
           {blocks_for(heads * across, 1), threads, shared + 4 * passing * sizeof(float),
            moved + bytes_of(gradients.dk, gradients.dv)},
           attend_grad_kv_mma<T, width>, p, saved, heads_of<T>(gradients.dk), heads_of<T>(gradients.dv), across);
  });
  if (gradients.dbias.defined()) attention_bias_grad(stream, a, given, delta, gradients.dbias);
}

}  // namespace hearth::kernels
