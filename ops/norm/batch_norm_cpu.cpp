// SPDX-License-Identifier: Apache-2.0
// Memory traffic decides the speed: training reads x twice and writes y once, the gradient reads x and dy twice and
// writes dx over dy. Rows are cut into chunks that depend on the shape only, and chunks are visited backwards in every
// second pass, because the end of a tensor larger than the cache is what the first pass left there.
#include <algorithm>
#include <cstring>

#include "hearth/core/cpu/element.h"
#include "hearth/core/cpu/parallel.h"
#include "hearth/core/cpu/scratch.h"
#include "hearth/ops/norm/batch_norm.h"

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

}  // namespace
}  // namespace hearth::kernels
#endif

#define HEARTH_ISA_SOURCE "hearth/ops/norm/batch_norm_cpu.cpp"
#include "hearth/core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

// Adds the sum of `rows` rows to `sum`.
template <class T, class P>
void add_rows(const T* x, std::int64_t rows, std::int64_t lanes, P* sum) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4, x += 4 * lanes) {
#pragma omp simd
    for (std::int64_t c = 0; c < lanes; ++c)
      sum[c] +=
          (cpu::load(x + c) + cpu::load(x + lanes + c)) + (cpu::load(x + 2 * lanes + c) + cpu::load(x + 3 * lanes + c));
  }
  for (; row < rows; ++row, x += lanes) {
#pragma omp simd
    for (std::int64_t c = 0; c < lanes; ++c) sum[c] += cpu::load(x + c);
  }
}

// Adds the sums of x - centre and of its square.
template <class T, class P>
void add_rows_about(const T* x, std::int64_t rows, std::int64_t lanes, const P* centre, P* sum, P* squares) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4, x += 4 * lanes) {
#pragma omp simd
    for (std::int64_t c = 0; c < lanes; ++c) {
      const P m = centre[c];
      const P d0 = cpu::load(x + c) - m, d1 = cpu::load(x + lanes + c) - m;
      const P d2 = cpu::load(x + 2 * lanes + c) - m, d3 = cpu::load(x + 3 * lanes + c) - m;
      sum[c] += (d0 + d1) + (d2 + d3);
      squares[c] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
    }
  }
  for (; row < rows; ++row, x += lanes) {
#pragma omp simd
    for (std::int64_t c = 0; c < lanes; ++c) {
      const P d = cpu::load(x + c) - centre[c];
      sum[c] += d;
      squares[c] += d * d;
    }
  }
}

// Joins the mean and the sum of squared deviations of n_b values to those of n_a values (Chan, Golub, LeVeque, 1979).
inline void join_statistics(double n_a, double* mean_a, double* squares_a, double n_b, const double* mean_b,
                            const double* squares_b, std::int64_t lanes) {
  const double share = n_b / (n_a + n_b), weight = n_a * share;
#pragma omp simd
  for (std::int64_t c = 0; c < lanes; ++c) {
    const double delta = mean_b[c] - mean_a[c];
    mean_a[c] += delta * share;
    squares_a[c] += squares_b[c] + delta * delta * weight;
  }
}

// Mean and sum of squared deviations of a chunk, block by block: a block stays in the nearest cache, so its mean can be
// found first and the deviations taken from it. `narrow` holds 3 * lanes, `wide` 2 * lanes values.
template <class T, class P>
void chunk_statistics(const T* x, std::int64_t rows, std::int64_t lanes, std::int64_t block_rows, P* narrow,
                      double* wide, double* mean, double* squares) {
  P *centre = narrow, *sum = narrow + lanes, *sum_of_squares = narrow + 2 * lanes;
  double *block_mean = wide, *block_squares = wide + lanes;
  for (std::int64_t begin = 0; begin < rows; begin += block_rows) {
    const std::int64_t count = std::min(block_rows, rows - begin);
    const T* block = x + begin * lanes;
    std::fill_n(narrow, 3 * lanes, P(0));
    add_rows(block, count, lanes, centre);
    const P inverse = P(1) / static_cast<P>(count);
    for (std::int64_t c = 0; c < lanes; ++c) centre[c] *= inverse;
    add_rows_about(block, count, lanes, centre, sum, sum_of_squares);
    const double n = static_cast<double>(count), share = 1.0 / n;
#pragma omp simd
    for (std::int64_t c = 0; c < lanes; ++c) {
      const double s = static_cast<double>(sum[c]);
      block_mean[c] = static_cast<double>(centre[c]) + s * share;
      // The rounding of the centre is taken out again.
      block_squares[c] = static_cast<double>(sum_of_squares[c]) - s * s * share;
    }
    if (begin == 0) {
      std::copy_n(block_mean, lanes, mean);
      std::copy_n(block_squares, lanes, squares);
    } else {
      join_statistics(static_cast<double>(begin), mean, squares, n, block_mean, block_squares, lanes);
    }
  }
}

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
      // Not-a-number stays.
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

