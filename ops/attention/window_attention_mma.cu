// SPDX-License-Identifier: Apache-2.0
// Attention within windows of f16 and bf16 on tensor cores, f32 sums, for windows up to 8 x 8. A block has one head of
// one window in shared memory, gathered by cp_async; each warp makes 16 rows of a result. Scores stay in registers, and
// weights are multiplied where they are. The gradient makes the weights again; they and the slopes go through shared
// memory, rounded to 16 bits, for the products whose rows are keys. A block of it walks over its share of the windows
// of one head with the gradient of the biases in registers. Traffic: every operand is read once and every result
// written once.
#include <limits>

#include "hearth/ops/attention/mma_rows.cuh"
#include "hearth/ops/attention/window_kernels.h"
#include "hearth/ops/attention/window_problem.cuh"

namespace hearth::kernels {
namespace {

using namespace cuda;
using namespace attention_mma_rows;
using namespace window_problem;

constexpr int warp_rows = 16;

/// A warp for 16 of the tokens that there is room for.
template <int tokens>
constexpr int threads_of = tokens / warp_rows* warp_size;

__device__ __forceinline__ int warp_row() { return static_cast<int>(threadIdx.x) / warp_size * warp_rows; }

/// What a block knows about its tokens, in shared memory.
template <int tokens>
struct Places {
  static constexpr int entries = tokens > 16 ? (2 * most_mma_window - 1) * (2 * most_mma_window - 1) : 49;
  std::int64_t row[tokens];  ///< pixel, counted over samples; -1 behind the image and behind the last token
  int place[tokens];         ///< the table's entry of (i, j) is the centre plus place i minus place j
  int region[tokens];
  float bias[entries];  ///< of the head
};

template <int tokens, class T>
__device__ void load_bias(const Problem<T>& p, std::int64_t h, Places<tokens>& places) {
  for (int e = static_cast<int>(threadIdx.x); e < p.grid.entries(); e += threads_of<tokens>)
    places.bias[e] = p.table[e * p.heads + h];
}

template <int tokens, class T>
__device__ void place_tokens(const Problem<T>& p, const Window<T>& window, Places<tokens>& places) {
  for (int t = static_cast<int>(threadIdx.x); t < tokens; t += threads_of<tokens>) {
    const bool real = t < p.grid.tokens();
    const std::int64_t pixel = real ? p.grid.pixel(window.w, t) : -1;
    places.row[t] = pixel < 0 ? -1 : window.row(p, pixel);
    places.place[t] = real ? static_cast<int>(p.grid.entry(t, 0) - p.grid.entry(0, 0)) : 0;
    places.region[t] = real && window.mixes ? p.grid.region(window.w, t) : 0;
  }
}

/// Starts to bring a head's channels of all tokens; `step` elements from pixel to pixel. Positions behind the image get
/// `behind` where that is given, all else zeros.
template <int tokens, int width, class T>
__device__ __forceinline__ void start_rows(const Problem<T>& p, const Places<tokens>& places, const T* from,
                                           std::int64_t step, const float* behind, T* to) {
  constexpr int chunks = width / run;
  for (int at = static_cast<int>(threadIdx.x); at < tokens * chunks; at += threads_of<tokens>) {
    const int t = at / chunks, d = at % chunks * run;
    const std::int64_t row = places.row[t];
    T* const into = to + t * (width + run) + d;
    if (row < 0 && behind != nullptr && t < p.grid.tokens() && d < p.width) {
      Pack<T, run> pack;
      HEARTH_UNROLL
      for (int e = 0; e < run; ++e) pack.at[e] = narrow<T>(behind[d + e]);
      store_pack(into, pack);
    } else {
      const bool inside = row >= 0 && d < p.width;
      cp_async(into, inside ? from + row * step + d : from, inside);
    }
  }
}

/// q (part 0), k or v of a head.
template <int tokens, int width, class T>
__device__ __forceinline__ void start_part(const Problem<T>& p, const Places<tokens>& places, std::int64_t h, int part,
                                           T* to) {
  const std::int64_t first = part * p.channels + h * p.width;
  start_rows<tokens, width>(p, places, p.qkv + first, 3 * p.channels,
                            p.padding == nullptr ? nullptr : p.padding + first, to);
}

/// Products of q and k become the weights of the softmax.
template <int tokens, class T>
__device__ __forceinline__ void weigh(const Problem<T>& p, const Places<tokens>& places,
                                      float (&weight)[tokens / 8][4]) {
  const int count = static_cast<int>(p.grid.tokens()), centre = static_cast<int>(p.grid.entry(0, 0));
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int query = warp_row() + own_row(2 * half);
    const int place = places.place[query] + centre, region = places.region[query];
    float most = -std::numeric_limits<float>::infinity(), sum = 0;
    HEARTH_UNROLL
    for (int j = 0; j < tokens / 8; ++j) {
      HEARTH_UNROLL
      for (int e = 2 * half; e < 2 * half + 2; ++e) {
        const int key = 8 * j + own_column(e);
        float score = -std::numeric_limits<float>::infinity();
        if (key < count) {
          score = weight[j][e] * p.scale + places.bias[place - places.place[key]];
          if (places.region[key] != region) score += static_cast<float>(window_mask);
        }
        weight[j][e] = score;
        most = Largest::join(score, most);
      }
    }
    most = reduce_row<Largest>(most);
    HEARTH_UNROLL
    for (int j = 0; j < tokens / 8; ++j) {
      HEARTH_UNROLL
      for (int e = 2 * half; e < 2 * half + 2; ++e) {
        weight[j][e] = __expf(weight[j][e] - most);
        sum += weight[j][e];
      }
    }
    const float inverse = 1.0f / reduce_row<Sum>(sum);
    HEARTH_UNROLL
    for (int j = 0; j < tokens / 8; ++j) {
      weight[j][2 * half] *= inverse;
      weight[j][2 * half + 1] *= inverse;
    }
  }
}

/// What dropout multiplies this lane's weights with.
template <int tokens, class T>
__device__ __forceinline__ void draw_weights(const Problem<T>& p, const Window<T>& window,
                                             float (&factor)[tokens / 8][4]) {
  // Every second fragment is 16 keys on: those share Philox blocks.
  HEARTH_UNROLL
  for (int e = 0; e < 4; ++e) {
    HEARTH_UNROLL
    for (int odd = 0; odd < 2; ++odd) {
      float shared[tokens / 16];
      draw(p.draws, window.weight(p, warp_row() + own_row(e)) + odd * 8 + own_column(e), shared);
      HEARTH_UNROLL
      for (int i = 0; i < tokens / 16; ++i) factor[2 * i + odd][e] = shared[i];
    }
  }
}

template <int tokens>
__device__ __forceinline__ void scale_by(const float (&factor)[tokens / 8][4], float (&value)[tokens / 8][4]) {
  HEARTH_UNROLL
  for (int j = 0; j < tokens / 8; ++j) {
    HEARTH_UNROLL
    for (int e = 0; e < 4; ++e) value[j][e] *= factor[j][e];
  }
}

/// Writes sum * factor to the pixels of this warp's rows, in pairs.
template <int tokens, int width, class T>
__device__ __forceinline__ void store_rows(const Problem<T>& p, const Places<tokens>& places,
                                           const float (&sum)[width / 8][4], float factor, T* to, std::int64_t step) {
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = places.row[warp_row() + own_row(2 * half)];
    HEARTH_UNROLL
    for (int j = 0; j < width / 8; ++j) {
      const int d = 8 * j + own_column(0);
      if (row < 0 || d >= p.width) continue;
      Pack<T, 2> pair;
      pair.at[0] = narrow<T>(sum[j][2 * half] * factor);
      pair.at[1] = narrow<T>(sum[j][2 * half + 1] * factor);
      store_pack(to + row * step + d, pair);
    }
  }
}

