// SPDX-License-Identifier: Apache-2.0
// A thread owns eight neighbouring lanes (a byte of the mask) and walks down the rows. Sums are taken in two stages: a
// block leaves those of its run of rows in f64, then a warp a channel adds them in order and derives what the next pass
// needs. Training reads x twice and writes y once, the gradient reads x and dy twice and writes dx; the second pass
// goes through the blocks backwards, because the end of a large tensor is what the first one left in the cache.
// Reference: batch_norm_cpu.cpp.
#include "ops/column_tile.cuh"
#include "ops/norm/batch_norm.cuh"
#include "ops/norm/channel_moments.h"
#include "ops/norm/folded_rows.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

constexpr int unit = 8;                    // lanes a thread
constexpr std::int64_t sum_blocks = 528;   // of the first stage: few partial sums, yet enough loads under way
constexpr std::int64_t sum_rows_each = 8;  // rows a thread at least
constexpr std::int64_t pass_blocks = 1 << 20;
constexpr std::int64_t pass_rows_each = 16;

// The lanes of `unit` that exist: 8, fewer at the end of a row, 0 beyond it.
__device__ __forceinline__ int lanes_in_unit(std::int64_t lanes, std::int64_t index) {
  const std::int64_t rest = lanes - index * unit;
  return rest >= unit ? unit : rest > 0 ? static_cast<int>(rest) : 0;
}

template <bool packed, class T>
__device__ __forceinline__ void load_eight(const T* p, int count, acc_t<T> (&value)[unit]) {
  if constexpr (packed) {
    load_unit(p, value);
  } else {
    HEARTH_UNROLL
    for (int k = 0; k < unit; ++k) value[k] = k < count ? upcast(p[k]) : acc_t<T>(0);
  }
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

// A thread's unit of lanes, and what normalises it.
template <class P>
struct UnitOfLanes {
  std::int64_t first;  // lane
  int count;           // of lanes that exist
  P mean[unit], scale[unit], shift[unit];

  __device__ UnitOfLanes(const TilePlace& place, const P* table, std::int64_t channels, std::int64_t lanes)
      : first(place.unit * unit), count(lanes_in_unit(lanes, place.unit)) {
    load_table(table, 0, channels, first, count, mean);
    load_table(table, 1, channels, first, count, scale);
    load_table(table, 2, channels, first, count, shift);
  }
};

// Which dy pass the ReLU: bit k for lane k of the unit.
struct Gate {
  ReluGate kind;
  const std::uint8_t* mask;

  __device__ unsigned bits(std::int64_t row, std::int64_t units, std::int64_t index) const {
    return kind == ReluGate::from_mask ? mask[row * units + index] : 0xffu;
  }
  template <class P>
  __device__ P pass(P dy, unsigned bits, int k, P centred, P scale, P shift) const {
    const bool open = kind == ReluGate::from_input ? centred * scale + shift > P(0) : (bits >> k & 1u) != 0;
    return open ? dy : P(0);
  }
};

// load(slot, row), then use(slot, row), for this thread's rows, `ahead` at a time so that their loads overlap;
// then pause().
template <int ahead, class Load, class Use, class Pause>
__device__ __forceinline__ void each_tile_row(const TilePlace& place, Load&& load, Use&& use, Pause&& pause) {
  std::int64_t row = place.first_row;
  for (; row + (ahead - 1) * place.down < place.end_row; row += ahead * place.down) {
    HEARTH_UNROLL
    for (int slot = 0; slot < ahead; ++slot) load(slot, row + slot * place.down);
    HEARTH_UNROLL
    for (int slot = 0; slot < ahead; ++slot) use(slot, row + slot * place.down);
    pause();
  }
  for (; row < place.end_row; row += place.down) {
    load(0, row);
    use(0, row);
    pause();
  }
}

// Leaves a unit's two values of a block at partial[which][lane][segment].
__device__ __forceinline__ void leave_partial(const ColumnTiles& cut, const TilePlace& place, std::int64_t lanes,
                                              const double (&first)[unit], const double (&second)[unit],
                                              double* partial) {
  if (static_cast<int>(threadIdx.x) >= cut.across) return;
  const int count = lanes_in_unit(lanes, place.unit);
  HEARTH_UNROLL
  for (int k = 0; k < unit; ++k) {
    if (k >= count) break;
    const std::int64_t lane = place.unit * unit + k;
    partial[lane * cut.segments + place.segment] = first[k];
    partial[(lanes + lane) * cut.segments + place.segment] = second[k];
  }
}

// First stage of the statistics: mean and sum of squared deviations of a run of rows. Deviations are taken from the
// thread's own first row in acc_t, four at a time, and carried on in f64.
template <class T, bool packed>
__global__ void __launch_bounds__(tile_block, 2)
    batch_norm_moments(const T* x, std::int64_t lanes, ColumnTiles cut, double* partial) {
  using P = acc_t<T>;
  constexpr int ahead = 4;
  HEARTH_SHARED(double, shared, [tile_block * unit]);
  const TilePlace place(cut, blockIdx.x);
  const int count = lanes_in_unit(lanes, place.unit);
  const T* const from = x + place.unit * unit;
  P shift[unit] = {}, value[ahead][unit], part[unit] = {}, part_squares[unit] = {};
  double sum[unit] = {}, squares[unit] = {}, mean[unit], n = 0;
  if (place.first_row < place.end_row) load_eight<packed>(from + place.first_row * lanes, count, shift);
  each_tile_row<ahead>(
      place, [&](int slot, std::int64_t row) { load_eight<packed>(from + row * lanes, count, value[slot]); },
      [&](int slot, std::int64_t) {
        n += 1;
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          const P d = value[slot][k] - shift[k];
          part[k] += d;
          part_squares[k] += d * d;
        }
      },
      [&] {
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          sum[k] += static_cast<double>(part[k]);
          squares[k] += static_cast<double>(part_squares[k]);
          part[k] = part_squares[k] = 0;
        }
      });
  HEARTH_UNROLL
  for (int k = 0; k < unit; ++k) mean[k] = sum[k] + n * static_cast<double>(shift[k]);
  sum_down(mean, shared, cut.across);
  const std::int64_t begin = place.segment * cut.segment_rows, rest = cut.rows - begin;
  const double rows = static_cast<double>(rest < cut.segment_rows ? rest : cut.segment_rows);
  HEARTH_UNROLL
  for (int k = 0; k < unit; ++k) {
    mean[k] /= rows;
    const double move = mean[k] - static_cast<double>(shift[k]);
    squares[k] += move * (n * move - 2 * sum[k]);
  }
  sum_down(squares, shared, cut.across);
  leave_partial(cut, place, lanes, mean, squares, partial);
}

