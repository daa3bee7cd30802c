// SPDX-License-Identifier: Apache-2.0
// Attention of 16-bit types on tensor cores, f32 sums. A warp makes 32 rows of a result (queries, or for dk and dv
// keys), a block of 4 warps 128 (16 and 64 where that takes too many registers); the other sequence passes by in tiles
// of 64 or 32 rows, of which the next is on its way from memory by cp.async while one is multiplied. Scores stay in
// registers: the layout of a product's result is that of the next product's left operand, so weights are rounded to 16
// bits and multiplied where they are. For dk and dv the scores are made transposed. Scores are in units of log 2.
// Nothing is added across blocks. Traffic: the passing sequence is read once for the rows of a block.
// Within a head indices have 32 bits; larger ones are not supported.
// Source: Dao, "FlashAttention-2" (ICLR 2024), with dq and dk, dv as kernels of their own so that bits repeat.
// Reference: attention_cpu.cpp, attention_grad_cpu.cpp.
#include <limits>

#include "ops/attention/cuda/mma_head.cuh"
#include "ops/attention/cuda/mma_rows.cuh"
#include "ops/attention/cuda/problem.cuh"
#include "ops/attention/kernels.h"

namespace hearth::kernels {
namespace {

using namespace cuda;
using namespace attention_problem;
using namespace attention_mma_rows;
using namespace attention_mma_head;

constexpr int warps = 4;
constexpr int threads = warps * warp_size;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float log2_of_e = 1.4426950408889634f, log_of_2 = 0.6931471805599453f;

/// How a kernel for heads of up to `channels` channels is cut: a warp makes `tiles` times 16 rows while `passing` rows
/// pass by at a time, and nvcc is told how many blocks shall find registers (else it spills to have more).
template <int channels, int tiles_of_warp, int passing_rows, int blocks>
struct Cut {
  static constexpr int width = channels, tiles = tiles_of_warp, passing = passing_rows, blocks_at_once = blocks;
  static constexpr int warp_rows = 16 * tiles, block_rows = warps * warp_rows;
  static constexpr int pitch = width + run;  ///< an odd number of 16-byte units: ldmatrix meets no bank twice
  static constexpr int block = block_rows * pitch, step = passing * pitch;  ///< elements
};
// What registers allow. With draws, words of 64 keys come from one Philox block, and drawing takes longer than what
// larger tiles save.
template <int width, class Form>
using ForwardCut =
    Cut<width, (Form::draws ? 1 : 2), (Form::draws || width <= 64 ? 64 : 32), (Form::draws && width <= 64 ? 3 : 2)>;
template <int width, class Form>
using QueryCut =
    Cut<width, (Form::bias || width > 64 ? 1 : 2), 32, (Form::bias || (width > 64 && !Form::draws) ? 3 : 2)>;
template <int width, class Form>
using KeyCut = Cut<width, (Form::bias || width > 64 ? 1 : 2), (width == 64 && !Form::bias ? 16 : 32),
                   (Form::bias && width <= 64 ? 3 : 2)>;

/// Starts to bring `rows` rows of a head from row `first` on; zeros behind row `end` and the head's width.
template <int rows, int width, class T>
__device__ __forceinline__ void start_rows(const T* head, std::int64_t row_step, int first, int end, int own_width,
                                           T* to) {
  constexpr int chunks = width / run, apart = threads / chunks;
  static_assert(rows % apart == 0);
  const int thread = static_cast<int>(threadIdx.x), d = thread % chunks * run, step = static_cast<int>(row_step);
  const int row = first + thread / chunks;
  to += thread / chunks * (width + run) + d;
  HEARTH_UNROLL
  for (int i = 0; i < rows / apart; ++i) {
    const int r = row + i * apart;
    const bool inside = r < end && d < own_width;
    cp_async(to + i * apart * (width + run), inside ? head + (r * step + d) : head, inside);
  }
}

/// Starts to bring keys and values from row `key` on.
template <class Size, class T, class Form>
__device__ __forceinline__ void start_keys(const Problem<T>& p, const OwnHead<T, Form>& own, int key, T* k, T* v) {
  start_rows<Size::passing, Size::width>(own.of(p.k), p.k.row_step, key, own.keys, p.width, k);
  start_rows<Size::passing, Size::width>(own.of(p.v), p.v.row_step, key, own.keys, p.width, v);
}

/// Writes sum * factor(tile, row half) to this warp's rows of a head, in pairs.
template <class Size, class T, class Factor>
__device__ __forceinline__ void store_rows(const float (&sum)[Size::tiles][Size::width / 8][4], Factor&& factor,
                                           int first, std::int64_t end, int own_width, T* head, std::int64_t row_step) {
  HEARTH_UNROLL
  for (int i = 0; i < 2 * Size::tiles; ++i) {
    const int tile = i / 2, half = i % 2, row = first + 16 * tile + own_row(2 * half);
    T* const to = head + row * static_cast<int>(row_step) + own_column(0);
    HEARTH_UNROLL
    for (int j = 0; j < Size::width / 8; ++j) {
      const float* const pair = sum[tile][j] + 2 * half;
      if (row < end && 8 * j + own_column(0) < own_width)
        *reinterpret_cast<unsigned*>(to + 8 * j) =
            cast_down_two<T>(pair[0] * factor(tile, half), pair[1] * factor(tile, half));
    }
  }
}

__device__ __forceinline__ int warp_number() { return static_cast<int>(threadIdx.x) / warp_size; }

/// f(value, row of the warp, column) for each of a lane's values.
template <class Size, class F>
__device__ __forceinline__ void each_value(float (&values)[Size::tiles][Size::passing / 8][4], F&& f) {
  HEARTH_UNROLL
  for (int tile = 0; tile < Size::tiles; ++tile) {
    HEARTH_UNROLL
    for (int j = 0; j < Size::passing / 8; ++j) {
      HEARTH_UNROLL
      for (int e = 0; e < 4; ++e) f(values[tile][j][e], tile, j, e);
    }
  }
}

/// -infinity for the keys that the queries `first` on do not see: those of other segments among them.
template <class Size, class T, class Form>
__device__ __forceinline__ void hide_other_segments(const OwnHead<T, Form>& own, int first, int key,
                                                    float (&score)[Size::tiles][Size::passing / 8][4]) {
  if (key >= own.first_seen(first + Size::warp_rows - 1) && key + Size::passing <= own.seen(first)) return;
  HEARTH_UNROLL
  for (int i = 0; i < 2 * Size::tiles; ++i) {
    const int query = first + 16 * (i / 2) + own_row(2 * (i % 2));
    const int begin = own.first_seen(query), end = own.seen(query);
    HEARTH_UNROLL
    for (int j = 0; j < Size::passing / 4; ++j) {
      const int column = key + 8 * (j / 2) + own_column(j % 2);
      if (column < begin || column >= end) score[i / 2][j / 2][2 * (i % 2) + j % 2] = -infinity;
    }
  }
}

/// From the products of queries `first` on and keys `key` on to their scores: scaled, the bias added, -infinity where
/// the key is hidden.
template <class Form, class Size, class T>
__device__ __forceinline__ void finish_scores(const Problem<T>& p, const OwnHead<T, Form>& own, int first, int key,
                                              float (&score)[Size::tiles][Size::passing / 8][4]) {
  const float scale = p.scale * log2_of_e;
  each_value<Size>(score, [&](float& value, int, int, int) { value *= scale; });
  if constexpr (Form::segments) return hide_other_segments<Size>(own, first, key, score);
  const float* const bias = Form::bias && p.bias != nullptr ? p.bias + own.h * p.bias_step : nullptr;
  const bool whole = key + Size::passing <= own.seen(first);
  if (whole && bias == nullptr) return;
  each_value<Size>(score, [&](float& value, int tile, int j, int e) {
    const int query = first + 16 * tile + own_row(e), column = key + 8 * j + own_column(e);
    if (column >= own.seen(query))
      value = -infinity;
    else if (bias != nullptr && query < own.queries)
      value += bias[query * static_cast<int>(p.keys) + column] * log2_of_e;
  });
}

/// Multiplies what belongs to queries `first` on and keys `key` on with the draws.
template <class Size>
__device__ __forceinline__ void drop(const HeadDraws& draws, int first, int key,
                                     float (&value)[Size::tiles][Size::passing / 8][4]) {
  HEARTH_UNROLL
  for (int i = 0; i < 8 * Size::tiles; ++i) {
    // Every second fragment is 16 keys on: those share Philox blocks.
    const int tile = i / 8, e = i / 2 % 4, odd = i % 2;
    draws.template each<Size::passing / 16>(first + 16 * tile + own_row(e), key + odd * 8 + own_column(e),
                                            [&](int k, float factor) { value[tile][2 * k + odd][e] *= factor; });
  }
}

/// The running softmax of a lane's rows, and what it weights.
template <class Size>
struct Weighted {
  float sum[Size::tiles][Size::width / 8][4] = {}, total[Size::tiles][2] = {}, most[Size::tiles][2];

