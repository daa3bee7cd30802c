// SPDX-License-Identifier: Apache-2.0
// Attention within windows of f16 and bf16 on tensor cores, f32 sums, for windows up to 12 x 12. A block walks over its
// share of the windows of one head: while it works on one, cp_async gathers the next. The head's biases lie in shared
// memory, up to 64 tokens in the order of the tensor cores' results, so that one load brings those of four scores. Each
// warp makes 16 rows of a result; scores stay in registers, and weights are multiplied where they are. The gradient
// makes the weights again; they and the slopes go through shared memory, rounded to 16 bits, for the products whose
// rows are keys. The biases' gradient stays in registers until the share ends, of more than 64 tokens in shared memory.
// Traffic: every operand is read once and every result written once.
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
constexpr float log2_e = 1.44269504f;
/// Shared memory that a kernel takes where it can choose; an H100 or H200 has as much.
constexpr std::size_t most_shared = 227 * 1024;

/// A warp for 16 of the tokens that there is room for.
template <int tokens>
constexpr int threads_of = tokens / warp_rows* warp_size;

/// Whether registers hold a value for each of a warp's weights beside those themselves.
template <int tokens>
constexpr bool few = tokens <= 64;

/// Blocks that a launch asks for: on 132 multiprocessors `each` as often as they hold at once; of many tokens each
/// holds one.
template <int tokens>
constexpr int blocks_wanted(int each) {
  return few<tokens> ? 132 * each : 132;
}

/// A kernel's shared memory: the biases, for the gradient of many tokens the sums of slopes, and for any gradient
/// [tokens][tokens + run] values; then the rows of q, k, v and dy in one or two buffers.
template <int tokens, int width, bool gradient>
struct Layout {
  static constexpr int pitch = width + run, part = tokens * pitch, buffer = (gradient ? 4 : 3) * part;
  static constexpr int biases = few<tokens> ? tokens * tokens : 532;
  static constexpr int sums = gradient && !few<tokens> ? tokens * tokens : 0;
  static constexpr int values = gradient ? tokens * (tokens + run) : 0;
  static constexpr std::size_t bytes_with(int buffers) {
    return static_cast<std::size_t>(4 * (biases + sums) + 2 * (values + buffers * buffer));
  }
  static constexpr int buffers = bytes_with(2) + tokens * sizeof(Spot) <= most_shared ? 2 : 1;
  static constexpr std::size_t bytes = bytes_with(buffers);
};
static_assert((2 * most_window - 1) * (2 * most_window - 1) <= 532);

__device__ __forceinline__ int warp_row() { return static_cast<int>(threadIdx.x) / warp_size * warp_rows; }

template <class T>
__device__ __forceinline__ int head_of(const Problem<T>& p) {
  return static_cast<int>(blockIdx.x % static_cast<unsigned>(p.heads));
}

struct Higher {
  __device__ static float join(float a, float b) { return fmaxf(a, b); }
};

/// Where this lane's four values of a result's columns from 8 j on lie in an array in the order of results.
template <int tokens>
__device__ __forceinline__ int own_four(int j) {
  return ((warp_row() / warp_rows * (tokens / 8) + j) * warp_size + lane_id()) * 4;
}

/// Where the value of query i and key j lies there.
template <int tokens>
__device__ __forceinline__ int place_of(int i, int j) {
  const int lane = i % 8 * 4 + j % 8 / 2, e = i % warp_rows / 8 * 2 + j % 2;
  return ((i / warp_rows * (tokens / 8) + j / 8) * warp_size + lane) * 4 + e;
}

/// The biases of a head times log2 e: of few tokens in the order of results and such that there is no weight behind the
/// last key, of many the table's entries.
template <int tokens, class T>
__device__ void load_biases(const Problem<T>& p, int h, const Spot* spots, float* biases) {
  if constexpr (few<tokens>) {
    for (int j = 0; j < tokens / 8; ++j) {
      Pack<float, 4> pack;
      HEARTH_UNROLL
      for (int e = 0; e < 4; ++e) {
        const Spot query = spots[warp_row() + own_row(e)], key = spots[8 * j + own_column(e)];
        const int entry = query.place - key.place + middle_of(p.grid);
        pack.at[e] = key.real == 0     ? -std::numeric_limits<float>::infinity()
                     : query.real == 0 ? 0.0f
                                       : p.table[entry * p.heads + h] * log2_e;
      }
      store_pack(biases + own_four<tokens>(j), pack);
    }
  } else {
    for (int e = static_cast<int>(threadIdx.x); e < p.grid.entries(); e += threads_of<tokens>)
      biases[e] = p.table[e * p.heads + h] * log2_e;
  }
}

