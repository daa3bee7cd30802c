// SPDX-License-Identifier: Apache-2.0
// One row after the other: it is read three times, from the nearest caches unless it is very long.
// Reference, for each row:
//   log_sum = max(x) + log(sum(exp(x - max(x))))
//   softmax: y = exp(x - log_sum);  dx = y * (dy - sum(dy * y))
//   log_softmax: y = x - log_sum;  dx = dy - exp(y) * sum(dy)
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "ops/scratch.h"
#include "ops/softmax/softmax.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/softmax/softmax_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class T>
acc_t<T> largest(const T* x, std::int64_t cols) {
  using P = acc_t<T>;
  P most = -std::numeric_limits<P>::infinity();
#pragma omp simd reduction(max : most)
  for (std::int64_t c = 0; c < cols; ++c) {
    const P value = cpu::load(x + c);
    most = value > most ? value : most;
  }
  return most;
}

// `row` is working memory for one row.
template <class T, class P>
void softmax_rows(const T* x, T* y, P* row, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const P most = largest(x, cols);
    P sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t c = 0; c < cols; ++c) {
      const P e = cpu::math::exp(cpu::load(x + c) - most);
      row[c] = e;
      sum += e;
    }
    const P inverse = P(1) / sum;
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) cpu::store(y + c, row[c] * inverse);
  }
}

template <class T>
void softmax_grad_rows(const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < rows; ++r, y += cols, dy += cols, dx += cols) {
    acc_t<T> sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t c = 0; c < cols; ++c) sum += cpu::load(y + c) * cpu::load(dy + c);
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) cpu::store(dx + c, cpu::load(y + c) * (cpu::load(dy + c) - sum));
  }
}

template <class T>
void log_softmax_rows(const T* x, T* y, std::int64_t rows, std::int64_t cols) {
  using P = acc_t<T>;
  for (std::int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const P most = largest(x, cols);
    P sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t c = 0; c < cols; ++c) sum += cpu::math::exp(cpu::load(x + c) - most);
    const P log_sum = static_cast<P>(std::log(static_cast<double>(sum)));
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) cpu::store(y + c, (cpu::load(x + c) - most) - log_sum);
  }
}

template <class T>
void log_softmax_grad_rows(const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < rows; ++r, y += cols, dy += cols, dx += cols) {
    acc_t<T> sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t c = 0; c < cols; ++c) sum += cpu::load(dy + c);
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c)
      cpu::store(dx + c, cpu::load(dy + c) - cpu::math::exp(cpu::load(y + c)) * sum);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

// f(first element, rows, cols) over pieces of about 16 thousand elements.
template <class F>
void over_rows(const Tensor& x, const F& f) {
  if (x.size() == 0) return;
  const std::int64_t cols = x.dim(-1);
  cpu::parallel_for(x.size() / cols, std::max<std::int64_t>(1, (1 << 14) / cols),
                    [&](std::int64_t begin, std::int64_t end) { f(begin * cols, end - begin, cols); });
}

}  // namespace

void softmax(cpu::Stream&, bool logarithm, const Tensor& x, const Tensor& y) {
  visit_dtype("softmax", x.dtype(), Floats{}, [&]<class T>() {
    const T* const in = x.data<T>();
    T* const out = y.data<T>();
    over_rows(x, [&](std::int64_t at, std::int64_t rows, std::int64_t cols) {
      if (logarithm) return HEARTH_ISA_CALL_FOR(T, log_softmax_rows, in + at, out + at, rows, cols);
      cpu::Scratch scratch;
      acc_t<T>* const row = scratch.take<acc_t<T> >(cols);
      HEARTH_ISA_CALL_FOR(T, softmax_rows, in + at, out + at, row, rows, cols);
    });
  });
}

void softmax_grad(cpu::Stream&, bool logarithm, const Tensor& y, const Tensor& dy, const Tensor& dx) {
  visit_dtype("softmax", y.dtype(), Floats{}, [&]<class T>() {
    const T *result = y.data<T>(), *in = dy.data<T>();
    T* const out = dx.data<T>();
    over_rows(y, [&](std::int64_t at, std::int64_t rows, std::int64_t cols) {
      if (logarithm)
        HEARTH_ISA_CALL_FOR(T, log_softmax_grad_rows, result + at, in + at, out + at, rows, cols);
      else
        HEARTH_ISA_CALL_FOR(T, softmax_grad_rows, result + at, in + at, out + at, rows, cols);
    });
  });
}

}  // namespace hearth::kernels
#endif
