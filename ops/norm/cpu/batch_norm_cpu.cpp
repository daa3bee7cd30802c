// SPDX-License-Identifier: Apache-2.0
// Memory traffic decides the speed: training reads x twice and writes y once, the gradient reads x and dy twice and
// writes dx over dy. Rows are cut into chunks that depend on the shape only. Sums visit them backwards, because the end
// of a tensor larger than the cache is what the op that made it left there; what follows the sums goes forwards.
// Reference in training, for each channel, of n values:
//   mean = sum(x) / n;  rstd = 1 / sqrt(sum((x - mean)^2) / n + eps)
//   y = activation((x - mean) * rstd * gamma + beta + residual)
//   g = y > 0 ? dy : 0 (dy without activation);  d_residual = g
//   d_beta = sum(g);  d_gamma = sum(g * (x - mean)) * rstd
//   dx = gamma * rstd * (g - d_beta / n - (x - mean) * rstd * d_gamma / n)
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/cpu/element.h"
#include "core/cpu/lanes.h"
#include "core/cpu/parallel.h"
#include "ops/norm/cpu/batch_norm_cpu.h"

#ifndef HEARTH_ISA_NAMESPACE
namespace hearth::kernels {
namespace {

// What a pass is compiled for.
template <bool with_residual, bool with_relu, bool streams>
struct Forward {
  static constexpr bool residual = with_residual, relu = with_relu, streamed = streams;
};
template <ReluGate relu_gate, bool with_residual, bool streams>
struct Backward {
  static constexpr ReluGate gate = relu_gate;
  static constexpr bool residual = with_residual, streamed = streams;
};

}  // namespace
}  // namespace hearth::kernels
#endif

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/norm/cpu/batch_norm_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

#include "core/cpu/lanes.inc"
#include "ops/norm/cpu/channel_pairs.inc"

// Of tables in the order of the pairs of T.
template <class Variant, class T, class P>
void apply_rows(const T* x, const T* residual, const P* coefficients, T* y, std::uint8_t* mask, std::int64_t rows,
                std::int64_t lanes) {
  constexpr std::int64_t run = 2 * Vectors<P>::lanes, ahead = bytes_ahead / static_cast<std::int64_t>(sizeof(T));
  const P *mean = coefficients, *scale = coefficients + lanes, *shift = coefficients + 2 * lanes;
  const std::int64_t mask_bytes = (lanes + 7) / 8;
  for (std::int64_t row = 0; row < rows; ++row, x += lanes, y += lanes) {
    std::int64_t c = 0;
    for (; c < paired<T>(lanes); c += run) {
      ask_for<P>(x + c + ahead);
      if constexpr (Variant::residual) ask_for<P>(residual + c + ahead);
      const Pair<P> centre = read(mean + c), factor = read(scale + c), term = read(shift + c);
      Pair<P> value = read(x + c), extra{};
      if constexpr (Variant::residual) extra = read(residual + c);
      for (int half = 0; half < 2; ++half) {
        auto& v = value.part[half];
        v = (v - centre.part[half]) * factor.part[half] + term.part[half];
        if constexpr (Variant::residual) v += extra.part[half];
        // NaN stays.
        if constexpr (Variant::relu) v = v < 0 ? typename Vectors<P>::Value{} : v;
      }
      const std::uint32_t open = write_as<Variant::streamed>(value, y + c);
      if (Variant::relu && mask != nullptr) write_mask(open, c, run, mask);
    }
    for (; c < lanes; ++c) {
      P value = (cpu::load(x + c) - mean[c]) * scale[c] + shift[c];
      if constexpr (Variant::residual) value += cpu::load(residual + c);
      if constexpr (Variant::relu) value = value < P(0) ? P(0) : value;
      cpu::store(y + c, value);
      if (Variant::relu && mask != nullptr) write_mask(cpu::load(y + c) > P(0) ? 1 : 0, c, 1, mask);
    }
    if constexpr (Variant::residual) residual += lanes;
    if (Variant::relu && mask != nullptr) mask += mask_bytes;
  }
  finish_writes<Variant::streamed>();
}