/// Products of q and k times log2 e, with the biases.
template <int tokens, class T>
__device__ __forceinline__ void add_biases(const Problem<T>& p, const Spot* spots, const float* biases,
                                           float (&score)[tokens / 8][4]) {
  const float scale = p.scale * log2_e;
  if constexpr (few<tokens>) {
    HEARTH_UNROLL
    for (int j = 0; j < tokens / 8; ++j) {
      const auto bias = load_pack<4>(biases + own_four<tokens>(j));
      HEARTH_UNROLL
      for (int e = 0; e < 4; ++e) score[j][e] = score[j][e] * scale + bias.at[e];
    }
  } else {
    // Rows behind the last query have any entry of the table.
    const int count = static_cast<int>(p.grid.tokens()) - 1, middle = middle_of(p.grid);
    const int upper = warp_row() + own_row(0), lower = warp_row() + own_row(2);
    const int places[2] = {spots[upper < count ? upper : count].place + middle,
                           spots[lower < count ? lower : count].place + middle};
    HEARTH_UNROLL
    for (int j = 0; j < tokens / 8; ++j) {
      HEARTH_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int key = 8 * j + own_column(e);
        score[j][e] = key > count ? -std::numeric_limits<float>::infinity()
                                  : score[j][e] * scale + biases[places[e / 2] - spots[key].place];
      }
    }
  }
}

/// Sums of this lane's slopes over the windows of a share, which end in the order of results in `shared`.
template <int tokens>
class SlopeSums {
 public:
  __device__ explicit SlopeSums(float* shared) : shared_(shared) {
    HEARTH_UNROLL
    for (int j = 0; j < tokens / 8; ++j) {
      if constexpr (few<tokens>)
        sums_[j] = {};
      else
        store_pack(shared_ + own_four<tokens>(j), Pack<float, 4>{});
    }
  }
  __device__ __forceinline__ void add(int j, const float (&slope)[4]) {
    Pack<float, 4> sum;
    if constexpr (few<tokens>)
      sum = sums_[j];
    else
      sum = load_pack<4>(shared_ + own_four<tokens>(j));
    HEARTH_UNROLL
    for (int e = 0; e < 4; ++e) sum.at[e] += slope[e];
    if constexpr (few<tokens>)
      sums_[j] = sum;
    else
      store_pack(shared_ + own_four<tokens>(j), sum);
  }
  __device__ void finish() {
    if constexpr (few<tokens>) {
      HEARTH_UNROLL
      for (int j = 0; j < tokens / 8; ++j) store_pack(shared_ + own_four<tokens>(j), sums_[j]);
    }
  }

 private:
  float* shared_;
  Pack<float, 4> sums_[few<tokens> ? tokens / 8 : 1];
};

/// Starts to bring q, k and v of a head of a window, and dy where that is given. Positions behind the image get the
/// padding, all else zeros.
template <int tokens, int width, class T>
__device__ __forceinline__ void start_window(const Problem<T>& p, const Place& place, const Spot* spots, int h,
                                             const T* dy, T* to) {
  constexpr int chunks = width / run, pitch = width + run;
  HEARTH_UNROLL
  for (int i = 0; i < tokens * chunks / threads_of<tokens>; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * threads_of<tokens>, t = at / chunks, d = at % chunks * run;
    const Spot spot = spots[t];
    const std::int64_t row = place.row(p.grid, spot);
    const int first = h * p.width + d;
    const bool inside = row >= 0 && d < p.width;
    T* const into = to + t * pitch + d;
    if (p.padding != nullptr && row < 0 && spot.real != 0 && d < p.width) {
      for (int part = 0; part < 3; ++part) {
        Pack<T, run> pack;
        HEARTH_UNROLL
        for (int e = 0; e < run; ++e) pack.at[e] = narrow<T>(p.padding[part * p.channels + first + e]);
        store_pack(into + part * tokens * pitch, pack);
      }
    } else {
      const T* const from = p.qkv + (inside ? 3 * row * p.channels + first : 0);
      HEARTH_UNROLL
      for (int part = 0; part < 3; ++part) cp_async(into + part * tokens * pitch, from + part * p.channels, inside);
    }
    if (dy != nullptr) cp_async(into + 3 * tokens * pitch, dy + (inside ? row * p.channels + first : 0), inside);
  }
}

