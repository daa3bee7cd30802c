// SPDX-License-Identifier: Apache-2.0
// One row after the other, from memory once: its later passes find it in the nearest cache. The gradient makes dx and
// the rows' share of the parameters' gradients in the same sweep.
#include <algorithm>
#include <cmath>

#include "hearth/core/cpu/element.h"
#include "hearth/core/cpu/parallel.h"
#include "hearth/core/cpu/scratch.h"
#include "hearth/ops/norm/layer_norm.h"

#define HEARTH_ISA_SOURCE "hearth/ops/norm/layer_norm_cpu.cpp"
#include "hearth/core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class T, class P>
void layer_norm_rows(const T* x, const P* gamma, const P* beta, double eps, T* y, P* means, P* rstds, std::int64_t rows,
                     std::int64_t cols) {
  const P n = static_cast<P>(cols);
  for (std::int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    P total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t c = 0; c < cols; ++c) total += cpu::load(x + c);
    const P centre = total / n;
    P sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum, squares)
    for (std::int64_t c = 0; c < cols; ++c) {
      const P d = cpu::load(x + c) - centre;
      sum += d;
      squares += d * d;
    }
    // What rounding left in the centre is taken out of both.
    const P rest = sum / n;
    const P mean = centre + rest;
    const double variance = std::max(0.0, static_cast<double>(squares / n) - static_cast<double>(rest) * rest);
    const P rstd = static_cast<P>(1.0 / std::sqrt(variance + eps));
    means[r] = mean;
    rstds[r] = rstd;
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) cpu::store(y + c, (cpu::load(x + c) - mean) * rstd * gamma[c] + beta[c]);
  }
}

// Rows whose parameter gradients are summed in P before they join the sums in f64.
constexpr std::int64_t rows_in_narrow = 64;

// `narrow` holds 2 * cols values.
template <class T, class P>
void layer_norm_grad_rows(const T* x, const T* dy, const P* gamma, const P* means, const P* rstds, T* dx, P* narrow,
                          double* sums, std::int64_t rows, std::int64_t cols) {
  P *d_gamma = narrow, *d_beta = narrow + cols;
  std::fill_n(sums, 2 * cols, 0.0);
  std::fill_n(narrow, 2 * cols, P(0));
  for (std::int64_t r = 0; r < rows; ++r, x += cols, dy += cols, dx += cols) {
    const P mean = means[r], rstd = rstds[r];
    P sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
    for (std::int64_t c = 0; c < cols; ++c) {
      const P normal = (cpu::load(x + c) - mean) * rstd, d = cpu::load(dy + c), g = d * gamma[c];
      sum += g;
      product += g * normal;
      d_gamma[c] += d * normal;
      d_beta[c] += d;
    }
    const P a = sum / static_cast<P>(cols), b = product / static_cast<P>(cols);
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) {
      const P normal = (cpu::load(x + c) - mean) * rstd;
      cpu::store(dx + c, rstd * (cpu::load(dy + c) * gamma[c] - a - normal * b));
    }
    if ((r + 1) % rows_in_narrow != 0 && r + 1 != rows) continue;
#pragma omp simd
    for (std::int64_t c = 0; c < 2 * cols; ++c) {
      sums[c] += static_cast<double>(narrow[c]);
      narrow[c] = P(0);
    }
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void layer_norm(cpu::Stream&, const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, const Tensor& y,
                const Tensor& mean, const Tensor& rstd) {
  if (x.size() == 0) return;
  const std::int64_t cols = x.dim(-1);
  visit_dtype("layer_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const T* const in = x.data<T>();
    T* const out = y.data<T>();
    const P *scale = gamma.data<P>(), *shift = beta.data<P>();
    P *means = mean.data<P>(), *rstds = rstd.data<P>();
    cpu::parallel_for(x.size() / cols, std::max<std::int64_t>(1, (1 << 14) / cols),
                      [&](std::int64_t begin, std::int64_t end) {
                        HEARTH_ISA_CALL(layer_norm_rows, in + begin * cols, scale, shift, eps, out + begin * cols,
                                        means + begin, rstds + begin, end - begin, cols);
                      });
  });
}

void layer_norm_grad(cpu::Stream&, const Tensor& x, const Tensor& dy, const Tensor& gamma, const Tensor& mean,
                     const Tensor& rstd, const Tensor& dx, const Tensor& d_gamma, const Tensor& d_beta) {
  const std::int64_t cols = x.dim(-1), rows = cols == 0 ? 0 : x.size() / cols;
  if (cols == 0) return;
  // At most 64 pieces, each with its own sums, of about 16 thousand elements or more.
  const std::int64_t grain = std::max({(rows + 63) / 64, (1 << 14) / cols, std::int64_t{1}});
  const std::int64_t pieces = (rows + grain - 1) / grain;
  cpu::Scratch scratch;
  double* const partial = scratch.take<double>(pieces * 2 * cols);
  visit_dtype("layer_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const T *values = x.data<T>(), *gradient = dy.data<T>();
    T* const out = dx.data<T>();
    const P *scale = gamma.data<P>(), *means = mean.data<P>(), *rstds = rstd.data<P>();
    cpu::parallel_chunks(pieces, [&](std::int64_t i) {
      cpu::Scratch local;
      P* const narrow = local.take<P>(2 * cols);
      const std::int64_t begin = i * grain, count = std::min(grain, rows - begin);
      HEARTH_ISA_CALL(layer_norm_grad_rows, values + begin * cols, gradient + begin * cols, scale, means + begin,
                      rstds + begin, out + begin * cols, narrow, partial + i * 2 * cols, count, cols);
    });
  });
  double* const total = scratch.take<double>(2 * cols);
  std::fill_n(total, 2 * cols, 0.0);
  for (std::int64_t i = 0; i < pieces; ++i)
    for (std::int64_t c = 0; c < 2 * cols; ++c) total[c] += partial[i * 2 * cols + c];
  visit_dtype("layer_norm", gamma.dtype(), WideFloats{}, [&]<class P>() {
    for (std::int64_t c = 0; c < cols; ++c) {
      if (d_gamma.defined()) d_gamma.data<P>()[c] = static_cast<P>(total[c]);
      if (d_beta.defined()) d_beta.data<P>()[c] = static_cast<P>(total[cols + c]);
    }
  });
}

}  // namespace hearth::kernels
#endif