template <class Variant, class T, class P>
void grad_rows(const T* x, const T* dy, const P* coefficients, const P* corrections, const std::uint8_t* mask, T* dx,
               T* d_residual, std::int64_t rows, std::int64_t lanes) {
  constexpr std::int64_t run = 2 * Vectors<P>::lanes, ahead = bytes_ahead / static_cast<std::int64_t>(sizeof(T));
  constexpr ReluGate gate = Variant::gate;
  const P *means = coefficients, *scales = coefficients + lanes, *shifts = coefficients + 2 * lanes;
  const std::int64_t mask_bytes = (lanes + 7) / 8;
  for (std::int64_t row = 0; row < rows; ++row, x += lanes, dy += lanes, dx += lanes) {
    std::int64_t c = 0;
    for (; c < paired<T>(lanes); c += run) {
      ask_for<P>(x + c + ahead);
      ask_for<P>(dy + c + ahead);
      const Pair<P> mean = read(means + c), scale = read(scales + c), shift = read(shifts + c);
      const Pair<P> a = read(corrections + c), b = read(corrections + lanes + c), value = read(x + c);
      Pair<P> g = read(dy + c), result;
      if constexpr (gate == ReluGate::from_mask) g = where_set<T>(mask, c, g);
      for (int half = 0; half < 2; ++half) {
        const auto d = value.part[half] - mean.part[half];
        if constexpr (gate == ReluGate::from_input)
          g.part[half] = d * scale.part[half] + shift.part[half] > 0 ? g.part[half] : typename Vectors<P>::Value{};
        result.part[half] = scale.part[half] * (g.part[half] - a.part[half] - d * b.part[half]);
      }
      write_as<Variant::streamed>(result, dx + c);
      if constexpr (Variant::residual) write_as<Variant::streamed>(g, d_residual + c);
    }
    for (; c < lanes; ++c) {
      const P d = cpu::load(x + c) - means[c];
      bool open = true;
      if constexpr (gate == ReluGate::from_input) open = d * scales[c] + shifts[c] > P(0);
      if constexpr (gate == ReluGate::from_mask) open = (mask[c / 8] >> (c % 8) & 1) != 0;
      const P g = open ? cpu::load(dy + c) : P(0);
      cpu::store(dx + c, scales[c] * (g - corrections[c] - d * corrections[lanes + c]));
      if constexpr (Variant::residual) cpu::store(d_residual + c, g);
    }
    if constexpr (Variant::residual) d_residual += lanes;
    if constexpr (gate == ReluGate::from_mask) mask += mask_bytes;
  }
  finish_writes<Variant::streamed>();
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

// f(begin, count) over the rows.
template <class F>
void over_rows(const BatchNormPieces& layout, const F& f) {
  cpu::parallel_chunks(layout.count_of(layout.rows, layout.grain), [&](std::int64_t i) {
    const std::int64_t begin = i * layout.grain;
    f(begin, std::min(layout.grain, layout.rows - begin));
  });
}

// Results larger than this leave the caches before they are read again.
constexpr std::size_t streamed_bytes = std::size_t{16} << 20;

// f.operator()<value>(), for a value known at run time.
template <class F>
void with_flag(bool value, const F& f) {
  value ? f.template operator()<true>() : f.template operator()<false>();
}

// The same for streaming, which f64 and f16 do without: a sixth of the code.
template <class T, class F>
void with_streaming(bool value, const F& f) {
  if constexpr (cpu::has_v4<T>)
    with_flag(value, f);
  else
    f.template operator()<false>();
}

template <class P>
void blend_into(P* running, double momentum, std::int64_t c, double batch) {
  running[c] = static_cast<P>((1.0 - momentum) * static_cast<double>(running[c]) + momentum * batch);
}

}  // namespace

bool is_streamed(const Tensor& result, std::int64_t row_bytes) {
  constexpr std::size_t line = 64;
  return result.byte_size() >= streamed_bytes && static_cast<std::size_t>(row_bytes) % line == 0 &&
         reinterpret_cast<std::uintptr_t>(result.bytes()) % line == 0;
}