/// Calls work(at, place, rows) for each window of a share with its operands in shared memory.
template <int tokens, int width, bool gradient, class T, class Work>
__device__ __forceinline__ void walk(const Problem<T>& p, const Split& split, const Spot* spots, const T* dy, T* rows,
                                     Work&& work) {
  using Memory = Layout<tokens, width, gradient>;
  const int h = head_of(p);
  const std::int64_t share = blockIdx.x / static_cast<unsigned>(p.heads);
  const int turns = static_cast<int>(split.end(share) - split.begin(share));
  Place place(p.grid, split.begin(share)), next = place;
  start_window<tokens, width>(p, next, spots, h, dy, rows);
  cp_async_commit();
  for (int turn = 0; turn < turns; ++turn) {
    next.advance(p.grid);
    if constexpr (Memory::buffers == 2) {
      if (turn + 1 < turns) start_window<tokens, width>(p, next, spots, h, dy, rows + (turn + 1) % 2 * Memory::buffer);
      cp_async_commit();
    }
    cp_async_wait<Memory::buffers - 1>();
    __syncthreads();
    work(split.begin(share) + turn, place, rows + turn % Memory::buffers * Memory::buffer);
    __syncthreads();
    if constexpr (Memory::buffers == 1) {
      if (turn + 1 < turns) start_window<tokens, width>(p, next, spots, h, dy, rows);
      cp_async_commit();
    }
    place = next;
  }
}

/// Products of q and k become weights of the softmax times their sums; `inverse` those sums' inverses.
template <int tokens, class T>
__device__ __forceinline__ void weigh(const Problem<T>& p, const Place& place, const Spot* spots, const float* biases,
                                      float (&weight)[tokens / 8][4], float (&inverse)[2]) {
  add_biases<tokens>(p, spots, biases, weight);
  if (const int seams = place.seams(p.grid); seams != 0) {
    const int zones[2] = {spots[warp_row() + own_row(0)].zone, spots[warp_row() + own_row(2)].zone};
    HEARTH_UNROLL
    for (int j = 0; j < tokens / 8; ++j) {
      HEARTH_UNROLL
      for (int e = 0; e < 4; ++e)
        if (((spots[8 * j + own_column(e)].zone ^ zones[e / 2]) & seams) != 0)
          weight[j][e] += static_cast<float>(window_mask) * log2_e;
    }
  }
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    float most = -std::numeric_limits<float>::infinity(), sum = 0;
    HEARTH_UNROLL
    for (int j = 0; j < tokens / 8; ++j)
      most = Higher::join(most, Higher::join(weight[j][2 * half], weight[j][2 * half + 1]));
    most = reduce_row<Higher>(most);
    HEARTH_UNROLL
    for (int j = 0; j < tokens / 8; ++j) {
      HEARTH_UNROLL
      for (int e = 2 * half; e < 2 * half + 2; ++e) {
        weight[j][e] = exp2_rounded(weight[j][e] - most);
        sum += weight[j][e];
      }
    }
    inverse[half] = 1.0f / reduce_row<Sum>(sum);
  }
}

