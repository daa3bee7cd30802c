// SPDX-License-Identifier: Apache-2.0
// How a thread of batch_norm's passes walks down its rows and what it holds of them. For kernel sources only.
#pragma once

#include "ops/column_tile.cuh"
#include "ops/norm/batch_norm.h"
#include "ops/norm/gradient_sums.cuh"
#include "ops/row_split.cuh"
#include "ops/run_sums.cuh"

namespace hearth::kernels::batch_norm_rows {

using namespace cuda;

constexpr int unit = 8;  // lanes a thread

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
__device__ __forceinline__ acc_t<T> pass(const Form& form, const UnitOfLanes<T>& of, int k, T x, T dy, unsigned bits) {
  const bool open = form.gate == ReluGate::from_input  ? of.normal(k, upcast(x)) > acc_t<T>(0)
                    : form.gate == ReluGate::from_mask ? (bits >> k & 1u) != 0
                                                       : true;
  return open ? upcast(dy) : acc_t<T>(0);
}

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
  // The same for all rows; pause() behind each run, which is short enough to be summed in f32.
  template <int ahead, class Load, class Use, class Pause>
  __device__ __forceinline__ void each_run(Load&& load, Use&& use, Pause&& pause) const {
    const Offset step = 32 * down;
    for (Offset from = row; from < end; from += step) {
      each<ahead>(from, end - from < step ? end : from + step, load, use);
      pause();
    }
  }
};

// Sums in acc_t that go to f64 now and then.
template <class P>
struct LongSums {
  P part[unit] = {};
  double total[unit] = {};

  __device__ void carry() {
    HEARTH_UNROLL
    for (int k = 0; k < unit; ++k) {
      total[k] += static_cast<double>(part[k]);
      part[k] = 0;
    }
  }
};

// Leaves the sum of a kind over this block's rows, by lane. `shared` holds 256 * unit values. All threads of the block
// call.
__device__ __forceinline__ void leave_sum(const RunSums& sums, const ColumnTiles& cut, const TilePlace& place, int kind,
                                          double (&value)[unit], double* shared) {
  sum_down(value, shared, cut.across);
  if (static_cast<int>(threadIdx.x) >= cut.across) return;
  const int count = lanes_in_unit(sums.columns, place.unit);
  HEARTH_UNROLL
  for (int k = 0; k < unit; ++k)
    if (k < count) *sums.at(place.segment, kind, place.unit * unit + k) = value[k];
}

// What follows when all kinds are left: in the last block of a tile store(channel, totals of the kinds) for each
// channel.
template <int kinds, class Store>
__device__ __forceinline__ void finish_sums(const RunSums& sums, const ColumnTiles& cut, std::int64_t channels,
                                            double* shared, Store&& store) {
  const unsigned tiles = static_cast<unsigned>(cut.tiles), tile = blockIdx.x % tiles, segment = blockIdx.x / tiles;
  const std::int64_t first = static_cast<std::int64_t>(tile) * cut.across * unit, rest = sums.columns - first;
  const int count = static_cast<int>(rest < cut.across * unit ? rest : cut.across * unit);
  if (!join_runs<kinds>(sums, tile, segment, first, count, shared)) return;
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
                                                const ColumnTiles& cut, const TilePlace& place, double (&sum)[unit],
                                                double (&product)[unit], double* shared) {
  leave_sum(sums, cut, place, 0, sum, shared);
  leave_sum(sums, cut, place, 1, product, shared);
  finish_sums<2>(sums, cut, norm.channels, shared,
                 [&](std::int64_t c, const double(&total)[2]) { norm.store(c, total[0], total[1]); });
}

}  // namespace hearth::kernels::batch_norm_rows
