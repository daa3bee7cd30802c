// SPDX-License-Identifier: Apache-2.0
// Max pooling on the CPU, vectorised over channels; max_pool_grad_cpu.cpp has the gradient. Reference, for each image,
// channel and window:
//   y = x[at], the first largest pixel of the window;  dx[at] += dy
#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/cpu/lanes.h"
#include "ops/pool/kernels.h"
#include "ops/pool/max_pool_rows.h"
#include "ops/scratch.h"

#ifndef HEARTH_ISA_NAMESPACE
namespace hearth::kernels {
namespace {

using namespace pool;

}  // namespace
}  // namespace hearth::kernels
#endif

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/pool/max_pool_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

#include "core/cpu/lanes.inc"

/// Taps of a window that lie inside the image, the first of which is tap `first` at x.
template <class T>
struct Window {
  const T* x;
  std::int64_t rows, columns, first;
};

// GCC makes of comparisons and conversions of vectors more instructions than there are.

/// `best` and the position `at` of it become `value` and `tap` where that is larger, or the first NaN.
template <class Vector, class Indices, class Index>
HEARTH_ALWAYS_INLINE void take_larger(Vector& best, Indices& at, Vector value, Index tap) {
#if HEARTH_ISA_VECTOR_BYTES == 64
  if constexpr (sizeof(Index) == 4) {
    const __m512 before = reinterpret_cast<__m512>(best), now = reinterpret_cast<__m512>(value);
    const __mmask16 number = _mm512_cmp_ps_mask(before, before, _CMP_ORD_Q);
    const __mmask16 taken = _mm512_mask_cmp_ps_mask(number, now, before, _CMP_NLE_UQ);
    best = reinterpret_cast<Vector>(_mm512_mask_mov_ps(before, taken, now));
    at = reinterpret_cast<Indices>(_mm512_mask_set1_epi32(reinterpret_cast<__m512i>(at), taken, tap));
    return;
  }
#endif
  const auto kept = (value <= best) | (best != best);
  best = kept ? best : value;
  at = kept ? at : Indices{} + tap;
}

/// Positions as they are kept.
template <class Tap, class Indices>
HEARTH_ALWAYS_INLINE void store_taps(Tap* into, Indices at) {
#if HEARTH_ISA_VECTOR_BYTES == 64
  if constexpr (sizeof(Tap) == 1 && sizeof(at[0]) == 4) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(into),
                     _mm512_maskz_cvtepi32_epi8(0xffff, reinterpret_cast<__m512i>(at)));
    return;
  }
#endif
  for (std::size_t c = 0; c < sizeof(at) / sizeof(at[0]); ++c) into[c] = static_cast<Tap>(at[c]);
}

/// The first largest pixel of a window, or its first NaN, for `vectors` vectors of channels.
template <int vectors, class T, class Tap>
void max_channels(const PoolShape& s, const Window<T>& window, T* y, Tap* taps) {
  using A = acc_t<T>;
  using Index = std::conditional_t<sizeof(A) == 8, std::int64_t, std::int32_t>;
  constexpr std::int64_t lanes = Lanes<A>::count;
  typename Lanes<A>::Vector best[vectors];
  typename Lanes<Index>::Vector at[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    best[v] = typename Lanes<A>::Vector{} - std::numeric_limits<A>::infinity();
    at[v] = typename Lanes<Index>::Vector{} + static_cast<Index>(window.first);
  }
  for (std::int64_t i = 0; i < window.rows; ++i) {
    for (std::int64_t j = 0; j < window.columns; ++j) {
      const T* const pixel = window.x + (i * s.w + j) * s.c;
      const auto tap = static_cast<Index>(window.first + i * s.kernel_w + j);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        take_larger(best[v], at[v], load_lanes(pixel + v * lanes), tap);
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) store_lanes(y + v * lanes, best[v]);
  if (taps == nullptr) return;
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) store_taps(taps + v * lanes, at[v]);
}

/// The same for pixels that are 0 or more, or NaN, whatever their sign: such numbers are ordered as integers.
template <int vectors, class T>
void max_positive_channels(const PoolShape& s, const Window<T>& window, T* y, std::uint8_t* taps) {
  using Word =
      std::conditional_t<sizeof(T) == 8, std::int64_t, std::conditional_t<sizeof(T) == 4, std::int32_t, std::int16_t>>;
  constexpr std::int64_t lanes = HEARTH_ISA_VECTOR_BYTES / sizeof(T);
  typedef Word Words __attribute__((vector_size(HEARTH_ISA_VECTOR_BYTES)));
  constexpr Word sign = std::numeric_limits<Word>::min();
  Words best[vectors], at[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) best[v] = Words{} - 1, at[v] = Words{};
  for (std::int64_t i = 0; i < window.rows; ++i) {
    for (std::int64_t j = 0; j < window.columns; ++j) {
      const T* const pixel = window.x + (i * s.w + j) * s.c;
      const auto tap = static_cast<Word>(window.first + i * s.kernel_w + j);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        Words value;
        std::memcpy(&value, static_cast<const void*>(pixel + v * lanes), sizeof(value));
        value &= ~sign;
        const Words larger = value > best[v];
        at[v] = larger ? Words{} + tap : at[v];
        best[v] = larger ? value : best[v];
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) std::memcpy(static_cast<void*>(y + v * lanes), &best[v], sizeof(best[v]));
  if (taps == nullptr) return;
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
#if HEARTH_ISA_VECTOR_BYTES == 64
    if constexpr (sizeof(T) == 2) {
      const __m256i bytes = _mm512_maskz_cvtepi16_epi8(~__mmask32{}, reinterpret_cast<__m512i>(at[v]));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(taps + v * lanes), bytes);
      continue;
    }
#endif
    store_taps(taps + v * lanes, at[v]);
  }
}