// The partial values of a channel, dealt out among a group of threads: f(value of the first table, of the second, rows
// that they stand for).
template <class Group, class F>
__device__ __forceinline__ void each_partial(const Group& group, const double* partial, std::int64_t channel,
                                             std::int64_t channels, std::int64_t lanes, const ColumnTiles& cut, F&& f) {
  const std::int64_t fold = lanes / channels;
  for (std::int64_t i = group.index(); i < fold * cut.segments; i += group.threads()) {
    const std::int64_t segment = i % cut.segments, lane = i / cut.segments * channels + channel;
    const std::int64_t rest = cut.rows - segment * cut.segment_rows;
    f(partial[lane * cut.segments + segment], partial[(lanes + lane) * cut.segments + segment],
      static_cast<double>(rest < cut.segment_rows ? rest : cut.segment_rows));
  }
}

// Second stage: a warp a channel, or a block where partial values are many.
template <class P, class Group>
__global__ void batch_norm_finish(Group group, const double* partial, std::int64_t channels, std::int64_t lanes,
                                  ColumnTiles cut, double values, Coefficients<P> to) {
  const std::int64_t c = group.first_row();
  if (c >= channels) return;
  double sum = 0, squares = 0;
  each_partial(group, partial, c, channels, lanes, cut, [&](double mean, double, double rows) { sum += rows * mean; });
  const double mean = group.template reduce<Sum>(sum, 0.0) / values;
  each_partial(group, partial, c, channels, lanes, cut, [&](double part_mean, double part_squares, double rows) {
    squares += part_squares + rows * (part_mean - mean) * (part_mean - mean);
  });
  squares = group.template reduce<Sum>(squares, 0.0);
  if (group.index() != 0) return;
  const double variance = squares > 0 || squares != squares ? squares / values : 0.0;
  store_statistics(to, channels, c, mean, variance, values);
}

// Coefficients from the running statistics: a thread a channel.
template <class P>
__global__ void batch_norm_evaluate(std::int64_t channels, Coefficients<P> to) {
  const std::int64_t c = global_thread();
  if (c >= channels) return;
  store_coefficients(to, channels, c, static_cast<double>(to.running_mean[c]), static_cast<double>(to.running_var[c]));
}

