// SPDX-License-Identifier: Apache-2.0
// What a block of window_attention_mma.cu has while it walks over its share of the windows of a head: the layout of its
// shared memory, the rows of a window that cp_async gathers, the sums of slopes, and what dropout keeps. For kernel
// sources only.
#pragma once

#include "ops/attention/cuda/mma_rows.cuh"
#include "ops/attention/cuda/window_problem.cuh"

namespace hearth::kernels::window_mma {

using namespace cuda;
using namespace attention_mma_rows;
using namespace window_problem;

constexpr int warp_rows = 16;
/// Shared memory that a kernel takes where it can choose; an H100 or H200 has as much.
constexpr std::size_t max_shared = 227 * 1024;

/// A warp for each 16 of the tokens that fit.
template <int tokens>
constexpr int threads_of = tokens / warp_rows* warp_size;

/// Whether registers hold a value for each of a warp's weights beside those themselves.
template <int tokens>
constexpr bool few = tokens <= 64;

/// Entries of a head's table that a block of few tokens holds while it makes ready.
template <int tokens>
constexpr int few_entries = tokens == 16  ? 49
                            : few<tokens> ? 225
                                          : 1;

/// Bytes of shared memory beside those of the layout.
template <int tokens>
constexpr std::size_t beside = tokens * sizeof(Spot) + few_entries<tokens> * sizeof(float);

/// Whether the forward pass has the registers for its biases, which are the same for every window.
template <int tokens, int width>
constexpr bool keeps_biases = tokens == 64 && width == 32;

/// A kernel's shared memory: the biases, for the gradient of many tokens the sums of slopes, and for any gradient
/// [tokens][tokens + run] values; then the rows of q, k, v and dy in one or two buffers.
template <int tokens, int width, bool gradient>
struct Layout {
  static constexpr int pitch = width + run, part = tokens * pitch, buffer = (gradient ? 4 : 3) * part;
  static constexpr int biases = !few<tokens> ? 532 : gradient || !keeps_biases<tokens, width> ? tokens * tokens : 0;
  static constexpr int sums = gradient && !few<tokens> ? tokens * tokens : 0;
  static constexpr int values = gradient ? tokens * (tokens + run) : 0;
  static constexpr std::size_t bytes_with(int buffers) {
    return static_cast<std::size_t>(4 * (biases + sums) + 2 * (values + buffers * buffer));
  }
  static constexpr int buffers = bytes_with(2) + beside<tokens> <= max_shared ? 2 : 1;
  static constexpr std::size_t bytes = bytes_with(buffers);
};
static_assert((2 * max_window - 1) * (2 * max_window - 1) <= 532);

__device__ __forceinline__ int warp_row() { return static_cast<int>(threadIdx.x) / warp_size * warp_rows; }

template <class T>
__device__ __forceinline__ int head_of(const Problem<T>& p) {
  return static_cast<int>(blockIdx.x % static_cast<unsigned>(p.heads));
}

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
        for (int e = 0; e < run; ++e) pack.at[e] = cast_down<T>(p.padding[part * p.channels + first + e]);
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

/// Which of this lane's weights dropout keeps, a bit each.
template <int tokens>
class KeepFactors {
 public:
  /// Before there are weights: draws take many registers.
  template <class T>
  __device__ __forceinline__ KeepFactors(const Problem<T>& p, std::int64_t at, int h)
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

}  // namespace hearth::kernels::window_mma