/// The same for one channel.
template <class T, class Tap>
void max_channel(const PoolShape& s, const Window<T>& window, T* y, Tap* taps) {
  auto best = -std::numeric_limits<acc_t<T>>::infinity();
  std::int64_t at = window.first;
  for (std::int64_t i = 0; i < window.rows; ++i) {
    for (std::int64_t j = 0; j < window.columns; ++j) {
      const acc_t<T> value = cpu::load(window.x + (i * s.w + j) * s.c);
      if (value <= best || best != best) continue;
      best = value;
      at = window.first + i * s.kernel_w + j;
    }
  }
  cpu::store(y, best);
  if (taps != nullptr) *taps = static_cast<Tap>(at);
}

/// Row p of the result of one image: y [Q, C] and, unless null, the taps. `positive`: no pixel is below 0, and channels
/// are in multiples of 32.
template <bool positive, class T, class Tap>
void max_row(const PoolShape& s, std::int64_t p, const T* image, T* y, Tap* taps) {
  constexpr std::int64_t lanes = Lanes<acc_t<T>>::count;
  const Range r = taps_inside(p, s.stride_h, s.pad_h, s.kernel_h, s.h);
  for (std::int64_t q = 0; q < s.q; ++q, y += s.c) {
    const Range t = taps_inside(q, s.stride_w, s.pad_w, s.kernel_w, s.w);
    const std::int64_t row = p * s.stride_h - s.pad_h + r.first, column = q * s.stride_w - s.pad_w + t.first;
    Window<T> window{image + (row * s.w + column) * s.c, r.last - r.first, t.last - t.first,
                     r.first * s.kernel_w + t.first};
    Tap* const kept = taps == nullptr ? nullptr : taps + q * s.c;
    const auto tap_at = [&](std::int64_t c) { return kept == nullptr ? nullptr : kept + c; };
    std::int64_t c = 0;
    if constexpr (positive) {
      constexpr std::int64_t words = HEARTH_ISA_VECTOR_BYTES / sizeof(T);
      for (; c + 2 * words <= s.c; c += 2 * words, window.x += 2 * words)
        max_positive_channels<2>(s, window, y + c, tap_at(c));
      for (; c + words <= s.c; c += words, window.x += words) max_positive_channels<1>(s, window, y + c, tap_at(c));
      continue;
    }
    for (; c + 4 * lanes <= s.c; c += 4 * lanes, window.x += 4 * lanes) max_channels<4>(s, window, y + c, tap_at(c));
    for (; c + lanes <= s.c; c += lanes, window.x += lanes) max_channels<1>(s, window, y + c, tap_at(c));
    for (; c < s.c; ++c, ++window.x) max_channel(s, window, y + c, tap_at(c));
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else

namespace hearth::kernels {
void max_pool2d(cpu::Stream&, const PoolShape& s, const Tensor& x, const Tensor& y, const Tensor& taps) {
  if (y.size() == 0) return;
  visit_dtype("max_pool2d", x.dtype(), Floats{}, [&]<class T>() {
    const auto run = [&]<class Tap>(Tap* kept) {
      const T* from = x.data<T>();
      T* into = y.data<T>();
      each_row(s.n, s.p, s.q * s.c, [&](std::int64_t n, std::int64_t p) {
        const std::int64_t at = (n * s.p + p) * s.q * s.c;
        HEARTH_ISA_CALL_FOR(T, max_row<false>, s, p, from + n * s.h * s.w * s.c, into + at,
                            kept == nullptr ? nullptr : kept + at);
      });
    };
    if (!taps.defined()) return run(static_cast<std::uint8_t*>(nullptr));
    visit_taps(taps, [&]<class Tap>() { run(taps.data<Tap>()); });
  });
}

template <class T>
void pool::max_positive_row(const PoolShape& s, std::int64_t p, const T* image, T* y, std::uint8_t* taps) {
  HEARTH_ISA_CALL_FOR(T, max_row<true>, s, p, image, y, taps);
}

#define HEARTH_INSTANTIATE(T) \
  template void pool::max_positive_row(const PoolShape&, std::int64_t, const T*, T*, std::uint8_t*);
HEARTH_INSTANTIATE(float)
HEARTH_INSTANTIATE(double)
HEARTH_INSTANTIATE(f16)
HEARTH_INSTANTIATE(bf16)
#undef HEARTH_INSTANTIATE

}  // namespace hearth::kernels
#endif
