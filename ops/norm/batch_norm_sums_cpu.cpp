// SPDX-License-Identifier: Apache-2.0
// The sums of batch_norm over the rows: statistics and those of the gradient. A block of rows is summed in the narrow
// type, blocks and chunks are joined in f64.
#include <algorithm>

#include "hearth/core/cpu/element.h"
#include "hearth/core/cpu/parallel.h"
#include "hearth/ops/norm/batch_norm_cpu.h"

#define HEARTH_ISA_SOURCE "hearth/ops/norm/batch_norm_sums_cpu.cpp"
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

// Adds a block's sums of g and g (x - mean) in P, then to `sums` in f64. `narrow` holds 2 * lanes values.
template <ReluGate gate, class T, class P>
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
      if constexpr (gate == ReluGate::from_mask) {
        unpack_flags(mask + row * mask_bytes, mask_bytes, flags);
        unpack_flags(mask + (row + 1) * mask_bytes, mask_bytes, flags + flag_lanes);
      }
#pragma omp simd
      for (std::int64_t c = 0; c < lanes; ++c) {
        const P d0 = cpu::load(x + c) - mean[c], d1 = cpu::load(x + lanes + c) - mean[c];
        const P g0 = gated<gate>(cpu::load(dy + c), d0, scale[c], shift[c], flags + c);
        const P g1 = gated<gate>(cpu::load(dy + lanes + c), d1, scale[c], shift[c], flags + flag_lanes + c);
        sum[c] += g0 + g1;
        product[c] += g0 * d0 + g1 * d1;
      }
    }
    for (; row < end; ++row, x += lanes, dy += lanes) {
      if constexpr (gate == ReluGate::from_mask) unpack_flags(mask + row * mask_bytes, mask_bytes, flags);
#pragma omp simd
      for (std::int64_t c = 0; c < lanes; ++c) {
        const P d = cpu::load(x + c) - mean[c];
        const P g = gated<gate>(cpu::load(dy + c), d, scale[c], shift[c], flags + c);
        sum[c] += g;
        product[c] += g * d;
      }
    }
#pragma omp simd
    for (std::int64_t c = 0; c < 2 * lanes; ++c) sums[c] += static_cast<double>(narrow[c]);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
void channel_statistics(const Tensor& x, double* mean, double* variance) {
  const BatchNormPieces layout(x);
  const std::int64_t lanes = layout.lanes, channels = layout.channels;
  const std::int64_t chunks = layout.chunks();
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
  std::copy_n(partial, channels, mean);
  for (std::int64_t c = 0; c < channels; ++c) variance[c] = std::max(0.0, partial[lanes + c] / n);
}

void channel_gradient_sums(const Tensor& x, const Tensor& dy, const Tensor& coefficients, ReluGate gate,
                           const Tensor& mask, double* sum, double* product) {
  const BatchNormPieces layout(x);
  const std::int64_t lanes = layout.lanes, channels = layout.channels, mask_bytes = layout.mask_bytes();
  const std::int64_t chunks = layout.chunks();
  cpu::Scratch scratch;
  double* const partial = scratch.take<double>(chunks * 2 * lanes);
  visit_dtype("batch_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const P* const table = layout.folded<P>(scratch, coefficients);
    const T *values = x.data<T>(), *gradient = dy.data<T>();
    const std::uint8_t* const bits = mask.defined() ? mask.data<std::uint8_t>() : nullptr;
    cpu::parallel_chunks(chunks, [&](std::int64_t i) {
      cpu::Scratch local;
      P* const narrow = local.take<P>(2 * lanes);
      auto* const flags = local.take<std::uint8_t>(2 * mask_bytes * 8);
      const std::int64_t begin = i * layout.chunk_rows, rows = std::min(layout.chunk_rows, layout.rows - begin);
      with_gate(gate, [&]<ReluGate g>() {
        HEARTH_ISA_CALL(chunk_grad_sums<g>, values + begin * lanes, gradient + begin * lanes, table,
                        bits == nullptr ? nullptr : bits + begin * mask_bytes, flags, rows, lanes, layout.block_rows,
                        narrow, partial + i * 2 * lanes);
      });
    });
  });
  std::fill_n(sum, channels, 0.0);
  std::fill_n(product, channels, 0.0);
  for (std::int64_t i = 0; i < chunks; ++i) {
    for (std::int64_t f = 0; f < layout.fold; ++f) {
      const double* const part = partial + 2 * i * lanes + f * channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        sum[c] += part[c];
        product[c] += part[lanes + c];
      }
    }
  }
}

}  // namespace hearth::kernels
#endif