template <class T, int tokens, int width>
__global__ void __launch_bounds__(threads_of<tokens>) attend_windows_mma(HEARTH_GRID_CONSTANT(Problem<T>) p, T* y) {
  constexpr int size = tokens * (width + run);
  HEARTH_SHARED(Places<tokens>, shared, [1]);
  Places<tokens>& places = shared[0];
  T* const q = dynamic_shared<T>();
  T *const k = q + size, *const v = k + size;
  const Window<T> window(p, blockIdx.x / p.heads, blockIdx.x % p.heads);
  load_bias(p, window.h, places);
  place_tokens(p, window, places);
  __syncthreads();
  start_part<tokens, width>(p, places, window.h, 0, q);
  start_part<tokens, width>(p, places, window.h, 1, k);
  start_part<tokens, width>(p, places, window.h, 2, v);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  float weight[tokens / 8][4], sum[width / 8][4] = {};
  multiply_rows<width, tokens>(q + warp_row() * (width + run), k, weight);
  weigh(p, places, weight);
  if (p.draws.on) {
    float factor[tokens / 8][4];
    draw_weights<tokens>(p, window, factor);
    scale_by<tokens>(factor, weight);
  }
  add_weighted<width, tokens>(weight, v, sum);
  store_rows<tokens, width>(p, places, sum, 1.0f, y + window.h * p.width, p.channels);
}

