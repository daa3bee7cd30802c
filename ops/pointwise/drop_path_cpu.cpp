// SPDX-License-Identifier: Apache-2.0
// A sample's random word once, then its elements in one vectorised pass; parts of samples go to the threads.
#include <algorithm>
#include <vector>

#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "ops/pointwise/drop_path.h"
#include "ops/pointwise/sample_words.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/pointwise/drop_path_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

/// `count` elements of a sample that stays.
template <class T>
void scale_sample(const T* x, const T* residual, acc_t<T> scale, T* y, std::int64_t count) {
  if (residual == nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) cpu::store(y + i, cpu::load(x + i) * scale);
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) cpu::store(y + i, cpu::load(residual + i) + cpu::load(x + i) * scale);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void drop_path(cpu::Stream&, const Tensor& x, const Tensor& residual, const RandomKey& key, double p, const Tensor& y) {
  constexpr std::int64_t grain = 1 << 14;
  const std::int64_t samples = x.dim(0), size = x.size() / samples;
  const std::uint32_t threshold = dropout_threshold(p);
  const std::vector<std::uint32_t> words = sample_words(key, samples);
  const std::uint32_t* const word = words.data();
  visit_dtype("drop_path", x.dtype(), Floats{}, [&]<class T>() {
    const T* const from = x.data<T>();
    const T* const onto = residual.defined() ? residual.data<T>() : nullptr;
    T* const to = y.data<T>();
    const auto scale = static_cast<acc_t<T> >(1.0 / (1.0 - p));
    cpu::parallel_for(x.size(), grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin, count = 0; i < end; i += count) {
        count = std::min(end, (i / size + 1) * size) - i;
        const T* const base = onto != nullptr ? onto + i : nullptr;
        if (word[i / size] >= threshold)
          HEARTH_ISA_CALL(scale_sample, from + i, base, scale, to + i, count);
        else if (base == nullptr)
          std::fill_n(to + i, count, T(0.0f));
        else if (base != to + i)
          std::copy_n(base, count, to + i);
      }
    });
  });
}

}  // namespace hearth::kernels
#endif
