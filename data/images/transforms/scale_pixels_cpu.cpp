// SPDX-License-Identifier: Apache-2.0
#include "data/images/transforms/scale_pixels.h"

#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#endif

namespace hearth {}

#define HEARTH_ISA_SOURCE "data/images/transforms/scale_pixels_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

#if HEARTH_ISA_VECTOR_BYTES >= 32

/// Whole periods; gives how many values these are. `around`: the results are written around the caches.
template <bool around>
inline std::size_t scale_periods(const std::uint8_t* in, std::size_t count, const PixelScale& by, float* out) {
  constexpr int vectors = PixelScale::period / 8;
  // In registers: the compiler cannot know that `out` is apart from them.
  __m256 scale[vectors], shift[vectors], scale_rest[vectors], shift_rest[vectors];
#pragma GCC unroll 3
  for (int k = 0; k < vectors; ++k) {
    scale[k] = _mm256_loadu_ps(by.scale + 8 * k), shift[k] = _mm256_loadu_ps(by.shift + 8 * k);
    scale_rest[k] = _mm256_loadu_ps(by.scale_rest + 8 * k), shift_rest[k] = _mm256_loadu_ps(by.shift_rest + 8 * k);
  }
  std::size_t i = 0;
  for (; i + PixelScale::period <= count; i += PixelScale::period) {
#pragma GCC unroll 3
    for (int k = 0; k < vectors; ++k) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in + i + 8 * k));
      const __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
      const __m256 exact = _mm256_fmadd_ps(v, scale[k], shift[k]);
      const __m256 made = _mm256_add_ps(exact, _mm256_fmadd_ps(v, scale_rest[k], shift_rest[k]));
      if constexpr (around)
        _mm256_stream_ps(out + i + 8 * k, made);
      else
        _mm256_storeu_ps(out + i + 8 * k, made);
    }
  }
  if constexpr (around) _mm_sfence();
  return i;
}

inline void scale_all(const std::uint8_t* in, std::size_t count, const PixelScale& by, float* out) {
  // A batch of such images is larger than the caches: written around them it makes half the traffic.
  const bool around = count >= (std::size_t{64} << 10) && reinterpret_cast<std::uintptr_t>(out) % 32 == 0;
  const std::size_t done = around ? scale_periods<true>(in, count, by, out) : scale_periods<false>(in, count, by, out);
  if (done == count) return;
  // By the same instructions: others round otherwise.
  std::uint8_t last[PixelScale::period] = {};
  float made[PixelScale::period];
  std::memcpy(last, in + done, count - done);
  scale_periods<false>(last, PixelScale::period, by, made);
  std::memcpy(out + done, made, (count - done) * sizeof(float));
}

#else

inline void scale_some(const std::uint8_t* in, std::size_t count, const PixelScale& by, float* out) {
  for (std::size_t k = 0; k < count; ++k) {
    const auto v = static_cast<float>(in[k]);
    out[k] = (v * by.scale[k] + by.shift[k]) + (v * by.scale_rest[k] + by.shift_rest[k]);
  }
}

inline void scale_all(const std::uint8_t* in, std::size_t count, const PixelScale& by, float* out) {
  constexpr std::size_t period = PixelScale::period;
  std::size_t i = 0;
  for (; i + period <= count; i += period) scale_some(in + i, period, by, out + i);
  scale_some(in + i, count - i, by, out + i);
}

#endif

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void scale_pixels(const std::uint8_t* in, std::size_t count, const PixelScale& by, float* out) {
  HEARTH_ISA_CALL(scale_all, in, count, by, out);
}

}  // namespace hearth::kernels
#endif
