// SPDX-License-Identifier: Apache-2.0
// How a thread of batch_norm's passes walks down its rows and what it holds of them. For kernel sources only.
#pragma once

#include "ops/device/column_tile.cuh"
#include "ops/device/row_split.cuh"
#include "ops/device/run_sums.cuh"
#include "ops/norm/batch_norm.h"
#include "ops/norm/cuda/gradient_sums.cuh"

namespace hearth::kernels::batch_norm_rows {

using namespace cuda;

constexpr int unit = 8;  // lanes a thread

// Of a pass that sums: all blocks run at once, two on each of an H100's 132 multiprocessors or nearly so. More would be
// more partial sums, and a second start.
constexpr std::int64_t sum_blocks = 256;
constexpr std::int64_t sum_rows_each = 8;  // rows a thread at least

// The lanes of `unit` that exist: 8, fewer at the end of a row, 0 beyond it.
__device__ __forceinline__ int lanes_in_unit(std::int64_t lanes, std::int64_t index) {
  const std::int64_t rest = lanes - index * unit;
  return rest >= unit ? unit : rest > 0 ? static_cast<int>(rest) : 0;
}

// What a kernel does, known when it is compiled: rows are read in packs of 16 bytes, without a branch for an element.
// Or found when it runs: for rows of any length, and for f64.
template <bool has_residual, bool has_relu, bool has_mask>
struct Known {
  static constexpr bool packed = true, residual = has_residual, relu = has_relu, mask = has_mask;
};
struct Found {
  static constexpr bool packed = false;
  bool residual, relu, mask;
};
template <ReluGate relu_gate, bool has_residual>
struct KnownGate {
  static constexpr bool packed = true, residual = has_residual;
  static constexpr ReluGate gate = relu_gate;
};
struct FoundGate {
  static constexpr bool packed = false;
  ReluGate gate;
  bool residual;
};

// Above this a result is not rounded to 0.
template <class T>
constexpr acc_t<T> rounds_to_zero = std::is_same_v<T, f16>    ? acc_t<T>(0x1p-25)
                                    : std::is_same_v<T, bf16> ? acc_t<T>(0x1p-134)
                                                              : acc_t<T>(0);

// Eight neighbouring elements as they lie in memory, zeros where fewer exist: 16-bit ones take four registers.
template <class T>
struct alignas(16) Eight {
  T at[unit];
};

template <bool packed, class T>
__device__ __forceinline__ Eight<T> load_eight(const T* p, int count) {
  Eight<T> eight;
  constexpr int piece = pack_size<T> < unit ? pack_size<T> : unit;
  if constexpr (packed) {
    HEARTH_UNROLL
    for (int k = 0; k < unit; k += piece) store_pack(eight.at + k, load_pack<piece>(p + k));
  } else {
    HEARTH_UNROLL
    for (int k = 0; k < unit; ++k) eight.at[k] = k < count ? p[k] : T();
  }
  return eight;
}

// The same where a loop asks for them rounds before it uses them: nvcc would take 16-bit elements apart at once, and so
// wait for them.
template <class T>
struct Held {
  Eight<T> eight;