// y = relu?((x - mean) scale + shift + residual), and the bits of what is above 0: 2 or 3 * sizeof(T) bytes an element.
template <class T, bool packed>
__global__ void __launch_bounds__(tile_block, 2)
    batch_norm_apply(const T* x, const T* residual, const acc_t<T>* table, std::int64_t channels, std::int64_t lanes,
                     bool relu, T* y, std::uint8_t* mask, ColumnTiles cut) {
  using P = acc_t<T>;
  constexpr int ahead = 2;
  const TilePlace place(cut, cut.blocks() - 1 - blockIdx.x);
  const UnitOfLanes<P> of(place, table, channels, lanes);
  P value[ahead][unit], extra[ahead][unit];
  each_tile_row<ahead>(
      place,
      [&](int slot, std::int64_t row) {
        load_eight<packed>(x + row * lanes + of.first, of.count, value[slot]);
        if (residual != nullptr) load_eight<packed>(residual + row * lanes + of.first, of.count, extra[slot]);
      },
      [&](int slot, std::int64_t row) {
        unsigned bits = 0;
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          P result = (value[slot][k] - of.mean[k]) * of.scale[k] + of.shift[k];
          if (residual != nullptr) result += extra[slot][k];
          // NaN stays.
          result = relu && result < P(0) ? P(0) : result;
          value[slot][k] = result;
          bits |= (k < of.count && upcast(cast_down<T>(result)) > P(0) ? 1u : 0u) << k;
        }
        store_eight<packed>(y + row * lanes + of.first, of.count, value[slot]);
        if (mask != nullptr) mask[row * cut.units + place.unit] = static_cast<std::uint8_t>(bits);
      },
      [] {});
}

// First stage of the gradient's sums: of g and g (x - mean) over a run of rows, four at a time in acc_t, then f64.
template <class T, bool packed>
__global__ void __launch_bounds__(tile_block, 2)
    batch_norm_grad_moments(const T* x, const T* dy, const acc_t<T>* table, std::int64_t channels, std::int64_t lanes,
                            Gate gate, ColumnTiles cut, double* partial) {
  using P = acc_t<T>;
  constexpr int ahead = 4;
  HEARTH_SHARED(double, shared, [tile_block * unit]);
  const TilePlace place(cut, blockIdx.x);
  const UnitOfLanes<P> of(place, table, channels, lanes);
  P value[ahead][unit], slope[ahead][unit];
  unsigned bits[ahead];
  P part[unit] = {}, part_product[unit] = {};
  double sum[unit] = {}, product[unit] = {};
  each_tile_row<ahead>(
      place,
      [&](int slot, std::int64_t row) {
        load_eight<packed>(x + row * lanes + of.first, of.count, value[slot]);
        load_eight<packed>(dy + row * lanes + of.first, of.count, slope[slot]);
        bits[slot] = gate.bits(row, cut.units, place.unit);
      },
      [&](int slot, std::int64_t) {
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          const P d = value[slot][k] - of.mean[k];
          const P g = gate.pass(slope[slot][k], bits[slot], k, d, of.scale[k], of.shift[k]);
          part[k] += g;
          part_product[k] += g * d;
        }
      },
      [&] {
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          sum[k] += static_cast<double>(part[k]);
          product[k] += static_cast<double>(part_product[k]);
          part[k] = part_product[k] = 0;
        }
      });
  sum_down(sum, shared, cut.across);
  sum_down(product, shared, cut.across);
  leave_partial(cut, place, lanes, sum, product, partial);
}

// Second stage: a warp a channel; null outputs are not wanted.
template <class P>
__global__ void batch_norm_grad_finish(const double* partial, std::int64_t channels, std::int64_t lanes,
                                       ColumnTiles cut, double values, const P* table, const double* rstd, P* d_gamma,
                                       P* d_beta, P* corrections) {
  const std::int64_t c = global_thread() / warp_size;
  if (c >= channels) return;
  double sum = 0, product = 0;
  each_partial(LaneGroup{warp_size}, partial, c, channels, lanes, cut, [&](double part, double part_product, double) {
    sum += part;
    product += part_product;
  });
  sum = warp_reduce<Sum>(sum);
  product = warp_reduce<Sum>(product);
  if (lane_id() != 0) return;
  const double rest = table[3 * channels + c];
  product -= rest * sum;
  if (d_gamma != nullptr) d_gamma[c] = static_cast<P>(product * rstd[c]);
  if (d_beta != nullptr) d_beta[c] = static_cast<P>(sum);
  if (corrections == nullptr) return;
  const double b = product * rstd[c] * rstd[c] / values;
  corrections[c] = static_cast<P>(sum / values - b * rest);
  corrections[channels + c] = static_cast<P>(b);
}

