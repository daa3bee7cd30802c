// SPDX-License-Identifier: Apache-2.0
// Attention within windows of f16 and bf16 on tensor cores, f32 sums, for windows up to 12 x 12. A block walks over its
// share of the windows of one head: while it works on one, cp_async gathers the next. The head's biases lie in shared
// memory, up to 64 tokens in the order of the tensor cores' results, so that one load brings those of four scores, or
// in registers where these allow: shared memory is what most kernels here wait for. Results go through it to be written
// 16 bytes at a time. Each warp makes 16 rows of a result; scores stay in registers, and weights are multiplied where
// they are. The gradient makes the weights again; they and the slopes go through shared memory, rounded to 16 bits, for
// the products whose rows are keys. The biases' gradient stays in registers until the share ends, of more than 64
// tokens in shared memory. Traffic: every operand is read once and every result written once.
// Reference: window_attention_cpu.cpp.
#include <limits>

#include "ops/attention/cuda/mma_rows.cuh"
#include "ops/attention/cuda/window_mma.cuh"
#include "ops/attention/window_kernels.h"
#include "ops/device/multiprocessors.h"

namespace hearth::kernels {
namespace {

using namespace window_mma;

constexpr float log2_e = 1.44269504f;

/// Blocks that a multiprocessor is to hold at once, which registers must allow: of 64 tokens what shared memory does,
/// of 16, where a block is a warp, about 24, of 144 one.
template <int tokens, int width, bool gradient>
constexpr int blocks_held = tokens == 16   ? (width == 32 ? 24 : 16)
                            : tokens == 64 ? (width == 32 ? 4 : 3) - (gradient ? 1 : 0)
                                           : 1;

/// Blocks that a launch asks for: as many as a device holds at once, so that each block makes ready once.
template <int tokens, int width, bool gradient>
constexpr int blocks_wanted = multiprocessors* blocks_held<tokens, width, gradient>;

struct Higher {
  __device__ static float join(float a, float b) { return fmaxf(a, b); }
};

/// The biases of a head times log2 e. Of few tokens those that this lane adds to each fragment of a result, such that
/// there is no weight behind the last key: in shared memory, or registers where `own`. Of many the table's entries.
template <int tokens, bool own>
class Biases {
 public:
  /// `entries` keeps those of few tokens meanwhile. There is a barrier in it.
  template <class T>
  __device__ __forceinline__ Biases(const Problem<T>& p, int h, const Spot* spots, float* entries, float* shared)
      : shared_(shared) {
    float* const table = few<tokens> ? entries : shared;
    for (int e = static_cast<int>(threadIdx.x); e < static_cast<int>(p.grid.entries()); e += threads_of<tokens>)
      table[e] = p.table[e * p.heads + h] * log2_e;
    __syncthreads();
    if constexpr (few<tokens>) {
      HEARTH_UNROLL
      for (int j = 0; j < tokens / 8; ++j) {
        const Pack<float, 4> biases = biases_of(p.grid, spots, table, j);
        if constexpr (own)
          own_[j] = biases;
        else
          store_pack(shared_ + own_four<tokens>(j), biases);
      }
    }
  }
  __device__ __forceinline__ Pack<float, 4> four(int j) const {
    if constexpr (own)
      return own_[j];
    else
      return load_pack<4>(shared_ + own_four<tokens>(j));
  }
  __device__ __forceinline__ float entry(int e) const { return shared_[e]; }

 private:
  __device__ static Pack<float, 4> biases_of(const WindowGrid& grid, const Spot* spots, const float* table, int j) {
    Pack<float, 4> biases;
    HEARTH_UNROLL
    for (int e = 0; e < 4; ++e) {
      const Spot query = spots[warp_row() + own_row(e)], key = spots[8 * j + own_column(e)];
      const bool there = key.real != 0 && query.real != 0;
      const float bias = table[there ? query.place - key.place + middle_of(grid) : 0];
      biases.at[e] = key.real == 0 ? -std::numeric_limits<float>::infinity() : there ? bias : 0.0f;
    }
    return biases;
  }

