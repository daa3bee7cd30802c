// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "ops/loss/linear_cross_entropy.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/loss/linear_cross_entropy_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class P, class T>
void scale_run(const P* from, P factor, bool adds, T* into, std::int64_t n) {
  if (adds) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) cpu::store(into + i, cpu::load(into + i) + from[i] * factor);
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) cpu::store(into + i, from[i] * factor);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

// A chunk of r rows makes 6 r operations for each of w's elements, whose sum is read and written, 8 bytes: with some 10
// operations a byte a tenth of the time at 130 rows.
std::int64_t head_rows(cpu::Stream&, std::int64_t) { return 256; }

void head_losses(cpu::Stream& stream, const Tensor& logits, std::int64_t, const Tensor& labels,
                 const CrossEntropyOptions& options, double scale, const Tensor& losses, const Tensor& correct) {
  const Tensor most = Tensor::empty_like(losses), log_sum = Tensor::empty_like(losses);
  cross_entropy(stream, logits, labels, options, most, log_sum, losses);
  if (correct.defined()) count_correct(stream, logits, labels, 1, options.ignore_index, correct);
  if (scale == 0) return;
  const Tensor factor = Tensor::full({1}, scale, losses.dtype());
  cross_entropy_grad(stream, logits, labels, options, most, log_sum, factor, {}, logits);
}

void scale_gradient(cpu::Stream&, const Tensor& from, const Tensor& dy, const Tensor& row_weight, double factor,
                    bool adds, const Tensor& into) {
  visit_dtype("linear_cross_entropy", into.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const auto whole = static_cast<P>(static_cast<double>(*dy.data<P>()) * *row_weight.data<double>() * factor);
    const P* const values = from.data<P>();
    T* const out = into.data<T>();
    cpu::parallel_for(from.size(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
      HEARTH_ISA_CALL(scale_run, values + begin, whole, adds, out + begin, end - begin);
    });
  });
}

}  // namespace hearth::kernels
#endif