  template <bool packed>
  __device__ __forceinline__ void load(const T* p, int count) {
    eight = load_eight<packed>(p, count);
  }
  __device__ acc_t<T> operator[](int k) const { return upcast(eight.at[k]); }
};
template <class T>
requires(sizeof(T) == 2) struct Held<T> {
  unsigned words[unit / 2];

  template <bool packed>
  __device__ __forceinline__ void load(const T* p, int count) {
    if constexpr (packed) {
      const uint4 four = *reinterpret_cast<const uint4*>(p);
      words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
    } else {
      HEARTH_UNROLL
      for (int k = 0; k < unit; k += 2)
        words[k / 2] = (k < count ? p[k].bits : 0u) | (k + 1 < count ? p[k + 1].bits : 0u) << 16;
    }
  }
  __device__ float operator[](int k) const {
    return upcast(T::from_bits(static_cast<std::uint16_t>(words[k / 2] >> k % 2 * 16)));
  }
};

template <bool packed, class T>
__device__ __forceinline__ void store_eight(T* p, int count, const acc_t<T> (&value)[unit]) {
  if constexpr (packed) {
    store_unit(p, value);
  } else {
    HEARTH_UNROLL
    for (int k = 0; k < unit; ++k)
      if (k < count) p[k] = cast_down<T>(value[k]);
  }
}

// Row `which` of a [rows, channels] table, for the lanes of a unit; 0 where the table is absent.
template <class P>
__device__ __forceinline__ void load_table(const P* table, int which, std::int64_t channels, std::int64_t first_lane,
                                           int count, P (&value)[unit]) {
  std::int64_t c = first_lane % channels;
  const P* const row = table + which * channels;
  if (table != nullptr && count == unit && channels % unit == 0) {
    load_unit(row + c, value);
    return;
  }
  HEARTH_UNROLL
  for (int k = 0; k < unit; ++k) {
    value[k] = table != nullptr && k < count ? row[c] : P(0);
    c = c + 1 == channels ? 0 : c + 1;
  }
}

// A thread's unit of lanes, and what normalises it. Of 16-bit types the mean is part of the shift: what that costs in
// f32 is far below what rounding x to 16 bits has cost.
template <class T>
struct UnitOfLanes {
  using P = acc_t<T>;
  static constexpr bool folded = sizeof(T) == 2;
  std::int64_t first;  // lane
  int count;           // of lanes that exist
  P mean[unit], scale[unit], shift[unit];

  __device__ UnitOfLanes(const TilePlace& place, const P* table, std::int64_t channels, std::int64_t lanes)
      : first(place.unit * unit), count(lanes_in_unit(lanes, place.unit)) {
    load_table(table, 0, channels, first, count, mean);
    load_table(table, 1, channels, first, count, scale);
    load_table(table, 2, channels, first, count, shift);
    HEARTH_UNROLL
    for (int k = 0; folded && k < unit; ++k) shift[k] -= mean[k] * scale[k];
  }
  __device__ P normal(int k, P x) const { return (folded ? x : x - mean[k]) * scale[k] + shift[k]; }
};

// dy of lane k where the ReLU was open, as the gradient finds it: bit k of `bits`, or from x.
template <class Form, class T>
__device__ __forceinline__ acc_t<T> pass(const Form& form, const UnitOfLanes<T>& of, int k, acc_t<T> x, acc_t<T> dy,
                                         unsigned bits) {
  const bool open = form.gate == ReluGate::from_input  ? of.normal(k, x) > acc_t<T>(0)
                    : form.gate == ReluGate::from_mask ? (bits >> k & 1u) != 0
                                                       : true;
  return open ? dy : acc_t<T>(0);
}

// How dx of a unit of lanes follows from g and x: scale g - (slope x + shift), with the mean apart where it is not
// folded.
template <class T>
struct GradientOfLanes {
  using P = acc_t<T>;
  static constexpr bool folded = sizeof(T) == 2;
  P mean[unit], scale[unit], shift[unit], slope[unit];

  __device__ GradientOfLanes(const P* table, const P* corrections, std::int64_t channels, std::int64_t first,
                             int count) {
    load_table(table, 0, channels, first, count, mean);
    load_table(table, 1, channels, first, count, scale);
    load_table(corrections, 0, channels, first, count, shift);
    load_table(corrections, 1, channels, first, count, slope);
    fold();
  }
  // Of eight channels, where lanes are no more than that.
  __device__ GradientOfLanes(const P* table, const P* corrections, int channels, int first) {
    load_unit(table + first, mean);
    load_unit(table + channels + first, scale);
    load_unit(corrections + first, shift);
    load_unit(corrections + channels + first, slope);
    fold();
  }
  __device__ void fold() {
    HEARTH_UNROLL
    for (int k = 0; folded && k < unit; ++k) {
      shift[k] = scale[k] * (shift[k] - slope[k] * mean[k]);
      slope[k] *= scale[k];
    }
  }
  __device__ P dx(int k, P x, P g) const {
    return folded ? scale[k] * g - (slope[k] * x + shift[k]) : scale[k] * (g - shift[k] - (x - mean[k]) * slope[k]);
  }
};

// This thread's rows, counted from the first of its block. Offsets from there fit 32 bits where packs are used.
template <bool packed>
struct Walk {
  using Offset = std::conditional_t<packed, std::uint32_t, std::int64_t>;
  std::int64_t first;       // element of the unit in the block's first row
  std::int64_t first_byte;  // of the mask
  Offset row, end, down, lanes, units;