// Adds a block's sums of g and g (x - mean) in P, then to `sums` in f64. `narrow` holds 2 * lanes values.
template <class Variant, class T, class P>
void chunk_grad_sums(const T* x, const T* dy, const P* coefficients, const std::uint8_t* mask, std::uint8_t* flags,
                     std::int64_t rows, std::int64_t lanes, std::int64_t block_rows, P* narrow, double* sums) {
  const P *mean = coefficients, *scale = coefficients + lanes, *shift = coefficients + 2 * lanes;
  P *sum = narrow, *product = narrow + lanes;
  const std::int64_t mask_bytes = (lanes + 7) / 8, flag_lanes = mask_bytes * 8;
  std::fill_n(sums, 2 * lanes, 0.0);
  for (std::int64_t begin = 0; begin < rows; begin += block_rows) {
    const std::int64_t end = std::min(begin + block_rows, rows);
    std::fill_n(narrow, 2 * lanes, P(0));
    std::int64_t row = begin;
    for (; row + 2 <= end; row += 2, x += 2 * lanes, dy += 2 * lanes) {
      if constexpr (Variant::gate == ReluGate::from_mask) {
        unpack_flags(mask + row * mask_bytes, mask_bytes, flags);
        unpack_flags(mask + (row + 1) * mask_bytes, mask_bytes, flags + flag_lanes);
      }
#pragma omp simd
      for (std::int64_t c = 0; c < lanes; ++c) {
        const P d0 = cpu::load(x + c) - mean[c], d1 = cpu::load(x + lanes + c) - mean[c];
        const P g0 = gated<Variant::gate>(cpu::load(dy + c), d0, scale[c], shift[c], flags + c);
        const P g1 = gated<Variant::gate>(cpu::load(dy + lanes + c), d1, scale[c], shift[c], flags + flag_lanes + c);
        sum[c] += g0 + g1;
        product[c] += g0 * d0 + g1 * d1;
      }
    }
    for (; row < end; ++row, x += lanes, dy += lanes) {
      if constexpr (Variant::gate == ReluGate::from_mask) unpack_flags(mask + row * mask_bytes, mask_bytes, flags);
#pragma omp simd
      for (std::int64_t c = 0; c < lanes; ++c) {
        const P d = cpu::load(x + c) - mean[c];
        const P g = gated<Variant::gate>(cpu::load(dy + c), d, scale[c], shift[c], flags + c);
        sum[c] += g;
        product[c] += g * d;
      }
    }
#pragma omp simd
    for (std::int64_t c = 0; c < 2 * lanes; ++c) sums[c] += static_cast<double>(narrow[c]);
  }
}

