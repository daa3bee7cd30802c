// SPDX-License-Identifier: Apache-2.0
// A thread owns eight neighbouring lanes (a byte of the mask) and walks down the rows. A block leaves the sums of its
// run of rows in f64; of the statistics a warp a channel then adds them in order and derives what the next pass needs,
// of the gradient the last blocks do. Training reads x twice and writes y once, the gradient reads x and dy twice and
// writes dx; the second pass goes through the blocks backwards, because the end of a large tensor is what the first one
// left in the cache.
// Reference: batch_norm_cpu.cpp.
#include "ops/norm/batch_norm.cuh"
#include "ops/norm/batch_norm_rows.cuh"
#include "ops/norm/channel_moments.h"
#include "ops/norm/folded_rows.h"

namespace hearth::kernels {
namespace {

using namespace cuda;
using namespace batch_norm_rows;

constexpr std::int64_t sum_blocks = 528;   // of the first stage: few partial sums, yet enough loads under way
constexpr std::int64_t sum_rows_each = 8;  // rows a thread at least
constexpr std::int64_t pass_blocks = 1 << 20;
constexpr std::int64_t pass_rows_each = 16;

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
// thread's own first row.
template <class T, bool packed>
__global__ void __launch_bounds__(tile_block, 2)
    batch_norm_moments(const T* x, std::int64_t lanes, ColumnTiles cut, double* partial) {
  using P = acc_t<T>;
  constexpr int ahead = packed ? 4 : 1;
  HEARTH_SHARED(double, shared, [tile_block * unit]);
  const TilePlace place(cut, blockIdx.x);
  const Walk<packed> walk(cut, place, lanes);
  const int count = lanes_in_unit(lanes, place.unit);
  x += walk.first;
  Eight<T> origin{}, value[ahead];
  if (walk.row < walk.end) origin = load_eight<packed>(x + walk.row * walk.lanes, count);
  LongSums<P> sum, squares;
  walk.template each_run<ahead>([&](int slot, auto at, auto) { value[slot] = load_eight<packed>(x + at, count); },
                                [&](int slot, auto, auto) {
                                  HEARTH_UNROLL
                                  for (int k = 0; k < unit; ++k) {
                                    const P d = upcast(value[slot].at[k]) - upcast(origin.at[k]);
                                    sum.part[k] += d;
                                    squares.part[k] += d * d;
                                  }
                                },
                                [&] {
                                  sum.carry();
                                  squares.carry();
                                });
  const double n = walk.count();
  double mean[unit];
  HEARTH_UNROLL
  for (int k = 0; k < unit; ++k) mean[k] = sum.total[k] + n * static_cast<double>(upcast(origin.at[k]));
  sum_down(mean, shared, cut.across);
  const std::int64_t begin = place.segment * cut.segment_rows, rest = cut.rows - begin;
  const double rows = static_cast<double>(rest < cut.segment_rows ? rest : cut.segment_rows);
  HEARTH_UNROLL
  for (int k = 0; k < unit; ++k) {
    mean[k] /= rows;
    const double move = mean[k] - static_cast<double>(upcast(origin.at[k]));
    squares.total[k] += move * (n * move - 2 * sum.total[k]);
  }
  sum_down(squares.total, shared, cut.across);
  leave_partial(cut, place, lanes, mean, squares.total, partial);
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
template <class T, class Form>
__global__ void __launch_bounds__(tile_block, 2)
    batch_norm_apply(Form form, const T* x, const T* residual, const acc_t<T>* table, std::int64_t channels,
                     std::int64_t lanes, T* y, std::uint8_t* mask, ColumnTiles cut) {
  using P = acc_t<T>;
  constexpr bool packed = Form::packed;
  constexpr int ahead = packed ? 4 : 1;
  const TilePlace place(cut, cut.blocks() - 1 - blockIdx.x);
  const UnitOfLanes<T> of(place, table, channels, lanes);
  const Walk<packed> walk(cut, place, lanes);
  Eight<T> value[ahead], extra[ahead];
  walk.template each<ahead>(
      walk.row, walk.end,
      [&](int slot, auto at, auto) {
        value[slot] = load_eight<packed>(x + walk.first + at, of.count);
        if (form.residual) extra[slot] = load_eight<packed>(residual + walk.first + at, of.count);
      },
      [&](int slot, auto at, auto byte) {
        P result[unit];
        unsigned bits = 0;
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          result[k] = of.normal(k, upcast(value[slot].at[k]));
          if (form.residual) result[k] += upcast(extra[slot].at[k]);
          // NaN stays.
          if (form.relu) result[k] = result[k] < P(0) ? P(0) : result[k];
          if (form.mask) bits |= (result[k] > rounds_to_zero<T> ? 1u : 0u) << k;
        }
        store_eight<packed>(y + walk.first + at, of.count, result);
        if (form.mask) mask[walk.first_byte + byte] = static_cast<std::uint8_t>(bits & ((1u << of.count) - 1));
      });
}

// The gradient's sums, of g and of g (x - mean).
template <class T, class Form>
__global__ void __launch_bounds__(tile_block, 2)
    batch_norm_grad_moments(Form form, const T* x, const T* dy, const acc_t<T>* table, std::int64_t channels,
                            std::int64_t lanes, const std::uint8_t* mask, ColumnTiles cut, RunSums sums,
                            GradientSums<acc_t<T>> norm) {
  using P = acc_t<T>;
  constexpr bool packed = Form::packed;
  constexpr int ahead = packed ? 4 : 1;
  HEARTH_SHARED(double, shared, [tile_block * unit]);
  const TilePlace place(cut, blockIdx.x);
  const UnitOfLanes<T> of(place, table, channels, lanes);
  const Walk<packed> walk(cut, place, lanes);
  Eight<T> value[ahead], slope[ahead];
  unsigned bits[ahead] = {};
  LongSums<P> sum, product;
  walk.template each_run<ahead>(
      [&](int slot, auto at, auto byte) {
        value[slot] = load_eight<packed>(x + walk.first + at, of.count);
        slope[slot] = load_eight<packed>(dy + walk.first + at, of.count);
        if (form.gate == ReluGate::from_mask) bits[slot] = mask[walk.first_byte + byte];
      },
      [&](int slot, auto, auto) {
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          const P g = pass(form, of, k, value[slot].at[k], slope[slot].at[k], bits[slot]);
          sum.part[k] += g;
          product.part[k] += g * (upcast(value[slot].at[k]) - of.mean[k]);
        }
      },
      [&] {
        sum.carry();
        product.carry();
      });
  finish_gradient(sums, norm, cut, place, sum.total, product.total, shared);
}

// dx = scale (g - a - b (x - mean)), and g for the residual where wanted; either may be dy. 3 or 4 * sizeof(T) bytes an
// element.
template <class T, class Form>
__global__ void __launch_bounds__(tile_block, 2)
    batch_norm_grad_apply(Form form, const T* x, const T* dy, const acc_t<T>* table, const acc_t<T>* corrections,
                          std::int64_t channels, std::int64_t lanes, const std::uint8_t* mask, T* dx, T* d_residual,
                          ColumnTiles cut) {
  using P = acc_t<T>;
  constexpr bool packed = Form::packed, folded = UnitOfLanes<T>::folded;
  constexpr int ahead = packed ? 4 : 1;
  const TilePlace place(cut, cut.blocks() - 1 - blockIdx.x);
  const UnitOfLanes<T> of(place, table, channels, lanes);
  const Walk<packed> walk(cut, place, lanes);
  P a[unit], b[unit];
  load_table(corrections, 0, channels, of.first, of.count, a);
  load_table(corrections, 1, channels, of.first, of.count, b);
  // Folded: dx = scale g - b x - a.
  HEARTH_UNROLL
  for (int k = 0; folded && k < unit; ++k) {
    a[k] = of.scale[k] * (a[k] - b[k] * of.mean[k]);
    b[k] *= of.scale[k];
  }
  Eight<T> value[ahead], slope[ahead];
  unsigned bits[ahead] = {};
  walk.template each<ahead>(
      walk.row, walk.end,
      [&](int slot, auto at, auto byte) {
        value[slot] = load_eight<packed>(x + walk.first + at, of.count);
        slope[slot] = load_eight<packed>(dy + walk.first + at, of.count);
        if (form.gate == ReluGate::from_mask) bits[slot] = mask[walk.first_byte + byte];
      },
      [&](int slot, auto at, auto) {
        P g[unit], result[unit];
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          const P value_k = upcast(value[slot].at[k]);
          g[k] = pass(form, of, k, value[slot].at[k], slope[slot].at[k], bits[slot]);
          result[k] = folded ? of.scale[k] * g[k] - (b[k] * value_k + a[k])
                             : of.scale[k] * (g[k] - a[k] - (value_k - of.mean[k]) * b[k]);
        }
        store_eight<packed>(dx + walk.first + at, of.count, result);
        if (form.residual) store_eight<packed>(d_residual + walk.first + at, of.count, g);
      });
}