  __device__ Weighted() {
    HEARTH_UNROLL
    for (int i = 0; i < 2 * Size::tiles; ++i) most[i / 2][i % 2] = -infinity;
  }
  /// From scores to weights, with what is summed shrunk to the new maximum.
  __device__ __forceinline__ void weigh(float (&score)[Size::tiles][Size::passing / 8][4]) {
    float shift[Size::tiles][2];
    HEARTH_UNROLL
    for (int i = 0; i < 2 * Size::tiles; ++i) {
      const int tile = i / 2, half = i % 2;
      float next = most[tile][half];
      HEARTH_UNROLL
      for (int j = 0; j < Size::passing / 4; ++j) next = Largest::join(score[tile][j / 2][2 * half + j % 2], next);
      next = reduce_row<Largest>(next);
      // A query that has seen no key yet: any finite shift leaves its weights 0.
      shift[tile][half] = next == -infinity ? 0.0f : next;
      const float factor = exp2_rounded(most[tile][half] - shift[tile][half]);
      most[tile][half] = next;
      total[tile][half] *= factor;
      HEARTH_UNROLL
      for (int j = 0; j < Size::width / 4; ++j) sum[tile][j / 2][2 * half + j % 2] *= factor;
    }
    each_value<Size>(score, [&](float& value, int tile, int, int e) {
      value = exp2_rounded(value - shift[tile][e / 2]);
      total[tile][e / 2] += value;
    });
  }
};

/// A block makes the rows of y of its queries in one head.
template <class T, int width, class Form>
__global__ void __launch_bounds__(threads, ForwardCut<width, Form>::blocks_at_once)
    attend_mma(HEARTH_GRID_CONSTANT(Problem<T>) p, Heads<T> y, float* lse, unsigned blocks) {
  using Size = ForwardCut<width, Form>;
  T* const q = dynamic_shared<T>();
  T *const k = q + Size::block, *const v = k + 2 * Size::step;
  const OwnHead<T, Form> own(p, blockIdx.x / blocks);
  // The last queries see the most keys when the mask is causal, so their blocks start first.
  const int first = static_cast<int>(blocks - 1 - blockIdx.x % blocks) * Size::block_rows;
  const int begin = own.first_seen(first), end = own.seen_before(first + Size::block_rows);
  const auto start = [&](int key, int stage) {
    if (key < end) start_keys<Size>(p, own, key, k + stage * Size::step, v + stage * Size::step);
    cp_async_commit();
  };
  start_rows<Size::block_rows, width>(own.of(p.q), p.q.row_step, first, own.queries, p.width, q);
  start(begin, 0);
  const int row = warp_number() * Size::warp_rows, query = first + row, own_begin = own.first_seen(query);
  const int own_end = query < own.queries ? own.seen_before(query + Size::warp_rows) : 0;
  Weighted<Size> to;
  int stage = 0;
  for (int key = begin; key < end; key += Size::passing) {
    cp_async_wait<0>();
    __syncthreads();
    start(key + Size::passing, 1 - stage);
    if (key < own_end && key + Size::passing > own_begin) {
      float weight[Size::tiles][Size::passing / 8][4];
      multiply_rows<width, Size::passing>(q + row * Size::pitch, k + stage * Size::step, weight);
      finish_scores<Form, Size>(p, own, query, key, weight);
      to.weigh(weight);
      if (Form::draws && (!Form::bias || p.draws.on)) drop<Size>(HeadDraws(p, own.number), query, key, weight);
      add_weighted<width, Size::passing>(weight, v + stage * Size::step, to.sum);
    }
    stage = 1 - stage;
  }
  cp_async_wait<0>();
  float inverse[Size::tiles][2];
  HEARTH_UNROLL
  for (int i = 0; i < 2 * Size::tiles; ++i) {
    const int tile = i / 2, half = i % 2, at = query + 16 * tile + own_row(2 * half);
    const float whole = reduce_row<Sum>(to.total[tile][half]);
    inverse[tile][half] = whole == 0.0f ? 0.0f : 1.0f / whole;
    if (lane_id() % 4 == 0 && at < own.queries)
      own.row_of(lse)[at] = whole == 0.0f ? infinity : to.most[tile][half] * log_of_2 + std::log(whole);
  }
  store_rows<Size>(
      to.sum, [&](int tile, int half) { return inverse[tile][half]; }, query, own.queries, p.width, own.of(y),
      y.row_step);
}

/// A block makes dq of its queries in one head, over the keys in order.
template <class T, int width, class Form>
__global__ void __launch_bounds__(threads, QueryCut<width, Form>::blocks_at_once)
    attend_grad_q_mma(HEARTH_GRID_CONSTANT(Problem<T>) p, Saved<T> saved, Heads<T> dq, unsigned blocks) {
  using Size = QueryCut<width, Form>;
  T* const q = dynamic_shared<T>();
  T *const dy = q + Size::block, *const k = dy + Size::block, *const v = k + 2 * Size::step;
  const OwnHead<T, Form> own(p, blockIdx.x / blocks);
  const int first = static_cast<int>(blocks - 1 - blockIdx.x % blocks) * Size::block_rows;
  const int begin = own.first_seen(first), end = own.seen_before(first + Size::block_rows);
  const auto start = [&](int key, int stage) {
    if (key < end) start_keys<Size>(p, own, key, k + stage * Size::step, v + stage * Size::step);
    cp_async_commit();
  };
  start_rows<Size::block_rows, width>(own.of(p.q), p.q.row_step, first, own.queries, p.width, q);
  start_rows<Size::block_rows, width>(own.of(saved.dy), saved.dy.row_step, first, own.queries, p.width, dy);
  start(begin, 0);
  const int row = warp_number() * Size::warp_rows, query = first + row, own_begin = own.first_seen(query);
  const int own_end = query < own.queries ? own.seen_before(query + Size::warp_rows) : 0;
  float lse[Size::tiles][2], delta[Size::tiles][2];
  HEARTH_UNROLL
  for (int i = 0; i < 2 * Size::tiles; ++i) {
    const int at = query + 16 * (i / 2) + own_row(2 * (i % 2));
    lse[i / 2][i % 2] = at < own.queries ? own.row_of(saved.lse)[at] * log2_of_e : 0.0f;
    delta[i / 2][i % 2] = at < own.queries ? own.row_of(saved.delta)[at] : 0.0f;
  }
  float sum[Size::tiles][width / 8][4] = {};
  int stage = 0;
  for (int key = begin; key < end; key += Size::passing) {
    cp_async_wait<0>();
    __syncthreads();
    start(key + Size::passing, 1 - stage);
    if (key < own_end && key + Size::passing > own_begin) {
      float weight[Size::tiles][Size::passing / 8][4], slope[Size::tiles][Size::passing / 8][4];
      multiply_rows<width, Size::passing>(q + row * Size::pitch, k + stage * Size::step, weight);
      multiply_rows<width, Size::passing>(dy + row * Size::pitch, v + stage * Size::step, slope);
      if (Form::draws && (!Form::bias || p.draws.on)) drop<Size>(HeadDraws(p, own.number), query, key, slope);
      finish_scores<Form, Size>(p, own, query, key, weight);
      each_value<Size>(slope, [&](float& value, int tile, int j, int e) {
        value = exp2_rounded(weight[tile][j][e] - lse[tile][e / 2]) * (value - delta[tile][e / 2]);
      });
      add_weighted<width, Size::passing>(slope, k + stage * Size::step, sum);
    }
    stage = 1 - stage;
  }
  cp_async_wait<0>();
  store_rows<Size>(
      sum, [&](int, int) { return p.scale; }, query, own.queries, p.width, own.of(dq), dq.row_step);
}

/// From the transposed products of keys `first` on with queries and of v with dy to weights, dropped, and slopes of the
/// scores. `lse` (in units of log 2) and `delta` are those of queries `query` on.
template <class Form, class Size, class T>
__device__ __forceinline__ void weigh_transposed(const Problem<T>& p, const OwnHead<T, Form>& own, int first, int query,
                                                 const float* lse, const float* delta,
                                                 float (&weight)[Size::tiles][Size::passing / 8][4],
                                                 float (&slope)[Size::tiles][Size::passing / 8][4]) {
  const float scale = p.scale * log2_of_e;
  const float* const bias = Form::bias && p.bias != nullptr ? p.bias + own.h * p.bias_step : nullptr;
  const bool whole = query >= own.first_query(first + Size::warp_rows - 1) &&
                     (!Form::segments || query + Size::passing <= own.end_query(first));
  const HeadDraws draws(p, own.number);
  HEARTH_UNROLL
  for (int j = 0; j < Size::passing / 8; ++j) {
    HEARTH_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int column = 8 * j + own_column(e), key = first + own_row(e);
      float factor[Size::tiles];
      HEARTH_UNROLL
      for (int tile = 0; tile < Size::tiles; ++tile) factor[tile] = 1.0f;
      if (Form::draws && (!Form::bias || p.draws.on))
        draws.template each<Size::tiles>(query + column, key, [&](int tile, float drawn) { factor[tile] = drawn; });
      HEARTH_UNROLL
      for (int tile = 0; tile < Size::tiles; ++tile) {
        const bool hidden = !whole && (query + column < own.first_query(key + 16 * tile) ||
                                       (Form::segments && query + column >= own.end_query(key + 16 * tile)));
        float score = weight[tile][j][e] * scale;
        if (bias != nullptr && !hidden && query + column < own.queries)
          score += bias[(query + column) * static_cast<int>(p.keys) + key + 16 * tile] * log2_of_e;
        const float value = hidden ? 0.0f : exp2_rounded(score - lse[column]);
        weight[tile][j][e] = value * factor[tile];
        slope[tile][j][e] = value * (slope[tile][j][e] * factor[tile] - delta[column]);
      }
    }
  }
}

/// A block makes dk and dv of its keys in one head, over the queries in order. Scores are [keys, queries].
template <class T, int width, class Form>
__global__ void __launch_bounds__(threads, KeyCut<width, Form>::blocks_at_once)
    attend_grad_kv_mma(HEARTH_GRID_CONSTANT(Problem<T>) p, Saved<T> saved, Heads<T> dk, Heads<T> dv, unsigned blocks) {
  using Size = KeyCut<width, Form>;
  constexpr int passing = Size::passing;
  T* const k = dynamic_shared<T>();
  T *const v = k + Size::block, *const q = v + Size::block, *const dy = q + 2 * Size::step;
  float* const rows = reinterpret_cast<float*>(dy + 2 * Size::step);  // [stages][lse, delta][passing]
  const OwnHead<T, Form> own(p, blockIdx.x / blocks);
  const int first = static_cast<int>(blockIdx.x % blocks) * Size::block_rows;
  const int begin = own.first_query(first) / passing * passing, thread = static_cast<int>(threadIdx.x);
  const int end = own.end_query(first + Size::block_rows - 1);
  const T *const queries = own.of(p.q), *const slopes = own.of(saved.dy);
  const float* const of_row = own.row_of(thread < passing ? saved.lse : saved.delta);
  const auto start = [&](int query, int stage) {
    if (query < end) {
      start_rows<passing, width>(queries, p.q.row_step, query, own.queries, p.width, q + stage * Size::step);
      start_rows<passing, width>(slopes, saved.dy.row_step, query, own.queries, p.width, dy + stage * Size::step);
      const int row = query + thread % passing;
      if (thread < 2 * passing)
        rows[stage * 2 * passing + thread] =
            row < own.queries ? of_row[row] * (thread < passing ? log2_of_e : 1.0f) : 0.0f;
    }
    cp_async_commit();
  };
  start_rows<Size::block_rows, width>(own.of(p.k), p.k.row_step, first, own.keys, p.width, k);
  start_rows<Size::block_rows, width>(own.of(p.v), p.v.row_step, first, own.keys, p.width, v);
  start(begin, 0);
  const int row = warp_number() * Size::warp_rows, key = first + row;
  float sum_k[Size::tiles][width / 8][4] = {}, sum_v[Size::tiles][width / 8][4] = {};
  int stage = 0;
  for (int query = begin; query < end; query += passing) {
    cp_async_wait<0>();
    __syncthreads();
    start(query + passing, 1 - stage);
    // The bounds of the warp's own are read each time: registers more, and some kernels would spill.
    if (query + passing > own.first_query(key) && query < own.end_query(key + Size::warp_rows - 1)) {
      const T *const q_rows = q + stage * Size::step, *const dy_rows = dy + stage * Size::step;
      float weight[Size::tiles][passing / 8][4], slope[Size::tiles][passing / 8][4];
      multiply_rows<width, passing>(k + row * Size::pitch, q_rows, weight);
      multiply_rows<width, passing>(v + row * Size::pitch, dy_rows, slope);
      const float* const lse = rows + stage * 2 * passing;
      weigh_transposed<Form, Size>(p, own, key, query, lse, lse + passing, weight, slope);
      add_weighted<width, passing>(weight, dy_rows, sum_v);
      add_weighted<width, passing>(slope, q_rows, sum_k);
    }
    stage = 1 - stage;
  }
  cp_async_wait<0>();
  store_rows<Size>(
      sum_k, [&](int, int) { return p.scale; }, key, p.keys, p.width, own.of(dk), dk.row_step);
  store_rows<Size>(
      sum_v, [](int, int) { return 1.0f; }, key, p.keys, p.width, own.of(dv), dv.row_step);
}

/// f.operator()<T, width, Form>() for the type, the next larger width there is, and what the kernel looks for.
template <class F>
void visit(const AttentionArguments& a, F&& f) {
  visit_dtype("attention", a.q.dtype(), Types<f16, bf16>{}, [&]<class T>() {
    const auto with_form = [&]<int width>() {
      if (a.segments.defined()) {
        if (a.dropout > 0) return f.template operator()<T, width, SegmentedDropping>();
        return f.template operator()<T, width, Segmented>();
      }
      if (a.bias.defined()) return f.template operator()<T, width, Biased>();
      if (a.dropout > 0) return f.template operator()<T, width, Dropping>();
      f.template operator()<T, width, Plain>();
    };
    if (a.width() <= 32) return with_form.template operator()<32>();
    if (a.width() <= 64) return with_form.template operator()<64>();
    static_assert(max_mma_width == 128);
    with_form.template operator()<128>();
  });
}

}  // namespace

