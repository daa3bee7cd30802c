// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "ops/pointwise/swiglu.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/pointwise/swiglu_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

/// Elements [begin, end) of one row of C; x has the row's two halves.
template <class T>
void swiglu_row(const T* x, T* y, std::int64_t cols) {
#pragma omp simd
  for (std::int64_t c = 0; c < cols; ++c) {
    const acc_t<T> a = cpu::load(x + c);
    cpu::store(y + c, a * cpu::math::sigmoid(a) * cpu::load(x + cols + c));
  }
}

template <class T>
void swiglu_grad_row(const T* x, const T* dy, T* dx, std::int64_t cols) {
#pragma omp simd
  for (std::int64_t c = 0; c < cols; ++c) {
    const acc_t<T> a = cpu::load(x + c), b = cpu::load(x + cols + c), d = cpu::load(dy + c);
    const acc_t<T> gate = cpu::math::sigmoid(a);
    cpu::store(dx + c, d * b * gate * (1 + a * (1 - gate)));
    cpu::store(dx + cols + c, d * a * gate);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

/// f(row) for the rows of C elements.
template <class F>
void each_row(std::int64_t rows, std::int64_t cols, const F& f) {
  cpu::parallel_for(rows, std::max<std::int64_t>(1, (1 << 14) / cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) f(row);
  });
}

}  // namespace

void swiglu(cpu::Stream&, const Tensor& x, const Tensor& y) {
  visit_dtype("swiglu", x.dtype(), Floats{}, [&]<class T>() {
    const T* const from = x.data<T>();
    T* const to = y.data<T>();
    const std::int64_t cols = y.dim(-1);
    each_row(y.size() / cols, cols,
             [&](std::int64_t row) { HEARTH_ISA_CALL(swiglu_row, from + row * 2 * cols, to + row * cols, cols); });
  });
}

void swiglu_grad(cpu::Stream&, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  visit_dtype("swiglu", x.dtype(), Floats{}, [&]<class T>() {
    const T *from = x.data<T>(), *slope = dy.data<T>();
    T* const to = dx.data<T>();
    const std::int64_t cols = dy.dim(-1);
    each_row(dy.size() / cols, cols, [&](std::int64_t row) {
      HEARTH_ISA_CALL(swiglu_grad_row, from + row * 2 * cols, slope + row * cols, to + row * 2 * cols, cols);
    });
  });
}

}  // namespace hearth::kernels
#endif