ColumnTiles cut_for_sums(const FoldedRows& folded) {
  return cut_columns(folded.rows, folded.mask_bytes(), sum_blocks, sum_rows_each);
}

ColumnTiles cut_for_pass(const FoldedRows& folded) {
  return cut_columns(folded.rows, folded.mask_bytes(), pass_blocks, pass_rows_each);
}

// f.operator()<T>(packed). A launch with packs counts elements of a block's rows in 32 bits.
template <class F>
void visit_lanes(DType dtype, const FoldedRows& folded, const ColumnTiles& cut,
                 std::initializer_list<const void*> arrays, F&& f) {
  visit_dtype("batch_norm", dtype, Floats{}, [&]<class T>() {
    f.template operator()<T>(sizeof(T) < sizeof(double) && folded.lanes % unit == 0 &&
                             rows_fit<T>(folded.lanes, arrays) && cut.segment_rows * folded.lanes < 0x7fffffff);
  });
}

template <class T, class F>
void visit_form(bool packed, const Found& found, F&& f) {
  if constexpr (sizeof(T) < sizeof(double)) {
    if (packed && found.residual && found.relu)
      return found.mask ? f(Known<true, true, true>{}) : f(Known<true, true, false>{});
    if (packed && found.residual && !found.mask) return f(Known<true, false, false>{});
    if (packed && !found.residual && !found.mask)
      return found.relu ? f(Known<false, true, false>{}) : f(Known<false, false, false>{});
  }
  f(found);
}