// dx = scale (g - a - b (x - mean)), and g for the residual where wanted; either may be dy. 3 or 4 * sizeof(T) bytes an
// element.
template <class T, bool packed>
__global__ void __launch_bounds__(tile_block, 2)
    batch_norm_grad_apply(const T* x, const T* dy, const acc_t<T>* table, const acc_t<T>* corrections,
                          std::int64_t channels, std::int64_t lanes, Gate gate, T* dx, T* d_residual, ColumnTiles cut) {
  using P = acc_t<T>;
  constexpr int ahead = 2;
  const TilePlace place(cut, cut.blocks() - 1 - blockIdx.x);
  const UnitOfLanes<P> of(place, table, channels, lanes);
  P a[unit], b[unit], value[ahead][unit], slope[ahead][unit];
  unsigned bits[ahead];
  load_table(corrections, 0, channels, of.first, of.count, a);
  load_table(corrections, 1, channels, of.first, of.count, b);
  each_tile_row<ahead>(
      place,
      [&](int slot, std::int64_t row) {
        load_eight<packed>(x + row * lanes + of.first, of.count, value[slot]);
        load_eight<packed>(dy + row * lanes + of.first, of.count, slope[slot]);
        bits[slot] = gate.bits(row, cut.units, place.unit);
      },
      [&](int slot, std::int64_t row) {
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          const P d = value[slot][k] - of.mean[k];
          slope[slot][k] = gate.pass(slope[slot][k], bits[slot], k, d, of.scale[k], of.shift[k]);
          value[slot][k] = of.scale[k] * (slope[slot][k] - a[k] - d * b[k]);
        }
        store_eight<packed>(dx + row * lanes + of.first, of.count, value[slot]);
        if (d_residual != nullptr) store_eight<packed>(d_residual + row * lanes + of.first, of.count, slope[slot]);
      },
      [] {});
}

ColumnTiles cut_for_sums(const FoldedRows& folded) {
  return cut_columns(folded.rows, folded.mask_bytes(), sum_blocks, sum_rows_each);
}

ColumnTiles cut_for_pass(const FoldedRows& folded) {
  return cut_columns(folded.rows, folded.mask_bytes(), pass_blocks, pass_rows_each);
}

// f.operator()<T, packed>().
template <class F>
void visit_lanes(DType dtype, const FoldedRows& folded, std::initializer_list<const void*> arrays, F&& f) {
  visit_dtype("batch_norm", dtype, Floats{}, [&]<class T>() {
    if (folded.lanes % unit == 0 && rows_fit<T>(folded.lanes, arrays))
      f.template operator()<T, true>();
    else
      f.template operator()<T, false>();
  });
}

constexpr int finish_block = 128;
constexpr std::int64_t many_partials = 1024;  // of a channel: a block's work

template <class P>
void finish(cuda::Stream& stream, const Tensor& partial, std::int64_t channels, std::int64_t lanes,
            const ColumnTiles& cut, std::int64_t values, const Coefficients<P>& to) {
  const auto run = [&](const LaunchShape& shape, auto group) {
    launch(stream, "batch_norm_finish", shape.moving(bytes_of(partial)), batch_norm_finish<P, decltype(group)>, group,
           static_cast<const double*>(partial.data<double>()), channels, lanes, cut, static_cast<double>(values), to);
  };
  if (lanes / channels * cut.segments > many_partials)
    run({blocks_for(channels, 1), finish_block}, BlockGroup{});
  else
    run({blocks_for(channels * warp_size, finish_block), finish_block}, LaneGroup{warp_size});
}

}  // namespace

void batch_norm_coefficients(cuda::Stream& stream, const Tensor& x, const ChannelNorm& o) {
  const FoldedRows folded(x);
  if (folded.channels == 0) return;
  visit_dtype("batch_norm", o.gamma.dtype(), FullFloats{}, [&]<class P>() {
    const auto to = coefficients_of<P>(o);
    if (!o.options.training) {
      launch(stream, "batch_norm_evaluate",
             {blocks_for(folded.channels, finish_block), finish_block, 0, bytes_of(o.coefficients)},
             batch_norm_evaluate<P>, folded.channels, to);
      return;
    }
    const ColumnTiles cut = cut_for_sums(folded);
    const Tensor partial = Tensor::empty({2, folded.lanes, cut.segments}, DType::f64, x.device());
    visit_lanes(x.dtype(), folded, {x.bytes()}, [&]<class T, bool packed>() {
      launch(stream, "batch_norm_moments", {blocks_for(cut.blocks(), 1), tile_block, 0, bytes_of(x, partial)},
             batch_norm_moments<T, packed>, x.data<T>(), folded.lanes, cut, partial.data<double>());
    });
    finish<P>(stream, partial, folded.channels, folded.lanes, cut, x.size() / folded.channels, to);
  });
}

