// SPDX-License-Identifier: Apache-2.0
// Sixteen Philox blocks at a time give the 64 random words of 64 neighbouring elements, in lanes that vectorise.
#include <algorithm>
#include <cmath>

#include "hearth/core/cpu/element.h"
#include "hearth/core/cpu/parallel.h"
#include "hearth/ops/pointwise/dropout.h"

#define HEARTH_ISA_SOURCE "hearth/ops/pointwise/dropout_cpu.cpp"
#include "hearth/core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

/// The words of elements [64 strip, 64 strip + 64): word j of block 16 strip + l belongs to element 16 j + l.
/// The same function as philox() of core/random.h, sixteen counters side by side.
inline void strip_words(const RandomKey& key, std::uint64_t strip, std::uint32_t* words) {
  std::uint32_t c0[16], c1[16], c2[16], c3[16];
  for (std::uint32_t l = 0; l < 16; ++l) {
    const std::uint64_t block = strip * 16 + l;
    c0[l] = static_cast<std::uint32_t>(block);
    c1[l] = key.op;
    c2[l] = static_cast<std::uint32_t>(key.step);
    // Steps stay below 2^48 and blocks below 2^48, so both fit into what is left of the counter.
    c3[l] = static_cast<std::uint32_t>(key.step >> 32) ^ (static_cast<std::uint32_t>(block >> 32) << 16);
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(key.seed), k1 = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int l = 0; l < 16; ++l) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0[l];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2[l];
      c0[l] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[l] ^ k0;
      c2[l] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[l] ^ k1;
      c1[l] = static_cast<std::uint32_t>(p1);
      c3[l] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  std::copy_n(c0, 16, words);
  std::copy_n(c1, 16, words + 16);
  std::copy_n(c2, 16, words + 32);
  std::copy_n(c3, 16, words + 48);
}

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
  // An element is dropped when its word lies below p * 2^32.
  const auto threshold = static_cast<std::uint32_t>(std::min(std::round(p * 0x1p32), 0x1p32 - 1));
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
