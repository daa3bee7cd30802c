// SPDX-License-Identifier: Apache-2.0
// Memory traffic decides the speed: training reads x twice and writes y once, the gradient reads x and dy twice and
// writes dx over dy. Rows are cut into chunks that depend on the shape only, and chunks are visited backwards in every
// second pass, because the end of a tensor larger than the cache is what the first pass left there.
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
#include "core/cpu/parallel.h"
#include "ops/norm/batch_norm_cpu.h"

#ifndef HEARTH_ISA_NAMESPACE
namespace hearth::kernels {
namespace {

// What a pass is compiled for.
template <bool with_residual, bool with_relu>
struct Forward {
  static constexpr bool residual = with_residual, relu = with_relu;
};
template <ReluGate relu_gate, bool with_residual = false>
struct Backward {
  static constexpr ReluGate gate = relu_gate;
  static constexpr bool residual = with_residual;
};

// Rows whose flags are unpacked at a time: bytes that were stored one by one can be read as vectors only after a while.
inline std::int64_t rows_of_flags(std::int64_t lanes) { return std::max<std::int64_t>(1, 4096 / lanes); }

}  // namespace
}  // namespace hearth::kernels
#endif

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/norm/batch_norm_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

// Eight flags of 0 or 1 to eight bits: the product moves flag j to bit 56 + j.
inline void pack_flags(const std::uint8_t* flags, std::int64_t bytes, std::uint8_t* bits) {
  for (std::int64_t i = 0; i < bytes; ++i) {
    std::uint64_t eight;
    std::memcpy(&eight, flags + 8 * i, 8);
    bits[i] = static_cast<std::uint8_t>((eight * 0x0102040810204080ull) >> 56);
  }
}

// The inverse, up to scale: a set bit becomes a flag that is not 0.
inline void unpack_flags(const std::uint8_t* bits, std::int64_t bytes, std::uint8_t* flags) {
  for (std::int64_t i = 0; i < bytes; ++i) {
    const std::uint64_t eight = (bits[i] * 0x0101010101010101ull) & 0x8040201008040201ull;
    std::memcpy(flags + 8 * i, &eight, 8);
  }
}

// `flags` is working memory for one row's flags; unused without a mask.
template <class Variant, class T, class P>
void apply_rows(const T* x, const T* residual, const P* coefficients, T* y, std::uint8_t* mask, std::uint8_t* flags,
                std::int64_t rows, std::int64_t lanes) {
  const P *mean = coefficients, *scale = coefficients + lanes, *shift = coefficients + 2 * lanes;
  const std::int64_t mask_bytes = (lanes + 7) / 8;
  for (std::int64_t row = 0; row < rows; ++row, x += lanes, y += lanes) {
#pragma omp simd
    for (std::int64_t c = 0; c < lanes; ++c) {
      P value = (cpu::load(x + c) - mean[c]) * scale[c] + shift[c];
      if constexpr (Variant::residual) value += cpu::load(residual + c);
      // NaN stays.
      if constexpr (Variant::relu) value = value < P(0) ? P(0) : value;
      cpu::store(y + c, value);
    }
    if constexpr (Variant::residual) residual += lanes;
    if constexpr (Variant::relu) {
      if (mask == nullptr) continue;
        // From the row just written, which is still in the nearest cache.
#pragma omp simd
      for (std::int64_t c = 0; c < lanes; ++c) flags[c] = cpu::load(y + c) > P(0) ? 1 : 0;
      pack_flags(flags, mask_bytes, mask);
      mask += mask_bytes;
    }
  }
}

template <ReluGate gate, class P>
[[gnu::always_inline]] inline P gated(P dy, P centred, P scale, P shift, const std::uint8_t* flag) {
  if constexpr (gate == ReluGate::from_input)
    return centred * scale + shift > P(0) ? dy : P(0);
  else if constexpr (gate == ReluGate::from_mask)
    return *flag != 0 ? dy : P(0);
  else
    return dy;
}