  float* shared_;
  Pack<float, 4> own_[own ? tokens / 8 : 1];
};

/// Products of q and k times log2 e, with the biases.
template <int tokens, class T, bool own>
__device__ __forceinline__ void add_biases(const Problem<T>& p, const Spot* spots, const Biases<tokens, own>& biases,
                                           float (&score)[tokens / 8][4]) {
  const float scale = p.scale * log2_e;
  if constexpr (few<tokens>) {
    HEARTH_UNROLL
    for (int j = 0; j < tokens / 8; ++j) {
      const Pack<float, 4> bias = biases.four(j);
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
                                  : score[j][e] * scale + biases.entry(places[e / 2] - spots[key].place);
      }
    }
  }
}

/// Products of q and k become weights of the softmax times their sums; `inverse` those sums' inverses.
template <int tokens, class T, bool own>
__device__ __forceinline__ void weigh(const Problem<T>& p, const Place& place, const Spot* spots,
                                      const Biases<tokens, own>& biases, float (&weight)[tokens / 8][4],
                                      float (&inverse)[2]) {
  add_biases(p, spots, biases, weight);
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
    inverse[half] = reciprocal_rounded(reduce_row<Sum>(sum));
  }
}

/// Writes sum, the channels from `first` on, times its row's factor to the pixels of this warp's rows `row`, 16 bytes
/// at a time by way of `stage`: this warp's rows of a part, which nobody else reads or writes meanwhile.
template <int width, int pitch, class T>
__device__ __forceinline__ void store_rows(const Problem<T>& p, const std::int64_t (&row)[2],
                                           const float (&sum)[width / 8][4], float upper, float lower, T* stage, T* to,
                                           std::int64_t step, int first = 0) {
  __syncwarp();
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const float factor = half == 0 ? upper : lower;
    HEARTH_UNROLL
    for (int j = 0; j < width / 8; ++j)
      *reinterpret_cast<unsigned*>(stage + own_row(2 * half) * pitch + 8 * j + own_column(0)) =
          cast_down_two<T>(sum[j][2 * half] * factor, sum[j][2 * half + 1] * factor);
  }
  __syncwarp();
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    T* const at = to + row[half] * step + first;
    HEARTH_UNROLL
    for (int chunk = 0; chunk < width / run; chunk += 4) {
      const int d = (chunk + lane_id() % 4) * run;
      const auto pack = load_pack<4>(reinterpret_cast<const unsigned*>(stage + own_row(2 * half) * pitch + d));
      if (row[half] >= 0 && first + d < p.width) store_words(at + d, pack.at[0], pack.at[1], pack.at[2], pack.at[3]);
    }
  }
}

template <class T, int tokens, int width>
__global__ void __launch_bounds__(threads_of<tokens>, blocks_held<tokens, width, false>)
    attend_windows_mma(HEARTH_GRID_CONSTANT(Problem<T>) p, Split split, T* y) {
  using Memory = Layout<tokens, width, false>;
  HEARTH_SHARED(Spot, spots, [tokens]);
  HEARTH_SHARED(float, entries, [few_entries<tokens>]);
  float* const shared = dynamic_shared<float>();
  const int h = head_of(p);
  place_tokens(p.grid, tokens, spots);
  const Biases<tokens, keeps_biases<tokens, width>> biases(p, h, spots, entries, shared);
  const auto attend = [&](std::int64_t at, const Place& place, T* rows) {
    const KeepFactors<tokens> kept(p, at, h);
    float weight[tokens / 8][4], inverse[2];
    multiply_rows<width, tokens>(rows + warp_row() * Memory::pitch, rows + Memory::part, weight);
    weigh(p, place, spots, biases, weight, inverse);
    kept.apply(0, weight);
    // All channels at once where registers hold them. Only this warp reads its rows of q, and has.
    constexpr int columns = few<tokens> ? width : 32;
    HEARTH_UNROLL
    for (int first = 0; first < width; first += columns) {
      float sum[columns / 8][4] = {};
      add_weighted<width, tokens, columns>(weight, rows + 2 * Memory::part + first, sum);
      const std::int64_t own[2] = {place.row(p.grid, spots[warp_row() + own_row(0)]),
                                   place.row(p.grid, spots[warp_row() + own_row(2)])};
      store_rows<columns, Memory::pitch>(p, own, sum, inverse[0], inverse[1], rows + warp_row() * Memory::pitch,
                                         y + h * p.width, p.channels, first);
    }
  };
  walk<tokens, width, false>(p, split, spots, static_cast<const T*>(nullptr),
                             reinterpret_cast<T*>(shared + Memory::biases), attend);
}

