// SPDX-License-Identifier: Apache-2.0
// A thread owns eight neighbouring lanes (a byte of the mask) and walks down the rows. A block leaves the sums of its
// run of rows in f64; of the statistics a warp a channel then adds them in order and derives what the next pass needs,
// of the gradient the last blocks do. Training reads x twice and writes y once, the gradient reads x and dy twice and
// writes dx; the second pass goes through the blocks backwards, because the end of a large tensor is what the first one
// left in the cache.
// Reference: batch_norm_cpu.cpp.
#include "ops/norm/channel_moments.h"
#include "ops/norm/cuda/batch_norm.cuh"
#include "ops/norm/cuda/batch_norm_rows.cuh"
#include "ops/norm/folded_rows.h"

namespace hearth::kernels {
namespace {

using namespace cuda;
using namespace batch_norm_rows;

constexpr std::int64_t pass_blocks = 1 << 20;
constexpr std::int64_t pass_rows_each = 16;

// The moments' sums, and what they are taken from.
template <class P>
constexpr std::size_t moments_shared = LongSums<P, 2>::shared_bytes + sizeof(P) * warp_size* unit;

// First stage of the statistics: mean and sum of squared deviations of a run of rows, at partial[which][lane][segment].
// Deviations are taken from the thread's own first row, then all from that of the run.
template <class T, bool packed>
__global__ void __launch_bounds__(tile_block, 2)
    batch_norm_moments(const T* x, std::int64_t lanes, ColumnTiles cut, double* partial) {
  using P = acc_t<T>;
  constexpr int ahead = packed ? 8 : 1;
  const TilePlace place(cut, blockIdx.x);
  const Walk<packed> walk(cut, place, lanes);
  const int count = lanes_in_unit(lanes, place.unit), column = static_cast<int>(threadIdx.x) & (cut.across - 1);
  x += walk.first;
  Held<T> origin{}, value[ahead];
  const auto load = [&](int slot, auto at, auto) { value[slot].template load<packed>(x + at, count); };
  walk.template start<ahead>(load);
  if (walk.row < walk.end) origin.template load<packed>(x + walk.row * walk.lanes, count);
  P* const origins = reinterpret_cast<P*>(dynamic_shared<double>() + LongSums<P, 2>::count * tile_block);
  if (static_cast<int>(threadIdx.x) < cut.across) {
    HEARTH_UNROLL
    for (int k = 0; k < unit; ++k) origins[column * unit + k] = origin[k];
  }
  LongSums<P, 2> sums;
  walk.template each_run<ahead>(
      load,
      [&](int slot) {
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          const P d = value[slot][k] - origin[k];
          sums.part[0][k] += d;
          sums.part[1][k] += d * d;
        }
      },
      [&] { sums.carry(); });
  __syncthreads();
  const double n = walk.count();
  HEARTH_UNROLL
  for (int k = 0; k < unit; ++k) {
    volatile double &sum = sums.total[k * tile_block], &squares = sums.total[(unit + k) * tile_block];
    const double move = static_cast<double>(origin[k]) - static_cast<double>(origins[column * unit + k]),
                 moved = n * move;
    squares = squares + move * (2 * sum + moved);
    sum = sum + moved;
  }
  const std::int64_t tile_lane = (place.unit - column) * unit, rest = cut.rows - place.segment * cut.segment_rows;
  const double rows = static_cast<double>(rest < cut.segment_rows ? rest : cut.segment_rows);
  each_lane_sum<2>(cut.across, [&](int in_tile, const double(&sum)[2]) {
    const std::int64_t lane = tile_lane + in_tile;
    if (lane >= lanes) return;
    const double move = sum[0] / rows;
    partial[lane * cut.segments + place.segment] = static_cast<double>(origins[in_tile]) + move;
    partial[(lanes + lane) * cut.segments + place.segment] = sum[1] - move * sum[0];
  });
}

// Second stage: a warp a channel, or a block where partial values are many. Deviations are taken from the first run's
// mean, so that one pass does.
template <class P, class Group>
__global__ void batch_norm_finish(Group group, const double* partial, std::int64_t channels, std::int64_t lanes,
                                  ColumnTiles cut, double values, Coefficients<P> to) {
  constexpr int ahead = 4;
  const std::int64_t c = group.first_row();
  if (c >= channels) return;
  // By the thread that moves the running ones, and no other.
  const ChannelTerms<P> terms = group.index() == 0 ? ChannelTerms<P>(to, c) : ChannelTerms<P>();
  const int segments = static_cast<int>(cut.segments), threads = group.threads();
  const double first_mean = partial[c * segments], origin = first_mean - first_mean == 0 ? first_mean : 0.0;
  const double last_rows = static_cast<double>(cut.rows - (segments - 1) * cut.segment_rows);
  double sum = 0, squares = 0;
  for (std::int64_t lane = c; lane < lanes; lane += channels) {
    const double *const means = partial + lane * segments, *const parts = means + lanes * segments;
    for (int first = group.index(); first < segments; first += ahead * threads) {
      double mean[ahead], part[ahead];
      HEARTH_UNROLL
      for (int k = 0; k < ahead; ++k) {
        const int segment = first + k * threads;
        mean[k] = segment < segments ? means[segment] : origin;
        part[k] = segment < segments ? parts[segment] : 0.0;
      }
      HEARTH_UNROLL
      for (int k = 0; k < ahead; ++k) {
        const bool last = first + k * threads == segments - 1;
        const double move = mean[k] - origin, moved = (last ? last_rows : static_cast<double>(cut.segment_rows)) * move;
        sum += moved;
        squares += part[k] + moved * move;
      }
    }
  }
  sum = group.template reduce<Sum>(sum, 0.0);
  squares = group.template reduce<Sum>(squares, 0.0);
  if (group.index() != 0) return;
  const double move = sum / values;
  squares -= move * sum;
  const double variance = squares > 0 || squares != squares ? squares / values : 0.0;
  store_statistics(to, terms, channels, c, origin + move, variance, values);
}

// Coefficients from the running statistics: a thread a channel.
template <class P>
__global__ void batch_norm_evaluate(std::int64_t channels, Coefficients<P> to) {
  const std::int64_t c = global_thread();
  if (c >= channels) return;
  const ChannelTerms<P> terms(to, c);
  store_coefficients(to, terms, channels, c, terms.running_mean, terms.running_var);
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
                            std::int64_t lanes, const std::uint8_t* mask, ColumnTiles cut, RunSums runs,
                            GradientSums<acc_t<T>> norm) {
  using P = acc_t<T>;
  constexpr bool packed = Form::packed;
  constexpr int ahead = packed ? 4 : 1;
  const TilePlace place(cut, blockIdx.x);
  const Walk<packed> walk(cut, place, lanes);
  const int count = lanes_in_unit(lanes, place.unit);
  Held<T> value[ahead], slope[ahead];
  unsigned bits[ahead] = {};
  const auto load = [&](int slot, auto at, auto byte) {
    value[slot].template load<packed>(x + walk.first + at, count);
    slope[slot].template load<packed>(dy + walk.first + at, count);
    if (form.gate == ReluGate::from_mask) bits[slot] = mask[walk.first_byte + byte];
  };
  walk.template start<ahead>(load);
  const UnitOfLanes<T> of(place, table, channels, lanes);
  LongSums<P, 2> sums;
  walk.template each_run<ahead>(
      load,
      [&](int slot) {
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          const P value_k = value[slot][k], g = pass(form, of, k, value_k, slope[slot][k], bits[slot]);
          sums.part[0][k] += g;
          sums.part[1][k] += g * (value_k - of.mean[k]);
        }
      },
      [&] { sums.carry(); });
  finish_gradient(runs, norm, cut);
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
          g[k] = pass(form, of, k, value_k, upcast(slope[slot].at[k]), bits[slot]);
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
constexpr std::int64_t many_partials = 128;  // of a channel: a block's work

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
      launch(stream, "batch_norm_moments",
             {blocks_for(cut.blocks(), 1), tile_block, moments_shared<acc_t<T>>, bytes_of(x, partial)},
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
             {blocks_for(cut.blocks(), 1), tile_block, LongSums<acc_t<T>, 2>::shared_bytes,
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