template <class Variant, class T, class P>
void grad_rows(const T* x, const T* dy, const P* coefficients, const P* corrections, const std::uint8_t* mask,
               std::uint8_t* flags, T* dx, T* d_residual, std::int64_t rows, std::int64_t lanes) {
  const P *mean = coefficients, *scale = coefficients + lanes, *shift = coefficients + 2 * lanes;
  const P *a = corrections, *b = corrections + lanes;
  const std::int64_t mask_bytes = (lanes + 7) / 8;
  for (std::int64_t row = 0; row < rows; ++row, x += lanes, dy += lanes, dx += lanes) {
    if constexpr (Variant::gate == ReluGate::from_mask) unpack_flags(mask + row * mask_bytes, mask_bytes, flags);
#pragma omp simd
    for (std::int64_t c = 0; c < lanes; ++c) {
      const P d = cpu::load(x + c) - mean[c];
      const P g = gated<Variant::gate>(cpu::load(dy + c), d, scale[c], shift[c], flags + c);
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

constexpr std::int64_t block_bytes = 32 * 1024;  // fits the nearest cache
constexpr std::int64_t fewest_block_rows = 32;   // over which the sums in f64 are spread
constexpr std::int64_t chunk_bytes = 128 * 1024;
constexpr std::int64_t most_chunks = 64;

// x as [rows, lanes]. Where channels are few, several rows are laid side by side to fill the vectors:
// lanes = fold * channels.
struct Layout {
  std::int64_t channels, fold, lanes, rows;
  std::int64_t block_rows;  // of one in-cache block of a sum
  std::int64_t chunk_rows;  // of one piece of parallel work of a sum
  std::int64_t grain;       // rows of one piece of parallel work of an elementwise pass
};

Layout layout_of(const Tensor& x) {
  Layout layout{};
  layout.channels = x.dim(-1);
  layout.rows = layout.channels == 0 ? 0 : x.size() / layout.channels;
  layout.fold = 1;
  while (layout.fold < 64 && layout.channels * layout.fold * 2 <= 128 && layout.rows % 2 == 0 && layout.rows > 0) {
    layout.fold *= 2;
    layout.rows /= 2;
  }
  layout.lanes = layout.channels * layout.fold;
  const std::int64_t row_bytes =
      std::max<std::int64_t>(1, layout.lanes * static_cast<std::int64_t>(size_of(x.dtype())));
  layout.block_rows = std::max(fewest_block_rows, block_bytes / row_bytes / 8 * 8);
  const std::int64_t chunks = std::clamp(layout.rows * row_bytes / chunk_bytes, std::int64_t{1}, most_chunks);
  const std::int64_t blocks = (layout.rows + layout.block_rows - 1) / layout.block_rows;
  layout.chunk_rows = std::max<std::int64_t>(1, (blocks + chunks - 1) / chunks) * layout.block_rows;
  layout.grain = std::max<std::int64_t>(1, chunk_bytes / row_bytes);
  return layout;
}

std::int64_t pieces(std::int64_t rows, std::int64_t grain) { return (rows + grain - 1) / grain; }

// A [count, channels] table with every row repeated `fold` times.
template <class P>
const P* folded(cpu::Scratch& scratch, const Tensor& table, const Layout& layout) {
  const std::int64_t count = table.dim(0);
  P* const result = scratch.take<P>(count * layout.lanes);
  const P* const source = table.data<P>();
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t f = 0; f < layout.fold; ++f)
      std::copy_n(source + i * layout.channels, layout.channels, result + (i * layout.fold + f) * layout.channels);
  return result;
}

// f(begin, count) over the rows, the last ones first.
template <class F>
void backwards(const Layout& layout, const F& f) {
  const std::int64_t count = pieces(layout.rows, layout.grain);
  cpu::parallel_chunks(count, [&](std::int64_t i) {
    const std::int64_t begin = (count - 1 - i) * layout.grain;
    f(begin, std::min(layout.grain, layout.rows - begin));
  });
}

template <class F>
void with_gate(ReluGate gate, const F& f) {
  switch (gate) {
    case ReluGate::none:
      return f.template operator()<ReluGate::none>();
    case ReluGate::from_input:
      return f.template operator()<ReluGate::from_input>();
    case ReluGate::from_mask:
      return f.template operator()<ReluGate::from_mask>();
  }
}

}  // namespace

void batch_norm_statistics(cpu::Stream&, const Tensor& x, const Tensor& mean, const Tensor& variance) {
  const Layout layout = layout_of(x);
  const std::int64_t lanes = layout.lanes, channels = layout.channels;
  const std::int64_t chunks = pieces(layout.rows, layout.chunk_rows);
  cpu::Scratch scratch;
  double* const partial = scratch.take<double>(chunks * 2 * lanes);
  visit_dtype("batch_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const T* const values = x.data<T>();
    cpu::parallel_chunks(chunks, [&](std::int64_t i) {
      cpu::Scratch local;
      P* const narrow = local.take<P>(3 * lanes);
      double* const wide = local.take<double>(2 * lanes);
      const std::int64_t begin = i * layout.chunk_rows, count = std::min(layout.chunk_rows, layout.rows - begin);
      double* const out = partial + i * 2 * lanes;
      HEARTH_ISA_CALL(chunk_statistics, values + begin * lanes, count, lanes, layout.block_rows, narrow, wide, out,
                      out + lanes);
    });
  });
  double n = static_cast<double>(std::min(layout.chunk_rows, layout.rows));
  for (std::int64_t i = 1; i < chunks; ++i) {
    const double count = static_cast<double>(std::min(layout.chunk_rows, layout.rows - i * layout.chunk_rows));
    const double* const other = partial + i * 2 * lanes;
    HEARTH_ISA_CALL(join_statistics, n, partial, partial + lanes, count, other, other + lanes, lanes);
    n += count;
  }
  const double rows = n;
  for (std::int64_t f = 1; f < layout.fold; ++f, n += rows) {
    HEARTH_ISA_CALL(join_statistics, n, partial, partial + lanes, rows, partial + f * channels,
                    partial + lanes + f * channels, channels);
  }
  std::copy_n(partial, channels, mean.data<double>());
  for (std::int64_t c = 0; c < channels; ++c) variance.data<double>()[c] = std::max(0.0, partial[lanes + c] / n);
}