/// Which of this lane's weights dropout keeps, a bit each.
template <int tokens>
class Kept {
 public:
  /// Before there are weights: draws take many registers.
  template <class T>
  __device__ __forceinline__ Kept(const Problem<T>& p, std::int64_t at, int h)
      : words_{}, factor_(static_cast<float>(p.draws.kept)), on_(p.draws.on) {
    if (!on_) return;
    const std::int64_t first = first_weight(p, at, h);
    // Every second fragment is 16 keys on: those share Philox blocks.
    HEARTH_UNROLL
    for (int e = 0; e < 4; ++e) {
      HEARTH_UNROLL
      for (int odd = 0; odd < 2; ++odd) {
        float factor[tokens / 16];
        draw(p.draws, first + (warp_row() + own_row(e)) * p.grid.tokens() + odd * 8 + own_column(e), factor);
        HEARTH_UNROLL
        for (int i = 0; i < tokens / 16; ++i) {
          const int bit = 4 * (2 * i + odd) + e;
          words_[bit / 32] |= (factor[i] != 0 ? 1u : 0u) << bit % 32;
        }
      }
    }
  }
  /// Fragments from `first` on become 0 or are scaled.
  template <int count>
  __device__ __forceinline__ void apply(int first, float (&value)[count][4]) const {
    if (!on_) return;
    HEARTH_UNROLL
    for (int j = 0; j < count; ++j) {
      HEARTH_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int bit = 4 * (first + j) + e;
        value[j][e] *= (words_[bit / 32] >> bit % 32 & 1u) != 0 ? factor_ : 0.0f;
      }
    }
  }

 private:
  unsigned words_[(tokens / 2 + 31) / 32];
  float factor_;
  bool on_;
};

/// Writes sum, the channels from `first` on, times its row's factor to the pixels of this warp's rows, in pairs.
template <int width, class T>
__device__ __forceinline__ void store_rows(const Problem<T>& p, const Place& place, const Spot* spots,
                                           const float (&sum)[width / 8][4], float upper, float lower, T* to,
                                           std::int64_t step, int first = 0) {
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = place.row(p.grid, spots[warp_row() + own_row(2 * half)]);
    const float factor = half == 0 ? upper : lower;
    HEARTH_UNROLL
    for (int j = 0; j < width / 8; ++j) {
      const int d = first + 8 * j + own_column(0);
      if (row < 0 || d >= p.width) continue;
      Pack<T, 2> pair;
      pair.at[0] = narrow<T>(sum[j][2 * half] * factor);
      pair.at[1] = narrow<T>(sum[j][2 * half + 1] * factor);
      store_pack(to + row * step + d, pair);
    }
  }
}

template <class T, int tokens, int width>
__global__ void __launch_bounds__(threads_of<tokens>)
    attend_windows_mma(HEARTH_GRID_CONSTANT(Problem<T>) p, Split split, T* y) {
  using Memory = Layout<tokens, width, false>;
  HEARTH_SHARED(Spot, spots, [tokens]);
  float* const biases = dynamic_shared<float>();
  const int h = head_of(p);
  place_tokens(p.grid, tokens, spots);
  __syncthreads();
  load_biases<tokens>(p, h, spots, biases);
  const auto attend = [&](std::int64_t at, const Place& place, const T* rows) {
    const Kept<tokens> kept(p, at, h);
    float weight[tokens / 8][4], inverse[2];
    multiply_rows<width, tokens>(rows + warp_row() * Memory::pitch, rows + Memory::part, weight);
    weigh<tokens>(p, place, spots, biases, weight, inverse);
    kept.apply(0, weight);
    // All channels at once where registers hold them.
    constexpr int columns = few<tokens> ? width : 32;
    HEARTH_UNROLL
    for (int first = 0; first < width; first += columns) {
      float sum[columns / 8][4] = {};
      add_weighted<width, tokens, columns>(weight, rows + 2 * Memory::part + first, sum);
      store_rows<columns>(p, place, spots, sum, inverse[0], inverse[1], y + h * p.width, p.channels, first);
    }
  };
  walk<tokens, width, false>(p, split, spots, static_cast<const T*>(nullptr),
                             reinterpret_cast<T*>(biases + Memory::biases), attend);
}

