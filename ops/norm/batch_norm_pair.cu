// SPDX-License-Identifier: Apache-2.0
// Threads own lanes and walk down the rows as in batch_norm.cu. Both norms are read and written in the same pass, so
// that dy and the bits of the ReLU are read once.
// Reference: batch_norm_cpu.cpp.
#include "ops/norm/batch_norm_pair.h"

#include "ops/norm/batch_norm_rows.cuh"
#include "ops/norm/folded_rows.h"

namespace hearth::kernels {
namespace {

using namespace cuda;
using namespace batch_norm_rows;

constexpr std::int64_t pass_blocks = 1 << 20;
constexpr std::int64_t pass_rows_each = 16;

// How many rows a thread asks for at once: each has three values of 16 bytes.
template <bool packed>
constexpr int rows_ahead = packed ? 2 : 1;

// 3 * sizeof(T) bytes an element.
template <class T, bool packed>
__global__ void __launch_bounds__(tile_block, 2)
    batch_norm_pair_apply(const T* a, const T* b, const acc_t<T>* a_table, const acc_t<T>* b_table,
                          std::int64_t channels, std::int64_t lanes, T* y, std::uint8_t* mask, ColumnTiles cut) {
  using P = acc_t<T>;
  constexpr int ahead = rows_ahead<packed>;
  const TilePlace place(cut, cut.blocks() - 1 - blockIdx.x);
  const UnitOfLanes<T> of_a(place, a_table, channels, lanes), of_b(place, b_table, channels, lanes);
  const Walk<packed> walk(cut, place, lanes);
  Eight<T> value[ahead], extra[ahead];
  walk.template each<ahead>(
      walk.row, walk.end,
      [&](int slot, auto at, auto) {
        value[slot] = load_eight<packed>(a + walk.first + at, of_a.count);
        extra[slot] = load_eight<packed>(b + walk.first + at, of_a.count);
      },
      [&](int slot, auto at, auto byte) {
        P result[unit];
        unsigned bits = 0;
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          const P added = upcast(cast_down<T>(of_b.normal(k, upcast(extra[slot].at[k]))));
          result[k] = of_a.normal(k, upcast(value[slot].at[k])) + added;
          // NaN stays.
          result[k] = result[k] < P(0) ? P(0) : result[k];
          bits |= (result[k] > rounds_to_zero<T> ? 1u : 0u) << k;
        }
        store_eight<packed>(y + walk.first + at, of_a.count, result);
        if (mask != nullptr) mask[walk.first_byte + byte] = static_cast<std::uint8_t>(bits & ((1u << of_a.count) - 1));
      });
}

// What a thread knows of the means of its lanes.
template <class P>
struct Means {
  P at[unit];
  __device__ Means(const P* table, std::int64_t channels, const TilePlace& place, int count) {
    load_table(table, 0, channels, place.unit * unit, count, at);
  }
};

// The sums of g, of g (a - mean) and of g (b - mean).
template <class T, bool packed>
__global__ void __launch_bounds__(tile_block, packed && sizeof(T) == 2 ? 2 : 1)
    batch_norm_pair_grad_moments(const T* a, const T* b, const T* dy, const acc_t<T>* a_table, const acc_t<T>* b_table,
                                 std::int64_t channels, std::int64_t lanes, const std::uint8_t* mask, ColumnTiles cut,
                                 RunSums runs, GradientSums<acc_t<T>> of_a, GradientSums<acc_t<T>> of_b) {
  using P = acc_t<T>;
  constexpr int ahead = packed && sizeof(T) == 2 ? 4 : rows_ahead<packed>;
  const TilePlace place(cut, blockIdx.x);
  const int count = lanes_in_unit(lanes, place.unit);
  const Walk<packed> walk(cut, place, lanes);
  Held<T> a_value[ahead], b_value[ahead], slope[ahead];
  unsigned bits[ahead] = {};
  const auto load = [&](int slot, auto at, auto byte) {
    a_value[slot].template load<packed>(a + walk.first + at, count);
    b_value[slot].template load<packed>(b + walk.first + at, count);
    slope[slot].template load<packed>(dy + walk.first + at, count);
    bits[slot] = mask[walk.first_byte + byte];
  };
  walk.template start<ahead>(load);
  const Means<P> a_mean(a_table, channels, place, count), b_mean(b_table, channels, place, count);
  LongSums<P, 3> sums;
  walk.template each_run<ahead>(
      load,
      [&](int slot) {
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          const P g = (bits[slot] >> k & 1u) != 0 ? slope[slot][k] : P(0);
          sums.part[0][k] += g;
          sums.part[1][k] += g * (a_value[slot][k] - a_mean.at[k]);
          sums.part[2][k] += g * (b_value[slot][k] - b_mean.at[k]);
        }
      },
      [&] { sums.carry(); });
  finish_sums<3>(runs, cut, channels, [&](std::int64_t c, const double(&total)[3]) {
    of_a.store(c, total[0], total[1]);
    of_b.store(c, total[0], total[2]);
  });
}