Tensor make_batch_norm_mask(cpu::Stream&, const Tensor& x) {
  const Layout layout = layout_of(x);
  return Tensor::empty({layout.rows, (layout.lanes + 7) / 8}, DType::u8);
}

void batch_norm(cpu::Stream&, const Tensor& x, const Tensor& coefficients, const Tensor& residual, bool relu,
                const Tensor& y, const Tensor& mask) {
  const Layout layout = layout_of(x);
  const std::int64_t lanes = layout.lanes, mask_bytes = (lanes + 7) / 8;
  visit_dtype("batch_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    cpu::Scratch scratch;
    const P* const table = folded<P>(scratch, coefficients, layout);
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

void batch_norm_grad_sums(cpu::Stream&, const Tensor& x, const Tensor& dy, const Tensor& coefficients, ReluGate gate,
                          const Tensor& mask, const Tensor& sums) {
  const Layout layout = layout_of(x);
  const std::int64_t lanes = layout.lanes, channels = layout.channels, mask_bytes = (lanes + 7) / 8;
  const std::int64_t chunks = pieces(layout.rows, layout.chunk_rows);
  cpu::Scratch scratch;
  double* const partial = scratch.take<double>(chunks * 2 * lanes);
  visit_dtype("batch_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const P* const table = folded<P>(scratch, coefficients, layout);
    const T *values = x.data<T>(), *gradient = dy.data<T>();
    const std::uint8_t* const bits = mask.defined() ? mask.data<std::uint8_t>() : nullptr;
    cpu::parallel_chunks(chunks, [&](std::int64_t i) {
      cpu::Scratch local;
      P* const narrow = local.take<P>(2 * lanes);
      auto* const flags = local.take<std::uint8_t>(2 * mask_bytes * 8);
      const std::int64_t begin = i * layout.chunk_rows, rows = std::min(layout.chunk_rows, layout.rows - begin);
      with_gate(gate, [&]<ReluGate g>() {
        HEARTH_ISA_CALL(chunk_grad_sums<Backward<g> >, values + begin * lanes, gradient + begin * lanes, table,
                        bits == nullptr ? nullptr : bits + begin * mask_bytes, flags, rows, lanes, layout.block_rows,
                        narrow, partial + i * 2 * lanes);
      });
    });
  });
  double* const out = sums.data<double>();
  std::fill_n(out, 2 * channels, 0.0);
  for (std::int64_t i = 0; i < chunks; ++i)
    for (std::int64_t which = 0; which < 2; ++which)
      for (std::int64_t f = 0; f < layout.fold; ++f)
        for (std::int64_t c = 0; c < channels; ++c)
          out[which * channels + c] += partial[(i * 2 + which) * lanes + f * channels + c];
}

void batch_norm_grad(cpu::Stream&, const Tensor& x, const Tensor& dy, const Tensor& coefficients,
                     const Tensor& corrections, ReluGate gate, const Tensor& mask, const Tensor& dx,
                     const Tensor& d_residual) {
  const Layout layout = layout_of(x);
  const std::int64_t lanes = layout.lanes, mask_bytes = (lanes + 7) / 8;
  visit_dtype("batch_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    cpu::Scratch scratch;
    const P* const table = folded<P>(scratch, coefficients, layout);
    const P* const correction = folded<P>(scratch, corrections, layout);
    const T *values = x.data<T>(), *gradient = dy.data<T>();
    T* const out = dx.data<T>();
    T* const extra = d_residual.defined() ? d_residual.data<T>() : nullptr;
    const std::uint8_t* const bits = mask.defined() ? mask.data<std::uint8_t>() : nullptr;
    backwards(layout, [&](std::int64_t begin, std::int64_t rows) {
      const std::int64_t at = begin * lanes;
      cpu::Scratch local;
      auto* const flags = local.take<std::uint8_t>(mask_bytes * 8);
      const std::uint8_t* const row_bits = bits == nullptr ? nullptr : bits + begin * mask_bytes;
      with_gate(gate, [&]<ReluGate g>() {
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