  __device__ Walk(const ColumnTiles& cut, const TilePlace& place, std::int64_t row_lanes)
      : down(static_cast<Offset>(place.down)),
        lanes(static_cast<Offset>(row_lanes)),
        units(static_cast<Offset>(cut.units)) {
    const std::int64_t begin = place.segment * cut.segment_rows;
    first = begin * row_lanes + place.unit * unit;
    first_byte = begin * cut.units + place.unit;
    row = static_cast<Offset>(place.first_row - begin);
    end = static_cast<Offset>(place.end_row - begin);
  }
  __device__ int count() const { return row < end ? static_cast<int>((end - row - 1) / down) + 1 : 0; }

  // load(slot, element, byte of the mask), then use(the same), for the rows below `last`, `ahead` at a time so that
  // their loads overlap.
  template <int ahead, class Load, class Use>
  __device__ __forceinline__ void each(Offset from, Offset last, Load&& load, Use&& use) const {
    Offset at = from * lanes, byte = from * units;
    for (; from + (ahead - 1) * down < last; from += ahead * down) {
      HEARTH_UNROLL
      for (int slot = 0; slot < ahead; ++slot) load(slot, at + slot * down * lanes, byte + slot * down * units);
      HEARTH_UNROLL
      for (int slot = 0; slot < ahead; ++slot) use(slot, at + slot * down * lanes, byte + slot * down * units);
      at += ahead * down * lanes;
      byte += ahead * down * units;
    }
    for (; from < last; from += down) {
      load(0, at, byte);
      use(0, at, byte);
      at += down * lanes;
      byte += down * units;
    }
  }
  // load(slot, element, byte of the mask) for the first rows of each_run(). What else a kernel needs it reads after
  // this.
  template <int ahead, class Load>
  __device__ __forceinline__ void start(Load&& load) const {
    HEARTH_UNROLL
    for (int slot = 0; slot < ahead; ++slot)
      if (row + slot * down < end) load(slot, (row + slot * down) * lanes, (row + slot * down) * units);
  }
  // load(slot, element, byte of the mask), then use(slot), for all rows, behind start(). Each slot is asked for again
  // as soon as it is used, so that `ahead` rows are always under way. pause() behind each run, which is short enough to
  // be summed in f32.
  template <int ahead, class Load, class Use, class Pause>
  __device__ __forceinline__ void each_run(Load&& load, Use&& use, Pause&& pause) const {
    constexpr int run = 32;
    const Offset row_lanes = down * lanes, row_units = down * units;
    Offset from = row, at = row * lanes, byte = row * units;
    for (int used = ahead; from + (2 * ahead - 1) * down < end; from += ahead * down, used += ahead) {
      at += ahead * row_lanes;
      byte += ahead * row_units;
      HEARTH_UNROLL
      for (int slot = 0; slot < ahead; ++slot) {
        use(slot);
        load(slot, at + slot * row_lanes, byte + slot * row_units);
      }
      if (used % run == 0) pause();
    }
    for (; from < end; from += ahead * down) {
      at += ahead * row_lanes;
      byte += ahead * row_units;
      HEARTH_UNROLL
      for (int slot = 0; slot < ahead; ++slot) {
        if (from + slot * down < end) use(slot);
        if (from + (ahead + slot) * down < end) load(slot, at + slot * row_lanes, byte + slot * row_units);
      }
    }
    pause();
  }
};

// Sums of `kinds` kinds and eight lanes, in acc_t; now and then they go to f64, in the block's dynamic shared memory.
// What that takes is kept from a thread's registers, which hold the loads under way.
template <class P, int kinds>
struct LongSums {
  static constexpr int count = kinds * unit;
  static constexpr std::size_t shared_bytes = sizeof(double) * count * tile_block;
  P part[kinds][unit] = {};
  volatile double* total;  // or nvcc would keep them in registers after all