/// Writes this warp's rows of [tokens][tokens + run], rounded.
template <int tokens, class T>
__device__ __forceinline__ void put_rows(const float (&value)[tokens / 8][4], T* to) {
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    T* const row = to + (warp_row() + own_row(2 * half)) * (tokens + run);
    HEARTH_UNROLL
    for (int j = 0; j < tokens / 8; ++j) {
      Pack<T, 2> pair;
      pair.at[0] = narrow<T>(value[j][2 * half]);
      pair.at[1] = narrow<T>(value[j][2 * half + 1]);
      store_pack(row + 8 * j + own_column(0), pair);
    }
  }
}

/// sum [16, width] = the 16 columns of `values` [tokens][tokens + run] from this warp's first row on, transposed, times
/// rows.
template <int width, int tokens, class T>
__device__ __forceinline__ void multiply_turned(const T* values, const T* rows, float (&sum)[width / 8][4]) {
  constexpr int pitch = width + run, value_pitch = tokens + run;
  const int eighth = lane_id() / 8, line = lane_id() % 8;
  const T* const a = values + (eighth / 2 * 8 + line) * value_pitch + warp_row() + eighth % 2 * 8;
  const T* const b = rows + (eighth % 2 * 8 + line) * pitch + eighth / 2 * 8;
  HEARTH_UNROLL
  for (int j = 0; j < width / 8; ++j) {
    HEARTH_UNROLL
    for (int e = 0; e < 4; ++e) sum[j][e] = 0;
  }
  HEARTH_UNROLL
  for (int t = 0; t < tokens; t += 16) {
    unsigned left[4];
    ldmatrix_transposed(left, a + t * value_pitch);
    HEARTH_UNROLL
    for (int d = 0; d < width; d += 16) {
      unsigned right[4];
      ldmatrix_transposed(right, b + t * pitch + d);
      const unsigned first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
      mma_m16n8k16<T>(sum[d / 8], left, first);
      mma_m16n8k16<T>(sum[d / 8 + 1], left, second);
    }
  }
}

/// Adds this warp's rows behind the image times a factor to sums of each token, [tokens][2][width].
template <int tokens, int width, class T>
__device__ __forceinline__ void add_padding(const Problem<T>& p, const Places<tokens>& places,
                                            const float (&sum)[width / 8][4], float factor, float* to) {
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int t = warp_row() + own_row(2 * half);
    if (t >= p.grid.tokens() || places.row[t] >= 0) continue;
    HEARTH_UNROLL
    for (int j = 0; j < width / 8; ++j) {
      HEARTH_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int d = 8 * j + own_column(e);
        if (d < p.width) to[2 * t * p.width + d] += sum[j][2 * half + e] * factor;
      }
    }
  }
}

/// From weights and products dy v to slopes of the scores.
template <int tokens>
__device__ __forceinline__ void differentiate(const float (&weight)[tokens / 8][4], float (&slope)[tokens / 8][4]) {
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    float delta = 0;
    HEARTH_UNROLL
    for (int j = 0; j < tokens / 8; ++j) {
      HEARTH_UNROLL
      for (int e = 2 * half; e < 2 * half + 2; ++e) delta += weight[j][e] * slope[j][e];
    }
    delta = reduce_row<Sum>(delta);
    HEARTH_UNROLL
    for (int j = 0; j < tokens / 8; ++j) {
      HEARTH_UNROLL
      for (int e = 2 * half; e < 2 * half + 2; ++e) slope[j][e] = weight[j][e] * (slope[j][e] - delta);
    }
  }
}

/// Writes this warp's rows of the sums of slopes to [tokens][tokens] of the grid's own size.
template <int tokens, class T>
__device__ __forceinline__ void store_biases(const Problem<T>& p, const float (&sum)[tokens / 8][4], float* to) {
  const int count = static_cast<int>(p.grid.tokens());
  HEARTH_UNROLL
  for (int j = 0; j < tokens / 8; ++j) {
    HEARTH_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int query = warp_row() + own_row(e), key = 8 * j + own_column(e);
      if (query < count && key < count) to[query * count + key] = sum[j][e];
    }
  }
}