// 5 * sizeof(T) bytes an element.
template <class T, bool packed>
__global__ void __launch_bounds__(tile_block, 2)
    batch_norm_pair_grad_apply(T* a, T* b, const T* dy, const acc_t<T>* a_table, const acc_t<T>* b_table,
                               const acc_t<T>* a_corrections, const acc_t<T>* b_corrections, std::int64_t channels,
                               std::int64_t lanes, const std::uint8_t* mask, ColumnTiles cut) {
  using P = acc_t<T>;
  constexpr int ahead = rows_ahead<packed>;
  const TilePlace place(cut, cut.blocks() - 1 - blockIdx.x);
  const int count = lanes_in_unit(lanes, place.unit);
  const GradientOfLanes<T> of_a(a_table, a_corrections, channels, place.unit * unit, count),
      of_b(b_table, b_corrections, channels, place.unit * unit, count);
  const Walk<packed> walk(cut, place, lanes);
  Eight<T> a_value[ahead], b_value[ahead], slope[ahead];
  unsigned bits[ahead] = {};
  walk.template each<ahead>(
      walk.row, walk.end,
      [&](int slot, auto at, auto byte) {
        a_value[slot] = load_eight<packed>(static_cast<const T*>(a) + walk.first + at, count);
        b_value[slot] = load_eight<packed>(static_cast<const T*>(b) + walk.first + at, count);
        slope[slot] = load_eight<packed>(dy + walk.first + at, count);
        bits[slot] = mask[walk.first_byte + byte];
      },
      [&](int slot, auto at, auto) {
        P a_result[unit], b_result[unit];
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          const P g = (bits[slot] >> k & 1u) != 0 ? upcast(slope[slot].at[k]) : P(0);
          a_result[k] = of_a.dx(k, upcast(a_value[slot].at[k]), g);
          b_result[k] = of_b.dx(k, upcast(b_value[slot].at[k]), g);
        }
        store_eight<packed>(a + walk.first + at, count, a_result);
        store_eight<packed>(b + walk.first + at, count, b_result);
      });
}

// f.operator()<T, packed>().
template <class F>
void visit_pair(const Tensor& x, const FoldedRows& folded, const ColumnTiles& cut,
                std::initializer_list<const void*> arrays, F&& f) {
  visit_dtype("batch_norm", x.dtype(), Floats{}, [&]<class T>() {
    const bool packed = sizeof(T) < sizeof(double) && folded.lanes % unit == 0 && rows_fit<T>(folded.lanes, arrays) &&
                        cut.segment_rows * folded.lanes < 0x7fffffff;
    if constexpr (sizeof(T) < sizeof(double)) {
      if (packed) return f.template operator()<T, true>();
    }
    f.template operator()<T, false>();
  });
}

}  // namespace

void batch_norm_pair(Stream& stream, const NormedTensor& a, const NormedTensor& b, const Tensor& y,
                     const Tensor& mask) {
  if (y.size() == 0) return;
  const FoldedRows folded(y);
  const ColumnTiles cut = cut_columns(folded.rows, folded.mask_bytes(), pass_blocks, pass_rows_each);
  visit_pair(y, folded, cut, {a.x.bytes(), b.x.bytes(), y.bytes()}, [&]<class T, bool packed>() {
    using P = acc_t<T>;
    launch(stream, "batch_norm_pair",
           {blocks_for(cut.blocks(), 1), tile_block, 0, bytes_of(a.x, b.x, a.coefficients, b.coefficients, y, mask)},
           batch_norm_pair_apply<T, packed>, a.x.data<T>(), b.x.data<T>(), a.coefficients.data<P>(),
           b.coefficients.data<P>(), folded.channels, folded.lanes, y.data<T>(), data_or_null<std::uint8_t>(mask), cut);
  });
}

void batch_norm_pair_grad_sums(Stream& stream, const BatchNormGradient& a, const BatchNormGradient& b,
                               const Tensor& mask, const Tensor& dy) {
  const FoldedRows folded(dy);
  const ColumnTiles cut = cut_columns(folded.rows, folded.mask_bytes(), sum_blocks, sum_rows_each);
  Tensor memory;
  const RunSums sums = run_sums(stream, 3, folded.lanes, cut.segments, cut.tiles, memory);
  const std::int64_t values = dy.size() / folded.channels;
  visit_pair(dy, folded, cut, {a.x.bytes(), b.x.bytes(), dy.bytes()}, [&]<class T, bool packed>() {
    using P = acc_t<T>;
    launch(stream, "batch_norm_pair_grad_moments",
           {blocks_for(cut.blocks(), 1), tile_block, LongSums<P, 3>::shared_bytes,
            bytes_of(a.x, b.x, dy, mask) + sums.bytes() + bytes_of_gradient(a) + bytes_of_gradient(b)},
           batch_norm_pair_grad_moments<T, packed>, a.x.data<T>(), b.x.data<T>(), dy.data<T>(),
           a.coefficients.data<P>(), b.coefficients.data<P>(), folded.channels, folded.lanes, mask.data<std::uint8_t>(),
           cut, sums, gradient_sums<P>(a, values), gradient_sums<P>(b, values));
  });
}

void batch_norm_pair_grad(Stream& stream, const BatchNormGradient& a, const BatchNormGradient& b, const Tensor& mask,
                          const Tensor& dy) {
  if (dy.size() == 0) return;
  const FoldedRows folded(dy);
  const ColumnTiles cut = cut_columns(folded.rows, folded.mask_bytes(), pass_blocks, pass_rows_each);
  visit_pair(dy, folded, cut, {a.x.bytes(), b.x.bytes(), dy.bytes()}, [&]<class T, bool packed>() {
    using P = acc_t<T>;
    launch(stream, "batch_norm_pair_grad",
           {blocks_for(cut.blocks(), 1), tile_block, 0,
            2 * bytes_of(a.x, b.x) + bytes_of(dy, mask, a.coefficients, b.coefficients, a.corrections, b.corrections)},
           batch_norm_pair_grad_apply<T, packed>, a.x.data<T>(), b.x.data<T>(), dy.data<T>(), a.coefficients.data<P>(),
           b.coefficients.data<P>(), a.corrections.data<P>(), b.corrections.data<P>(), folded.channels, folded.lanes,
           mask.data<std::uint8_t>(), cut);
  });
}

}  // namespace hearth::kernels
