// SPDX-License-Identifier: Apache-2.0
// One row after the other, from memory once: its second pass finds it in the nearest cache. The gradient makes dx and
// the rows' share of gamma's gradient in the same pass.
// Reference, for each row, of n values:
//   r = 1 / sqrt(sum(x^2) / n + eps);  y = x * r * gamma
//   d_gamma += dy * x * r
//   g = dy * gamma;  dx = r * (g - x * r^2 * sum(g * x) / n)
#include <algorithm>
#include <cmath>

#include "core/cpu/element.h"
#include "ops/norm/cpu/layer_norm_cpu.h"
#include "ops/norm/rms_norm.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/norm/cpu/rms_norm_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class T, class P>
void rms_norm_rows(const T* x, const P* gamma, double eps, T* y, P* rstds, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    P squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t c = 0; c < cols; ++c) squares += cpu::load(x + c) * cpu::load(x + c);
    const P rstd = static_cast<P>(1.0 / std::sqrt(static_cast<double>(squares / static_cast<P>(cols)) + eps));
    rstds[r] = rstd;
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) cpu::store(y + c, cpu::load(x + c) * rstd * gamma[c]);
  }
}

/// Sets `sums`, [cols], to the rows' share of gamma's gradient; `narrow` holds as many values.
template <class T, class P>
void rms_norm_grad_rows(const T* x, const T* dy, const P* gamma, const P* rstds, T* dx, P* narrow, double* sums,
                        std::int64_t rows, std::int64_t cols) {
  // So many rows are summed in P before they join the sums in f64.
  constexpr std::int64_t narrow_rows = 64;
  std::fill_n(sums, cols, 0.0);
  std::fill_n(narrow, cols, P(0));
  for (std::int64_t r = 0; r < rows; ++r, x += cols, dy += cols, dx += cols) {
    const P rstd = rstds[r];
    P product = 0;
#pragma omp simd reduction(+ : product)
    for (std::int64_t c = 0; c < cols; ++c) {
      const P normal = cpu::load(x + c) * rstd, d = cpu::load(dy + c);
      product += d * gamma[c] * normal;
      narrow[c] += d * normal;
    }
    const P b = product / static_cast<P>(cols);
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c)
      cpu::store(dx + c, rstd * (cpu::load(dy + c) * gamma[c] - cpu::load(x + c) * rstd * b));
    if ((r + 1) % narrow_rows != 0 && r + 1 != rows) continue;
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) {
      sums[c] += static_cast<double>(narrow[c]);
      narrow[c] = P(0);
    }
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void rms_norm(cpu::Stream&, const Tensor& x, const Tensor& gamma, double eps, const Tensor& y, const Tensor& rstd) {
  if (x.size() == 0) return;
  const std::int64_t cols = x.dim(-1);
  visit_dtype("rms_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const T* const in = x.data<T>();
    T* const out = y.data<T>();
    const P* const scale = gamma.data<P>();
    P* const rstds = rstd.data<P>();
    cpu::parallel_for(x.size() / cols, norm_grain(cols), [&](std::int64_t begin, std::int64_t end) {
      HEARTH_ISA_CALL_FOR(T, rms_norm_rows, in + begin * cols, scale, eps, out + begin * cols, rstds + begin,
                          end - begin, cols);
    });
  });
}

void rms_norm_grad(cpu::Stream&, const Tensor& x, const Tensor& dy, const Tensor& gamma, const Tensor& rstd,
                   const Tensor& dx, const Tensor& d_gamma) {
  const std::int64_t cols = x.dim(-1), rows = cols == 0 ? 0 : x.size() / cols;
  visit_dtype("rms_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const T *values = x.data<T>(), *gradient = dy.data<T>();
    T* const out = dx.data<T>();
    const P *scale = gamma.data<P>(), *rstds = rstd.data<P>();
    norm_grad_pieces(rows, cols, {d_gamma}, [&](std::int64_t begin, std::int64_t count, double* sums) {
      cpu::Scratch scratch;
      HEARTH_ISA_CALL_FOR(T, rms_norm_grad_rows, values + begin * cols, gradient + begin * cols, scale, rstds + begin,
                          out + begin * cols, scratch.take<P>(cols), sums, count, cols);
    });
  });
}

}  // namespace hearth::kernels
#endif