void attention_mma(Stream& stream, const AttentionArguments& a, const Tensor& y, const Tensor& lse) {
  visit(a, [&]<class T, int width, class Form>() {
    using Size = ForwardCut<width, Form>;
    const unsigned blocks = blocks_for(a.queries(), Size::block_rows);
    launch(stream, "attention mma",
           {blocks_for(a.batch() * a.heads() * blocks, 1), threads, (Size::block + 4 * Size::step) * sizeof(T),
            bytes_of(a.q, a.k, a.v, a.bias, a.segments, y, lse)},
           attend_mma<T, width, Form>, problem_of<T>(stream, a), heads_of<T>(y), lse.data<float>(), blocks);
  });
}

void attention_grad_mma(Stream& stream, const AttentionArguments& a, const AttentionSaved& given,
                        const AttentionGradients& gradients) {
  const Tensor delta = Tensor::empty_like(given.lse);
  attention_row_products(stream, a, given, delta);
  visit(a, [&]<class T, int width, class Form>() {
    using Queries = QueryCut<width, Form>;
    using Keys = KeyCut<width, Form>;
    const Problem<T> p = problem_of<T>(stream, a);
    const Saved<T> saved{heads_of<const T>(given.dy), given.lse.data<float>(), delta.data<float>()};
    const std::int64_t heads = a.batch() * a.heads();
    const std::int64_t moved = bytes_of(a.q, a.k, a.v, a.bias, a.segments, given.dy, given.lse, delta);
    const unsigned down = blocks_for(a.queries(), Queries::block_rows), across = blocks_for(a.keys(), Keys::block_rows);
    launch(stream, "attention_grad q mma",
           {blocks_for(heads * down, 1), threads, (2 * Queries::block + 4 * Queries::step) * sizeof(T),
            moved + bytes_of(gradients.dq)},
           attend_grad_q_mma<T, width, Form>, p, saved, heads_of<T>(gradients.dq), down);
    launch(stream, "attention_grad kv mma",
           {blocks_for(heads * across, 1), threads,
            (2 * Keys::block + 4 * Keys::step) * sizeof(T) + 4 * Keys::passing * sizeof(float),
            moved + bytes_of(gradients.dk, gradients.dv)},
           attend_grad_kv_mma<T, width, Form>, p, saved, heads_of<T>(gradients.dk), heads_of<T>(gradients.dv), across);
  });
  if (gradients.dbias.defined()) attention_bias_grad(stream, a, given, delta, gradients.dbias);
}

}  // namespace hearth::kernels
