// SPDX-License-Identifier: Apache-2.0
// The random words of 64 neighbouring elements at a time.
#include <algorithm>

#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/dropout_strip.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/pointwise/dropout_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

/// Elements [begin, end), of which element 0 has the number `first`.
template <class T>
void dropout_range(const T* x, const RandomKey& key, std::int64_t first, std::uint32_t threshold, acc_t<T> scale, T* y,
                   std::int64_t begin, std::int64_t end) {
  std::uint32_t words[64];
  std::int64_t count = 0;
  for (std::int64_t i = begin; i < end; i += count) {
    strip_words(key, static_cast<std::uint64_t>((first + i) / 64), words);
    const std::int64_t skipped = (first + i) & 63;
    const std::uint32_t* const word = words + skipped;
    count = std::min(64 - skipped, end - i);
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) {
      const acc_t<T> scaled = cpu::load(x + i + j) * scale;
      cpu::store(y + i + j, word[j] >= threshold ? scaled : acc_t<T>(0));
    }
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void dropout(cpu::Stream&, const Tensor& x, const RandomKey& key, double p, const Tensor& y) {
  constexpr std::int64_t grain = 1 << 14;
  const std::int64_t first = key.first_element(x.size());
  const std::uint32_t threshold = dropout_threshold(p);
  visit_dtype("dropout", x.dtype(), Floats{}, [&]<class T>() {
    const T* const from = x.data<T>();
    T* const to = y.data<T>();
    const auto scale = static_cast<acc_t<T> >(1.0 / (1.0 - p));
    cpu::parallel_for(x.size(), grain, [&](std::int64_t begin, std::int64_t end) {
      HEARTH_ISA_CALL(dropout_range, from, key, first, threshold, scale, to, begin, end);
    });
  });
}

}  // namespace hearth::kernels
#endif