void batch_norm_coefficients(cuda::Stream& stream, const ChannelMoments& moments, std::int64_t values,
                             const ChannelNorm& o) {
  const std::int64_t channels = o.gamma.dim(0);
  if (channels == 0) return;
  ColumnTiles cut{};
  cut.rows = values;
  cut.segment_rows = moments.run_rows;
  cut.segments = moments.parts.dim(2);
  visit_dtype("batch_norm", o.gamma.dtype(), FullFloats{}, [&]<class P>() {
    finish<P>(stream, moments.parts, channels, channels, cut, values, coefficients_of<P>(o));
  });
}

void batch_norm(cuda::Stream& stream, const Tensor& x, const Tensor& coefficients, const Tensor& residual, bool relu,
                const Tensor& y, const Tensor& mask) {
  if (x.size() == 0) return;
  const FoldedRows folded(x);
  const ColumnTiles cut = cut_for_pass(folded);
  visit_lanes(x.dtype(), folded, {x.bytes(), y.bytes(), address_of(residual)}, [&]<class T, bool packed>() {
    launch(stream, "batch_norm",
           {blocks_for(cut.blocks(), 1), tile_block, 0, bytes_of(x, residual, coefficients, y, mask)},
           batch_norm_apply<T, packed>, x.data<T>(), data_or_null<T>(residual), coefficients.data<acc_t<T>>(),
           folded.channels, folded.lanes, relu, y.data<T>(), data_or_null<std::uint8_t>(mask), cut);
  });
}

void batch_norm_grad_sums(cuda::Stream& stream, const BatchNormSaved& saved, const Tensor& dy, const Tensor& rstd,
                          const Tensor& d_gamma, const Tensor& d_beta, const Tensor& corrections) {
  const Tensor &x = saved.x, &coefficients = saved.coefficients;
  const FoldedRows folded(x);
  if (folded.channels == 0) return;
  const ColumnTiles cut = cut_for_sums(folded);
  const Tensor partial = Tensor::empty({2, folded.lanes, cut.segments}, DType::f64, x.device());
  visit_lanes(x.dtype(), folded, {x.bytes(), dy.bytes()}, [&]<class T, bool packed>() {
    launch(stream, "batch_norm_grad_moments",
           {blocks_for(cut.blocks(), 1), tile_block, 0, bytes_of(x, dy, coefficients, saved.mask, partial)},
           batch_norm_grad_moments<T, packed>, x.data<T>(), dy.data<T>(), coefficients.data<acc_t<T>>(),
           folded.channels, folded.lanes, Gate{saved.gate, data_or_null<std::uint8_t>(saved.mask)}, cut,
           partial.data<double>());
  });
  visit_dtype("batch_norm", coefficients.dtype(), FullFloats{}, [&]<class P>() {
    launch(stream, "batch_norm_grad_finish",
           {blocks_for(folded.channels * warp_size, finish_block), finish_block, 0,
            bytes_of(partial, coefficients, rstd, d_gamma, d_beta, corrections)},
           batch_norm_grad_finish<P>, partial.data<double>(), folded.channels, folded.lanes, cut,
           static_cast<double>(x.size() / folded.channels), static_cast<const P*>(coefficients.data<P>()),
           static_cast<const double*>(rstd.data<double>()), data_or_null<P>(d_gamma), data_or_null<P>(d_beta),
           data_or_null<P>(corrections));
  });
}

void batch_norm_grad(cuda::Stream& stream, const BatchNormSaved& saved, const Tensor& dy, const Tensor& corrections,
                     const Tensor& dx, const Tensor& d_residual) {
  const Tensor &x = saved.x, &coefficients = saved.coefficients;
  if (x.size() == 0) return;
  const FoldedRows folded(x);
  const ColumnTiles cut = cut_for_pass(folded);
  const auto arrays = {address_of(x), address_of(dy), address_of(dx), address_of(d_residual)};
  visit_lanes(x.dtype(), folded, arrays, [&]<class T, bool packed>() {
    using P = acc_t<T>;
    launch(stream, "batch_norm_grad",
           {blocks_for(cut.blocks(), 1), tile_block, 0,
            bytes_of(x, dy, coefficients, saved.mask, corrections, dx, d_residual)},
           batch_norm_grad_apply<T, packed>, x.data<T>(), dy.data<T>(), coefficients.data<P>(),
           data_or_null<P>(corrections), folded.channels, folded.lanes,
           Gate{saved.gate, data_or_null<std::uint8_t>(saved.mask)}, dx.data<T>(), data_or_null<T>(d_residual), cut);
  });
}

}  // namespace hearth::kernels