/// Writes this warp's rows of [tokens][tokens + run] from column `first` on, rounded.
template <int tokens, int keys, class T>
__device__ __forceinline__ void put_rows(const float (&value)[keys / 8][4], int first, T* to) {
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    T* const row = to + (warp_row() + own_row(2 * half)) * (tokens + run) + first;
    HEARTH_UNROLL
    for (int j = 0; j < keys / 8; ++j)
      *reinterpret_cast<unsigned*>(row + 8 * j + own_column(0)) =
          cast_down_two<T>(value[j][2 * half], value[j][2 * half + 1]);
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
__device__ __forceinline__ void add_padding(const Problem<T>& p, const std::int64_t (&row)[2], const Spot* spots,
                                            const float (&sum)[width / 8][4], float factor, float* to) {
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int t = warp_row() + own_row(2 * half);
    if (spots[t].real == 0 || row[half] >= 0) continue;
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
template <int tokens, class T>
struct Gradient {
  Biases<tokens, false> biases;
  T *values, *dqkv;  ///< shared memory for weights or slopes; the result, at the head's first channel
  float* padding;    ///< sums of each token, or null
  int h;
};

/// Adds one window's slopes to `slopes` and writes its gradients.
template <int tokens, int width, class T>
__device__ __forceinline__ void differentiate(const Problem<T>& p, std::int64_t at, const Place& place,
                                              const Spot* spots, const Gradient<tokens, T>& g, T* rows,
                                              SlopeSums<tokens>& slopes) {
  constexpr int pitch = width + run, part = tokens * pitch,
                keys = few<tokens>  ? tokens
                       : width > 32 ? 16
                                    : 48,
                turns = tokens / keys;
  const T *const q = rows, *const v = q + 2 * part, *const dy = v + part;
  T* const k = rows + part;
  const KeepFactors<tokens> kept(p, at, g.h);
  float weight[tokens / 8][4], inverse[2];
  multiply_rows<width, tokens>(q + warp_row() * pitch, k, weight);
  weigh(p, place, spots, g.biases, weight, inverse);
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
  const std::int64_t own[2] = {place.row(p.grid, spots[warp_row() + own_row(0)]),
                               place.row(p.grid, spots[warp_row() + own_row(2)])};
  __syncthreads();
  // Nobody reads k any more.
  T* const stage = k + warp_row() * pitch;
  store_rows<width, pitch>(p, own, sum, p.scale, p.scale, stage, g.dqkv, step);
  multiply_turned<width, tokens>(g.values, q, sum);
  store_rows<width, pitch>(p, own, sum, p.scale, p.scale, stage, g.dqkv + p.channels, step);
  if (g.padding != nullptr) add_padding<width>(p, own, spots, sum, p.scale, g.padding);
  __syncthreads();
  kept.apply(0, weight);
  put_rows<tokens, tokens>(weight, 0, g.values);
  __syncthreads();
  multiply_turned<width, tokens>(g.values, dy, sum);
  store_rows<width, pitch>(p, own, sum, 1.0f, 1.0f, stage, g.dqkv + 2 * p.channels, step);
  if (g.padding != nullptr) add_padding<width>(p, own, spots, sum, 1.0f, g.padding + p.width);
}

template <class T, int tokens, int width>
__global__ void __launch_bounds__(threads_of<tokens>, blocks_held<tokens, width, true>)
    differentiate_windows_mma(HEARTH_GRID_CONSTANT(Problem<T>) p, Split split, const T* dy, T* dqkv,
                              ShareSums<float> sums) {
  using Memory = Layout<tokens, width, true>;
  HEARTH_SHARED(Spot, spots, [tokens]);
  HEARTH_SHARED(float, entries, [few_entries<tokens>]);
  float* const shared = dynamic_shared<float>();
  float* const sums_at = shared + (few<tokens> ? 0 : Memory::biases);  // those of few take the biases' place at the end
  T* const values = reinterpret_cast<T*>(shared + Memory::biases + Memory::sums);
  const int h = head_of(p), paddings = static_cast<int>(2 * p.grid.tokens()) * p.width;
  place_tokens(p.grid, tokens, spots);
  const Gradient<tokens, T> g{
      Biases<tokens, false>(p, h, spots, entries, shared), values, dqkv + h * p.width,
      sums.padding == nullptr ? nullptr : sums.padding + static_cast<std::int64_t>(blockIdx.x) * paddings, h};
  if (g.padding != nullptr)
    for (int e = static_cast<int>(threadIdx.x); e < paddings; e += threads_of<tokens>) g.padding[e] = 0;
  SlopeSums<tokens> slopes(sums_at);
  walk<tokens, width, true>(p, split, spots, dy, values + Memory::values,
                            [&](std::int64_t at, const Place& place, T* rows) {
                              differentiate<tokens, width>(p, at, place, spots, g, rows, slopes);
                            });
  slopes.finish();
  __syncthreads();
  fold_share(p.grid, sums, p.width, [&](int i, int j) { return sums_at[place_of<tokens>(i, j)]; });
}

/// f.operator()<T, tokens, width>() for the type and the next larger sizes there are.
template <class F>
void visit(DType dtype, std::int64_t window, std::int64_t width, F&& f) {
  static_assert(max_window_head_width == 64 && max_window == 12);
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
    bytes = std::max(Layout<tokens, room, false>::bytes, Layout<tokens, room, true>::bytes) + beside<tokens>;
  });
  return bytes;
}