template <class Variant, class T, class P>
void grad_rows(const T* x, const T* dy, const P* coefficients, const P* corrections, const std::uint8_t* mask,
               std::uint8_t* flags, T* dx, T* d_residual, std::int64_t rows, std::int64_t lanes) {
  const P *mean = coefficients, *scale = coefficients + lanes, *shift = coefficients + 2 * lanes;
  const P *a = corrections, *b = corrections + lanes;
  const std::int64_t mask_bytes = (lanes + 7) / 8, group = rows_of_flags(lanes);
  for (std::int64_t row = 0; row < rows; ++row, x += lanes, dy += lanes, dx += lanes) {
    const std::uint8_t* const open = flags + row % group * mask_bytes * 8;
    if constexpr (Variant::gate == ReluGate::from_mask)
      if (row % group == 0) unpack_flags(mask + row * mask_bytes, mask_bytes * std::min(group, rows - row), flags);
#pragma omp simd
    for (std::int64_t c = 0; c < lanes; ++c) {
      const P d = cpu::load(x + c) - mean[c];
      const P g = gated<Variant::gate>(cpu::load(dy + c), d, scale[c], shift[c], open + c);
      cpu::store(dx + c, scale[c] * (g - a[c] - d * b[c]));
      if constexpr (Variant::residual) cpu::store(d_residual + c, g);
    }
    if constexpr (Variant::residual) d_residual += lanes;
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

// f(begin, count) over the rows, the last ones first.
template <class F>
void backwards(const BatchNormPieces& layout, const F& f) {
  const std::int64_t count = layout.count_of(layout.rows, layout.grain);
  cpu::parallel_chunks(count, [&](std::int64_t i) {
    const std::int64_t begin = (count - 1 - i) * layout.grain;
    f(begin, std::min(layout.grain, layout.rows - begin));
  });
}

template <class P>
void blend_into(P* running, double momentum, std::int64_t c, double batch) {
  running[c] = static_cast<P>((1.0 - momentum) * static_cast<double>(running[c]) + momentum * batch);
}

}  // namespace

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
    const P* const table = layout.folded<P>(scratch, coefficients);
    const T* const values = x.data<T>();
    const T* const extra = residual.defined() ? residual.data<T>() : nullptr;
    T* const result = y.data<T>();
    std::uint8_t* const bits = mask.defined() ? mask.data<std::uint8_t>() : nullptr;
    backwards(layout, [&](std::int64_t begin, std::int64_t rows) {
      const std::int64_t at = begin * lanes;
      cpu::Scratch local;
      auto* const flags = local.take<std::uint8_t>(mask_bytes * 8);
      std::fill_n(flags + mask_bytes * 8 - 8, 8, std::uint8_t{0});
      std::uint8_t* const row_bits = bits == nullptr ? nullptr : bits + begin * mask_bytes;
      const auto run = [&]<class Variant>(Variant) {
        HEARTH_ISA_CALL(apply_rows<Variant>, values + at, Variant::residual ? extra + at : nullptr, table, result + at,
                        row_bits, flags, rows, lanes);
      };
      if (extra != nullptr && relu)
        run(Forward<true, true>{});
      else if (extra != nullptr)
        run(Forward<true, false>{});
      else if (relu)
        run(Forward<false, true>{});
      else
        run(Forward<false, false>{});
    });
  });
}

void batch_norm_grad_sums(cpu::Stream&, const BatchNormSaved& saved, const Tensor& dy, const Tensor& rstd,
                          const Tensor& d_gamma, const Tensor& d_beta, const Tensor& corrections) {
  const Tensor &x = saved.x, &coefficients = saved.coefficients;
  const std::int64_t channels = x.dim(-1);
  cpu::Scratch scratch;
  double *sums = scratch.take<double>(channels), *products = scratch.take<double>(channels);
  channel_gradient_sums(saved, dy, sums, products);
  const double* const inverse = rstd.data<double>();
  visit_dtype("batch_norm", coefficients.dtype(), FullFloats{}, [&]<class P>() {
    for (std::int64_t c = 0; c < channels; ++c) {
      const double rest = static_cast<double>(coefficients.data<P>()[3 * channels + c]);
      const double sum = sums[c], product = products[c] - rest * sum;
      if (d_gamma.defined()) d_gamma.data<P>()[c] = static_cast<P>(product * inverse[c]);
      if (d_beta.defined()) d_beta.data<P>()[c] = static_cast<P>(sum);
      if (!corrections.defined()) continue;
      const double values = static_cast<double>(x.size() / channels);
      const double b = product * inverse[c] * inverse[c] / values;
      corrections.data<P>()[c] = static_cast<P>(sum / values - b * rest);
      corrections.data<P>()[channels + c] = static_cast<P>(b);
    }
  });
}

void batch_norm_grad(cpu::Stream&, const BatchNormSaved& saved, const Tensor& dy, const Tensor& corrections,
                     const Tensor& dx, const Tensor& d_residual) {
  const Tensor &x = saved.x, &mask = saved.mask;
  const BatchNormPieces layout(x);
  const std::int64_t lanes = layout.lanes, mask_bytes = layout.mask_bytes();
  visit_dtype("batch_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    cpu::Scratch scratch;
    const P* const table = layout.folded<P>(scratch, saved.coefficients);
    const P* correction = nullptr;
    if (corrections.defined()) {
      correction = layout.folded<P>(scratch, corrections);
    } else {
      P* const zeros = scratch.take<P>(2 * lanes);
      std::fill_n(zeros, 2 * lanes, P(0));
      correction = zeros;
    }
    const T *values = x.data<T>(), *gradient = dy.data<T>();
    T* const out = dx.data<T>();
    T* const extra = d_residual.defined() ? d_residual.data<T>() : nullptr;
    const std::uint8_t* const bits = mask.defined() ? mask.data<std::uint8_t>() : nullptr;
    backwards(layout, [&](std::int64_t begin, std::int64_t rows) {
      const std::int64_t at = begin * lanes;
      cpu::Scratch local;
      auto* const flags = local.take<std::uint8_t>(rows_of_flags(lanes) * mask_bytes * 8);
      const std::uint8_t* const row_bits = bits == nullptr ? nullptr : bits + begin * mask_bytes;
      with_gate(saved.gate, [&]<ReluGate g>() {
        const auto run = [&]<class Variant>(Variant) {
          HEARTH_ISA_CALL(grad_rows<Variant>, values + at, gradient + at, table, correction, row_bits, flags, out + at,
                          Variant::residual ? extra + at : nullptr, rows, lanes);
        };
        if (extra != nullptr) {
          using Both = Backward<g, true>;
          run(Both{});
        } else {
          run(Backward<g>{});
        }
      });
    });
  });
}

}  // namespace hearth::kernels
#endif