  __device__ LongSums() : total(dynamic_shared<double>() + threadIdx.x) {
    HEARTH_UNROLL
    for (int i = 0; i < count; ++i) total[i * tile_block] = 0;
  }
  __device__ void carry() {
    constexpr int at_once = 4;
    HEARTH_UNROLL
    for (int first = 0; first < count; first += at_once) {
      double value[at_once];
      HEARTH_UNROLL
      for (int i = 0; i < at_once; ++i) value[i] = total[(first + i) * tile_block];
      HEARTH_UNROLL
      for (int i = 0; i < at_once; ++i) {
        P& from = part[(first + i) / unit][(first + i) % unit];
        total[(first + i) * tile_block] = value[i] + static_cast<double>(from);
        from = 0;
      }
    }
  }
};

// use(lane of the tile, sums of the kinds over the block) for each lane, by some thread; rows are added in order. All
// threads of the block call, after their last carry().
template <int kinds, class Use>
__device__ __forceinline__ void each_lane_sum(int across, Use&& use) {
  const double* const shared = dynamic_shared<double>();
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < across * unit; i += tile_block) {
    const int column = i & (across - 1), k = i / across;
    double sum[kinds] = {};
    for (int thread = column; thread < tile_block; thread += across) {
      HEARTH_UNROLL
      for (int kind = 0; kind < kinds; ++kind) sum[kind] += shared[(kind * unit + k) * tile_block + thread];
    }
    use(column * unit + k, sum);
  }
}

// Leaves a block's sums of its run of rows; in the last block of a tile store(channel, totals of the kinds) for each
// channel. All threads of the block call, after their last carry().
template <int kinds, class Store>
__device__ __forceinline__ void finish_sums(const RunSums& sums, const ColumnTiles& cut, std::int64_t channels,
                                            Store&& store) {
  double* const shared = dynamic_shared<double>();
  const unsigned tiles = static_cast<unsigned>(cut.tiles), tile = blockIdx.x % tiles, segment = blockIdx.x / tiles;
  const std::int64_t first = static_cast<std::int64_t>(tile) * cut.across * unit, rest = sums.columns - first;
  const int count = static_cast<int>(rest < cut.across * unit ? rest : cut.across * unit);
  each_lane_sum<kinds>(cut.across, [&](int lane, const double(&sum)[kinds]) {
    HEARTH_UNROLL
    for (int kind = 0; kind < kinds; ++kind)
      if (lane < count) *sums.at(segment, kind, first + lane) = sum[kind];
  });
  if (!join_runs<kinds, 32 / kinds>(sums, tile, segment, first, count, shared)) return;
  // Rows that are folded lie in one tile.
  const int own = count < channels ? count : static_cast<int>(channels);
  for (int c = static_cast<int>(threadIdx.x); c < own; c += tile_block) {
    double total[kinds] = {};
    for (int lane = c; lane < count; lane += own) {
      HEARTH_UNROLL
      for (int kind = 0; kind < kinds; ++kind) total[kind] += shared[kind * count + lane];
    }
    store(first + c, total);
  }
}

// Both for the sums of g and of g (x - mean).
template <class P>
__device__ __forceinline__ void finish_gradient(const RunSums& sums, const GradientSums<P>& norm,
                                                const ColumnTiles& cut) {
  finish_sums<2>(sums, cut, norm.channels,
                 [&](std::int64_t c, const double(&total)[2]) { norm.store(c, total[0], total[1]); });
}

}  // namespace hearth::kernels::batch_norm_rows