void write_coefficients(double* mean, double* variance, double values, const ChannelNorm& o) {
  const std::int64_t channels = o.rstd.size();
  visit_dtype("batch_norm", o.gamma.dtype(), FullFloats{}, [&]<class P>() {
    P* const table = o.coefficients.data<P>();
    for (std::int64_t c = 0; c < channels; ++c) {
      if (!o.options.training) {
        mean[c] = static_cast<double>(o.running_mean.data<P>()[c]);
        variance[c] = static_cast<double>(o.running_var.data<P>()[c]);
      } else if (o.running_mean.defined()) {
        blend_into(o.running_mean.data<P>(), o.options.momentum, c, mean[c]);
        blend_into(o.running_var.data<P>(), o.options.momentum, c, variance[c] * (values / (values - 1.0)));
      }
      const double inverse = 1.0 / std::sqrt(variance[c] + o.options.eps);
      o.rstd.data<double>()[c] = inverse;
      const double scale = static_cast<double>(o.gamma.data<P>()[c]) * inverse, rest = rounding_of<P>(mean[c]);
      table[c] = static_cast<P>(mean[c]);
      table[channels + c] = static_cast<P>(scale);
      table[2 * channels + c] = static_cast<P>(static_cast<double>(o.beta.data<P>()[c]) - rest * scale);
      table[3 * channels + c] = static_cast<P>(rest);
    }
  });
}

void batch_norm_coefficients(cpu::Stream&, const Tensor& x, const ChannelNorm& o) {
  const std::int64_t channels = x.dim(-1);
  if (channels == 0) return;
  cpu::Scratch scratch;
  double *mean = scratch.take<double>(channels), *variance = scratch.take<double>(channels);
  if (o.options.training) channel_statistics(x, mean, variance);
  write_coefficients(mean, variance, static_cast<double>(x.size() / channels), o);
}

void batch_norm(cpu::Stream&, const Tensor& x, const Tensor& coefficients, const Tensor& residual, bool relu,
                const Tensor& y, const Tensor& mask) {
  const BatchNormPieces layout(x);
  const std::int64_t lanes = layout.lanes, mask_bytes = layout.mask_bytes();
  visit_dtype("batch_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    cpu::Scratch scratch;
    P* const table = scratch.take<P>(3 * lanes);
    HEARTH_ISA_CALL_FOR(T, arrange<T>, layout.folded<P>(scratch, coefficients), 3, lanes, table);
    const T* const values = x.data<T>();
    const T* const extra = residual.defined() ? residual.data<T>() : nullptr;
    T* const result = y.data<T>();
    std::uint8_t* const bits = mask.defined() ? mask.data<std::uint8_t>() : nullptr;
    const auto run = [&]<class Variant>(Variant) {
      over_rows(layout, [&](std::int64_t begin, std::int64_t rows) {
        const std::int64_t at = begin * lanes;
        HEARTH_ISA_CALL_FOR(T, apply_rows<Variant>, values + at, Variant::residual ? extra + at : nullptr, table,
                            result + at, bits == nullptr ? nullptr : bits + begin * mask_bytes, rows, lanes);
      });
    };
    with_flag(extra != nullptr, [&]<bool added>() {
      with_flag(relu, [&]<bool rectified>() {
        with_streaming<T>(is_streamed(y, layout.row_bytes),
                          [&]<bool streamed>() { run(Forward<added, rectified, streamed>{}); });
      });
    });
  });
}

void write_gradient_sums(const double* sums, const double* products, double values, const Tensor& coefficients,
                         const Tensor& rstd, const Tensor& d_gamma, const Tensor& d_beta, const Tensor& corrections) {
  const std::int64_t channels = rstd.size();
  const double* const inverse = rstd.data<double>();
  visit_dtype("batch_norm", coefficients.dtype(), FullFloats{}, [&]<class P>() {
    for (std::int64_t c = 0; c < channels; ++c) {
      const double rest = static_cast<double>(coefficients.data<P>()[3 * channels + c]);
      const double sum = sums[c], product = products[c] - rest * sum;
      if (d_gamma.defined()) d_gamma.data<P>()[c] = static_cast<P>(product * inverse[c]);
      if (d_beta.defined()) d_beta.data<P>()[c] = static_cast<P>(sum);
      if (!corrections.defined()) continue;
      const double b = product * inverse[c] * inverse[c] / values;
      corrections.data<P>()[c] = static_cast<P>(sum / values - b * rest);
      corrections.data<P>()[channels + c] = static_cast<P>(b);
    }
  });
}

void batch_norm_grad_sums(cpu::Stream&, const BatchNormSaved& saved, const Tensor& dy, const Tensor& rstd,
                          const Tensor& d_gamma, const Tensor& d_beta, const Tensor& corrections) {
  const std::int64_t channels = saved.x.dim(-1);
  if (channels == 0) return;
  cpu::Scratch scratch;
  double *sums = scratch.take<double>(channels), *products = scratch.take<double>(channels);
  channel_gradient_sums(saved, dy, sums, products);
  write_gradient_sums(sums, products, static_cast<double>(saved.x.size() / channels), saved.coefficients, rstd, d_gamma,
                      d_beta, corrections);
}