template <class T, bool with_residual, class F>
void visit_gate(bool packed, const FoundGate& found, F&& f) {
  if constexpr (sizeof(T) < sizeof(double)) {
    const bool from_mask = found.gate == ReluGate::from_mask;
    if constexpr (with_residual) {
      if (packed && found.residual && from_mask) return f(KnownGate<ReluGate::from_mask, true>{});
    }
    if (packed && !found.residual) {
      if (from_mask) return f(KnownGate<ReluGate::from_mask, false>{});
      return found.gate == ReluGate::none ? f(KnownGate<ReluGate::none, false>{})
                                          : f(KnownGate<ReluGate::from_input, false>{});
    }
  }
  f(found);
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
    visit_lanes(x.dtype(), folded, cut, {x.bytes()}, [&]<class T>(bool packed) {
      launch(stream, "batch_norm_moments", {blocks_for(cut.blocks(), 1), tile_block, 0, bytes_of(x, partial)},
             packed ? batch_norm_moments<T, sizeof(T) < sizeof(double)> : batch_norm_moments<T, false>, x.data<T>(),
             folded.lanes, cut, partial.data<double>());
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
  const Found found{residual.defined(), relu, mask.defined()};
  visit_lanes(x.dtype(), folded, cut, {x.bytes(), y.bytes(), address_of(residual)}, [&]<class T>(bool packed) {
    visit_form<T>(packed, found, [&](auto form) {
      launch(stream, "batch_norm",
             {blocks_for(cut.blocks(), 1), tile_block, 0, bytes_of(x, residual, coefficients, y, mask)},
             batch_norm_apply<T, decltype(form)>, form, x.data<T>(), data_or_null<T>(residual),
             coefficients.data<acc_t<T>>(), folded.channels, folded.lanes, y.data<T>(),
             data_or_null<std::uint8_t>(mask), cut);
    });
  });
}

void batch_norm_grad_sums(cuda::Stream& stream, const BatchNormSaved& saved, const Tensor& dy, const Tensor& rstd,
                          const Tensor& d_gamma, const Tensor& d_beta, const Tensor& corrections) {
  const Tensor &x = saved.x, &coefficients = saved.coefficients;
  const FoldedRows folded(x);
  if (folded.channels == 0) return;
  const ColumnTiles cut = cut_for_sums(folded);
  Tensor memory;
  const RunSums sums = run_sums(stream, 2, folded.lanes, cut.segments, cut.tiles, memory);
  const BatchNormGradient norm{x, coefficients, rstd, d_gamma, d_beta, corrections};
  visit_lanes(x.dtype(), folded, cut, {x.bytes(), dy.bytes()}, [&]<class T>(bool packed) {
    visit_gate<T, false>(packed, FoundGate{saved.gate, false}, [&](auto form) {
      launch(stream, "batch_norm_grad_moments",
             {blocks_for(cut.blocks(), 1), tile_block, 0,
              bytes_of(x, dy, saved.mask) + sums.bytes() + bytes_of_gradient(norm)},
             batch_norm_grad_moments<T, decltype(form)>, form, x.data<T>(), dy.data<T>(), coefficients.data<acc_t<T>>(),
             folded.channels, folded.lanes, data_or_null<std::uint8_t>(saved.mask), cut, sums,
             gradient_sums<acc_t<T>>(norm, x.size() / folded.channels));
    });
  });
}

void batch_norm_grad(cuda::Stream& stream, const BatchNormSaved& saved, const Tensor& dy, const Tensor& corrections,
                     const Tensor& dx, const Tensor& d_residual) {
  const Tensor &x = saved.x, &coefficients = saved.coefficients;
  if (x.size() == 0) return;
  const FoldedRows folded(x);
  const ColumnTiles cut = cut_for_pass(folded);
  const auto arrays = {address_of(x), address_of(dy), address_of(dx), address_of(d_residual)};
  const FoundGate found{saved.gate, d_residual.defined()};
  visit_lanes(x.dtype(), folded, cut, arrays, [&]<class T>(bool packed) {
    visit_gate<T, true>(packed, found, [&](auto form) {
      using P = acc_t<T>;
      launch(stream, "batch_norm_grad",
             {blocks_for(cut.blocks(), 1), tile_block, 0,
              bytes_of(x, dy, coefficients, saved.mask, corrections, dx, d_residual)},
             batch_norm_grad_apply<T, decltype(form)>, form, x.data<T>(), dy.data<T>(), coefficients.data<P>(),
             data_or_null<P>(corrections), folded.channels, folded.lanes, data_or_null<std::uint8_t>(saved.mask),
             dx.data<T>(), data_or_null<T>(d_residual), cut);
    });
  });
}

}  // namespace hearth::kernels