void window_attention_mma(Stream& stream, const WindowAttentionArguments& a, const Tensor& y) {
  visit(y.dtype(), a.grid.window, a.head_width(), [&]<class T, int tokens, int width>() {
    const Split split(a, blocks_wanted<tokens, width, false>);
    launch(stream, "window_attention mma",
           {blocks_for(split.shares * a.heads, 1), threads_of<tokens>, Layout<tokens, width, false>::bytes,
            bytes_of(a.qkv, a.table, a.padding, y)},
           attend_windows_mma<T, tokens, width>, problem_of<T>(stream, a), split, y.data<T>());
  });
}

void window_attention_grad_mma(Stream& stream, const WindowAttentionArguments& a, const Tensor& dy,
                               const WindowAttentionGradients& g) {
  visit(dy.dtype(), a.grid.window, a.head_width(), [&]<class T, int tokens, int width>() {
    const Split split(a, blocks_wanted<tokens, width, true>);
    const Shares<float> shares(a, g, split, Pairs::in_block);
    launch(stream, "window_attention_grad mma",
           {blocks_for(split.shares * a.heads, 1), threads_of<tokens>, Layout<tokens, width, true>::bytes,
            bytes_of(a.qkv, a.table, a.padding, dy, g.dqkv, shares.folded, shares.padding)},
           differentiate_windows_mma<T, tokens, width>, problem_of<T>(stream, a), split,
           static_cast<const T*>(dy.data<T>()), g.dqkv.data<T>(), shares.sums);
    join_windows(stream, a, shares.sums, split.shares, g);
  });
}

}  // namespace hearth::kernels