void batch_norm_grad(cpu::Stream&, const BatchNormSaved& saved, const Tensor& dy, const Tensor& corrections,
                     const Tensor& dx, const Tensor& d_residual) {
  const Tensor &x = saved.x, &mask = saved.mask;
  const BatchNormPieces layout(x);
  const std::int64_t lanes = layout.lanes, mask_bytes = layout.mask_bytes();
  visit_dtype("batch_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    cpu::Scratch scratch;
    P *const table = scratch.take<P>(3 * lanes), *const correction = scratch.take<P>(2 * lanes);
    HEARTH_ISA_CALL_FOR(T, arrange<T>, layout.folded<P>(scratch, saved.coefficients), 3, lanes, table);
    if (corrections.defined())
      HEARTH_ISA_CALL_FOR(T, arrange<T>, layout.folded<P>(scratch, corrections), 2, lanes, correction);
    else
      std::fill_n(correction, 2 * lanes, P(0));
    const T *values = x.data<T>(), *gradient = dy.data<T>();
    T* const out = dx.data<T>();
    T* const extra = d_residual.defined() ? d_residual.data<T>() : nullptr;
    const std::uint8_t* const bits = mask.defined() ? mask.data<std::uint8_t>() : nullptr;
    // The lines of a result over x or dy are in the caches.
    const auto streams = [&](const Tensor& result) {
      return result.bytes() != x.bytes() && result.bytes() != dy.bytes() && is_streamed(result, layout.row_bytes);
    };
    const auto run = [&]<class Variant>(Variant) {
      over_rows(layout, [&](std::int64_t begin, std::int64_t rows) {
        const std::int64_t at = begin * lanes;
        HEARTH_ISA_CALL_FOR(T, grad_rows<Variant>, values + at, gradient + at, table, correction,
                            bits == nullptr ? nullptr : bits + begin * mask_bytes, out + at,
                            Variant::residual ? extra + at : nullptr, rows, lanes);
      });
    };
    with_gate(saved.gate, [&]<ReluGate gate>() {
      with_flag(extra != nullptr, [&]<bool added>() {
        with_streaming<T>(streams(dx) && (!added || streams(d_residual)),
                          [&]<bool streamed>() { run(Backward<gate, added, streamed>{}); });
      });
    });
  });
}

template <class T>
const acc_t<T>* NormRows::table(const Tensor& values, cpu::Scratch& scratch) {
  using P = acc_t<T>;
  const std::int64_t lanes = values.dim(1);
  P* const result = scratch.take<P>(values.size());
  HEARTH_ISA_CALL_FOR(T, arrange<T>, values.data<P>(), values.dim(0), lanes, result);
  return result;
}

template <class T>
void NormRows::apply(const T* x, const acc_t<T>* coefficients, T* y) const {
  using Variant = Forward<false, true, false>;
  HEARTH_ISA_CALL_FOR(T, apply_rows<Variant>, x, static_cast<const T*>(nullptr), coefficients, y,
                      static_cast<std::uint8_t*>(nullptr), rows, channels);
}

template <class T>
void NormRows::gradient(const T* x, const T* dy, const acc_t<T>* coefficients, const acc_t<T>* corrections,
                        bool streamed, T* dx) const {
  with_streaming<T>(streamed, [&]<bool past>() {
    using Variant = Backward<ReluGate::from_input, false, past>;
    HEARTH_ISA_CALL_FOR(T, grad_rows<Variant>, x, dy, coefficients, corrections,
                        static_cast<const std::uint8_t*>(nullptr), dx, static_cast<T*>(nullptr), rows, channels);
  });
}

#define HEARTH_INSTANTIATE(T)                                                \
  template const acc_t<T>* NormRows::table<T>(const Tensor&, cpu::Scratch&); \
  template void NormRows::apply(const T*, const acc_t<T>*, T*) const;        \
  template void NormRows::gradient(const T*, const T*, const acc_t<T>*, const acc_t<T>*, bool, T*) const;
HEARTH_INSTANTIATE(float)
HEARTH_INSTANTIATE(double)
HEARTH_INSTANTIATE(f16)
HEARTH_INSTANTIATE(bf16)
#undef HEARTH_INSTANTIATE

}  // namespace hearth::kernels
#endif