/// A block differentiates one head of one share of the windows.
template <class T, int tokens, int width>
__global__ void __launch_bounds__(threads_of<tokens>)
    differentiate_windows_mma(HEARTH_GRID_CONSTANT(Problem<T>) p, const T* dy, T* dqkv, ShareSums<float> sums) {
  constexpr int pitch = width + run, size = tokens * pitch;
  HEARTH_SHARED(Places<tokens>, shared, [1]);
  Places<tokens>& places = shared[0];
  T* const q = dynamic_shared<T>();
  T *const k = q + size, *const v = k + size, *const dys = v + size;
  T *const weights = dys + size, *const slopes = weights + tokens * (tokens + run);
  const std::int64_t block = blockIdx.x, h = block % p.heads, count = p.grid.tokens();
  float* const padding = sums.padding == nullptr ? nullptr : sums.padding + block * 2 * count * p.width;
  if (padding != nullptr)
    for (int e = static_cast<int>(threadIdx.x); e < 2 * count * p.width; e += threads_of<tokens>) padding[e] = 0;
  load_bias(p, h, places);
  float biases[tokens / 8][4] = {};
  const std::int64_t begin = block / p.heads * sums.size;
  const std::int64_t end = begin + sums.size < sums.all ? begin + sums.size : sums.all;
  for (std::int64_t at = begin; at < end; ++at) {
    const Window<T> window(p, at, h);
    __syncthreads();
    place_tokens(p, window, places);
    __syncthreads();
    start_part<tokens, width>(p, places, h, 0, q);
    start_part<tokens, width>(p, places, h, 1, k);
    start_part<tokens, width>(p, places, h, 2, v);
    start_rows<tokens, width>(p, places, dy + h * p.width, p.channels, static_cast<const float*>(nullptr), dys);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    float weight[tokens / 8][4], slope[tokens / 8][4], sum[width / 8][4] = {};
    multiply_rows<width, tokens>(q + warp_row() * pitch, k, weight);
    weigh(p, places, weight);
    multiply_rows<width, tokens>(dys + warp_row() * pitch, v, slope);
    float factor[tokens / 8][4];
    if (p.draws.on) {
      draw_weights<tokens>(p, window, factor);
      scale_by<tokens>(factor, slope);
    }
    differentiate<tokens>(weight, slope);
    if (p.draws.on) scale_by<tokens>(factor, weight);
    HEARTH_UNROLL
    for (int j = 0; j < tokens / 8; ++j) {
      HEARTH_UNROLL
      for (int e = 0; e < 4; ++e) biases[j][e] += slope[j][e];
    }
    put_rows<tokens>(weight, weights);
    put_rows<tokens>(slope, slopes);
    add_weighted<width, tokens>(slope, k, sum);
    T* const to = dqkv + h * p.width;
    store_rows<tokens, width>(p, places, sum, p.scale, to, 3 * p.channels);
    __syncthreads();
    multiply_turned<width, tokens>(slopes, q, sum);
    store_rows<tokens, width>(p, places, sum, p.scale, to + p.channels, 3 * p.channels);
    if (padding != nullptr) add_padding<tokens, width>(p, places, sum, p.scale, padding);
    multiply_turned<width, tokens>(weights, dys, sum);
    store_rows<tokens, width>(p, places, sum, 1.0f, to + 2 * p.channels, 3 * p.channels);
    if (padding != nullptr) add_padding<tokens, width>(p, places, sum, 1.0f, padding + p.width);
  }
  float* const pairs = dynamic_shared<float>();
  __syncthreads();
  store_biases<tokens>(p, biases, pairs);
  __syncthreads();
  fold_share(p.grid, sums, p.width, [&](int i, int j) { return pairs[i * count + j]; });
}

/// f.operator()<T, tokens, width>() for the type and the next larger sizes there are.
template <class F>
void visit(const WindowAttentionArguments& a, F&& f) {
  visit_dtype("window_attention", a.qkv.dtype(), Types<f16, bf16>{}, [&]<class T>() {
    static_assert(most_window_head_width == 64 && most_mma_window == 8);
    const bool small = a.grid.tokens() <= 16, slim = a.head_width() <= 32;
    if (small) return slim ? f.template operator()<T, 16, 32>() : f.template operator()<T, 16, 64>();
    slim ? f.template operator()<T, 64, 32>() : f.template operator()<T, 64, 64>();
  });
}

}  // namespace

void window_attention_mma(Stream& stream, const WindowAttentionArguments& a, const Tensor& y) {
  visit(a, [&]<class T, int tokens, int width>() {
    launch(stream, "window_attention mma",
           {blocks_for(a.batch() * a.grid.windows() * a.heads, 1), threads_of<tokens>,
            3 * tokens * (width + run) * sizeof(T)},
           attend_windows_mma<T, tokens, width>, problem_of<T>(stream, a), y.data<T>());
  });
}

void window_attention_grad_mma(Stream& stream, const WindowAttentionArguments& a, const Tensor& dy,
                               const WindowAttentionGradients& g) {
  visit(a, [&]<class T, int tokens, int width>() {
    const Shares<float> shares(a, g, 1024, Pairs::in_block);
    launch(stream, "window_attention_grad mma",
           {blocks_for(shares.blocks, 1), threads_of<tokens>,
            (4 * tokens * (width + run) + 2 * tokens * (tokens + run)) * sizeof(T)},
           differentiate_windows_mma<T, tokens, width>, problem_of<T>(stream, a), static_cast<const T*>(dy.data<T>()),
           g.dqkv.data<T>(), shares.sums);
    join_windows(stream, a, shares.sums, g);
  });
}

}  // namespace hearth::kernels