/// Writes this warp's rows of [tokens][tokens + run] from column `first` on, rounded.
template <int tokens, int keys, class T>
__device__ __forceinline__ void put_rows(const float (&value)[keys / 8][4], int first, T* to) {
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    T* const row = to + (warp_row() + own_row(2 * half)) * (tokens + run) + first;
    HEARTH_UNROLL
    for (int j = 0; j < keys / 8; ++j) {
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
template <int width, class T>
__device__ __forceinline__ void add_padding(const Problem<T>& p, const Place& place, const Spot* spots,
                                            const float (&sum)[width / 8][4], float factor, float* to) {
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int t = warp_row() + own_row(2 * half);
    if (spots[t].real == 0 || place.row(p.grid, spots[t]) >= 0) continue;
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

/// What a block of the gradient has and makes.
template <class T>
struct Gradient {
  const float* biases;
  T *values, *dqkv;  ///< shared memory for weights or slopes; the result, at the head's first channel
  float* padding;    ///< sums of each token, or null
  int h;
};

/// Adds one window's slopes to `slopes` and writes its gradients.
template <int tokens, int width, class T>
__device__ __forceinline__ void differentiate(const Problem<T>& p, std::int64_t at, const Place& place,
                                              const Spot* spots, const Gradient<T>& g, const T* rows,
                                              SlopeSums<tokens>& slopes) {
  constexpr int pitch = width + run, part = tokens * pitch,
                keys = few<tokens>  ? tokens
                       : width > 32 ? 16
                                    : 48,
                turns = tokens / keys;
  const T *const q = rows, *const k = q + part, *const v = k + part, *const dy = v + part;
  const Kept<tokens> kept(p, at, g.h);
  float weight[tokens / 8][4], inverse[2];
  multiply_rows<width, tokens>(q + warp_row() * pitch, k, weight);
  weigh<tokens>(p, place, spots, g.biases, weight, inverse);
  // Slopes are dy v less their mean by weight. Where not all fit into registers they are made twice.
  float slope[keys / 8][4], mean[2] = {};
  HEARTH_UNROLL
  for (int turn = 0; turn < turns; ++turn) {
    multiply_rows<width, keys>(dy + warp_row() * pitch, v + turn * keys * pitch, slope);
    kept.apply(turn * keys / 8, slope);
    HEARTH_UNROLL
    for (int j = 0; j < keys / 8; ++j) {
      HEARTH_UNROLL
      for (int e = 0; e < 4; ++e) {
        weight[turn * keys / 8 + j][e] *= inverse[e / 2];
        mean[e / 2] += weight[turn * keys / 8 + j][e] * slope[j][e];
      }
    }
  }
  mean[0] = reduce_row<Sum>(mean[0]);
  mean[1] = reduce_row<Sum>(mean[1]);
  float sum[width / 8][4] = {};
  HEARTH_UNROLL
  for (int turn = 0; turn < turns; ++turn) {
    if constexpr (turns > 1) {
      multiply_rows<width, keys>(dy + warp_row() * pitch, v + turn * keys * pitch, slope);
      kept.apply(turn * keys / 8, slope);
    }
    HEARTH_UNROLL
    for (int j = 0; j < keys / 8; ++j) {
      HEARTH_UNROLL
      for (int e = 0; e < 4; ++e) slope[j][e] = weight[turn * keys / 8 + j][e] * (slope[j][e] - mean[e / 2]);
      slopes.add(turn * keys / 8 + j, slope[j]);
    }
    put_rows<tokens, keys>(slope, turn * keys, g.values);
    add_weighted<width, keys>(slope, k + turn * keys * pitch, sum);
  }
  const std::int64_t step = 3 * p.channels;
  store_rows<width>(p, place, spots, sum, p.scale, p.scale, g.dqkv, step);
  __syncthreads();
  multiply_turned<width, tokens>(g.values, q, sum);
  store_rows<width>(p, place, spots, sum, p.scale, p.scale, g.dqkv + p.channels, step);
  if (g.padding != nullptr) add_padding<width>(p, place, spots, sum, p.scale, g.padding);
  __syncthreads();
  kept.apply(0, weight);
  put_rows<tokens, tokens>(weight, 0, g.values);
  __syncthreads();
  multiply_turned<width, tokens>(g.values, dy, sum);
  store_rows<width>(p, place, spots, sum, 1.0f, 1.0f, g.dqkv + 2 * p.channels, step);
  if (g.padding != nullptr) add_padding<width>(p, place, spots, sum, 1.0f, g.padding + p.width);
}

template <class T, int tokens, int width>
__global__ void __launch_bounds__(threads_of<tokens>)
    differentiate_windows_mma(HEARTH_GRID_CONSTANT(Problem<T>) p, Split split, const T* dy, T* dqkv,
                              ShareSums<float> sums) {
  using Memory = Layout<tokens, width, true>;
  HEARTH_SHARED(Spot, spots, [tokens]);
  float* const biases = dynamic_shared<float>();
  float* const sums_at = biases + (few<tokens> ? 0 : Memory::biases);  // those of few take the biases' place at the end
  T* const values = reinterpret_cast<T*>(biases + Memory::biases + Memory::sums);
  const int h = head_of(p), paddings = static_cast<int>(2 * p.grid.tokens()) * p.width;
  const Gradient<T> g{
      biases, values, dqkv + h * p.width,
      sums.padding == nullptr ? nullptr : sums.padding + static_cast<std::int64_t>(blockIdx.x) * paddings, h};
  if (g.padding != nullptr)
    for (int e = static_cast<int>(threadIdx.x); e < paddings; e += threads_of<tokens>) g.padding[e] = 0;
  place_tokens(p.grid, tokens, spots);
  __syncthreads();
  load_biases<tokens>(p, h, spots, biases);
  SlopeSums<tokens> slopes(sums_at);
  walk<tokens, width, true>(p, split, spots, dy, values + Memory::values,
                            [&](std::int64_t at, const Place& place, const T* rows) {
                              differentiate<tokens, width>(p, at, place, spots, g, rows, slopes);
                            });
  slopes.finish();
  __syncthreads();
  fold_share(p.grid, sums, p.width, [&](int i, int j) { return sums_at[place_of<tokens>(i, j)]; });
}

/// f.operator()<T, tokens, width>() for the type and the next larger sizes there are.
template <class F>
void visit(DType dtype, std::int64_t window, std::int64_t width, F&& f) {
  static_assert(most_window_head_width == 64 && most_window == 12);
  visit_dtype("window_attention", dtype, Types<f16, bf16>{}, [&]<class T>() {
    const bool slim = width <= 32;
    if (window <= 4) return slim ? f.template operator()<T, 16, 32>() : f.template operator()<T, 16, 64>();
    if (window <= 8) return slim ? f.template operator()<T, 64, 32>() : f.template operator()<T, 64, 64>();
    return slim ? f.template operator()<T, 144, 32>() : f.template operator()<T, 144, 64>();
  });
}

}  // namespace

std::size_t window_attention_mma_shared(std::int64_t window, std::int64_t width) {
  std::size_t bytes = 0;
  visit(DType::f16, window, width, [&]<class T, int tokens, int room>() {
    bytes = std::max(Layout<tokens, room, false>::bytes, Layout<tokens, room, true>::bytes) + tokens * sizeof(Spot);
  });
  return bytes;
}

void window_attention_mma(Stream& stream, const WindowAttentionArguments& a, const Tensor& y) {
  visit(y.dtype(), a.grid.window, a.head_width(), [&]<class T, int tokens, int width>() {
    const Split split(a, blocks_wanted<tokens>(12));
    launch(stream, "window_attention mma",
           {blocks_for(split.shares * a.heads, 1), threads_of<tokens>, Layout<tokens, width, false>::bytes},
           attend_windows_mma<T, tokens, width>, problem_of<T>(stream, a), split, y.data<T>());
  });
}

void window_attention_grad_mma(Stream& stream, const WindowAttentionArguments& a, const Tensor& dy,
                               const WindowAttentionGradients& g) {
  visit(dy.dtype(), a.grid.window, a.head_width(), [&]<class T, int tokens, int width>() {
    const Split split(a, blocks_wanted<tokens>(6));
    const Shares<float> shares(a, g, split, Pairs::in_block);
    launch(stream, "window_attention_grad mma",
           {blocks_for(split.shares * a.heads, 1), threads_of<tokens>, Layout<tokens, width, true>::bytes},
           differentiate_windows_mma<T, tokens, width>, problem_of<T>(stream, a), split,
           static_cast<const T*>(dy.data<T>()), g.dqkv.data<T>(), shares.sums);
    join_windows(stream, a, shares.sums, split.shares, g);
  });
}

}  // namespace hearth::kernels
