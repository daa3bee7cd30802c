// SPDX-License-Identifier: Apache-2.0
// The gradient of max pooling on the CPU, vectorised over channels and gathered: each pixel of dx looks up the windows
// that hold it and is written once, so pieces of work never meet and sums are f32 (f64 for f64) throughout. Reference:
// max_pool_cpu.cpp.
#include <algorithm>
#include <cstdint>

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

#define HEARTH_ISA_SOURCE "ops/pool/max_pool_grad_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

#include "core/cpu/lanes.inc"

/// A window over a pixel: its results' kept positions and gradients, and the position that the pixel has in it.
template <class T, class Tap>
struct WindowOver {
  const Tap* chosen;
  const T* gradient;
  Tap tap;
};

/// Of a vector of channels those values whose kept position is `tap`, zeros for the others.
template <class Index, class Vector, class Tap>
HEARTH_ALWAYS_INLINE Vector passed_by(const Tap* chosen, Tap tap, Vector values) {
#if HEARTH_ISA_VECTOR_BYTES == 64
  if constexpr (sizeof(Tap) == 1 && sizeof(Index) == 4) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(chosen));
    const __mmask16 equal = _mm_cmpeq_epi8_mask(bytes, _mm_set1_epi8(static_cast<char>(tap)));
    return reinterpret_cast<Vector>(_mm512_maskz_mov_ps(equal, reinterpret_cast<__m512>(values)));
  }
#elif HEARTH_ISA_VECTOR_BYTES == 32
  if constexpr (sizeof(Tap) == 1 && sizeof(Index) == 4) {
    const __m256i taps = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(chosen)));
    const __m256i equal = _mm256_cmpeq_epi32(taps, _mm256_set1_epi32(tap));
    return reinterpret_cast<Vector>(_mm256_and_si256(equal, reinterpret_cast<__m256i>(values)));
  }
#endif
  typedef Tap Narrow __attribute__((vector_size(sizeof(Tap) * Lanes<Index>::count)));
  Narrow taps;
  std::memcpy(&taps, chosen, sizeof(taps));
  const auto equal = __builtin_convertvector(taps, typename Lanes<Index>::Vector) == static_cast<Index>(tap);
  return equal ? values : Vector{};
}

/// Of two vectors of bf16, as they lie in memory, those values whose kept position is `tap`, zeros for the others.
HEARTH_ALWAYS_INLINE Lanes<std::uint32_t>::Vector pairs_passed_by(const std::uint8_t* chosen, std::uint8_t tap,
                                                                  const bf16* values) {
  using Words = Lanes<std::uint32_t>::Vector;
#if HEARTH_ISA_VECTOR_BYTES == 64
  const __m256i taps = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(chosen));
  const __mmask32 equal = _mm256_cmpeq_epi8_mask(taps, _mm256_set1_epi8(static_cast<char>(tap)));
  return reinterpret_cast<Words>(_mm512_maskz_loadu_epi16(equal, values));
#elif HEARTH_ISA_VECTOR_BYTES == 32
  const __m128i taps = _mm_loadu_si128(reinterpret_cast<const __m128i*>(chosen));
  const __m256i equal = _mm256_cvtepi8_epi16(_mm_cmpeq_epi8(taps, _mm_set1_epi8(static_cast<char>(tap))));
  return reinterpret_cast<Words>(_mm256_and_si256(equal, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values))));
#else
  constexpr std::size_t count = sizeof(Words) / 2;
  std::uint16_t passed[count];
  for (std::size_t i = 0; i < count; ++i) passed[i] = chosen[i] == tap ? values[i].bits : std::uint16_t{};
  Words words;
  std::memcpy(&words, passed, sizeof(words));
  return words;
#endif
}

/// dx [channels] = what `count` windows pass on; the number is known to the compiler, so that sums stay in registers.
template <int count, class T, class Tap>
void add_windows(const WindowOver<T, Tap>* windows, std::int64_t channels, T* dx) {
  using A = acc_t<T>;
  using Index = std::conditional_t<sizeof(A) == 8, std::int64_t, std::int32_t>;
  using Vector = typename Lanes<A>::Vector;
  constexpr std::int64_t lanes = Lanes<A>::count;
  WindowOver<T, Tap> w[count];
  for (int i = 0; i < count; ++i) w[i] = windows[i];
  std::int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) {
    Vector sum{};
#pragma GCC unroll 4
    for (int i = 0; i < count; ++i) {
      const Vector passed = passed_by<Index>(w[i].chosen + c, w[i].tap, load_lanes(w[i].gradient + c));
      sum = i == 0 ? passed : sum + passed;
    }
    store_lanes(dx + c, sum);
  }
  for (; c < channels; ++c) {
    A sum = 0;
    for (int i = 0; i < count; ++i) {
      const A passed = w[i].chosen[c] == w[i].tap ? cpu::load(w[i].gradient + c) : A(0);
      sum = i == 0 ? passed : sum + passed;
    }
    cpu::store(dx + c, sum);
  }
}

/// f(window) for the windows over pixel (row, x): those of `ps` and `qs`.
template <class T, class Tap, class F>
void visit_windows(const PoolShape& s, std::int64_t row, std::int64_t x, const Range& ps, const Range& qs,
                   const Tap* taps, const T* dy, F&& f) {
  for (std::int64_t p = ps.first; p < ps.last; ++p) {
    for (std::int64_t q = qs.first; q < qs.last; ++q) {
      const std::int64_t at = (p * s.q + q) * s.c;
      const std::int64_t tap_row = row + s.pad_h - p * s.stride_h, tap_column = x + s.pad_w - q * s.stride_w;
      f(WindowOver<T, Tap>{taps + at, dy + at, static_cast<Tap>(tap_row * s.kernel_w + tap_column)});
    }
  }
}

/// dx [C] of pixel (row, x) under any number of windows.
template <class T, class Tap>
void add_many_windows(const PoolShape& s, std::int64_t row, std::int64_t x, const Range& ps, const Range& qs,
                      const Tap* taps, const T* dy, T* dx) {
  using A = acc_t<T>;
  for (std::int64_t c0 = 0; c0 < s.c; c0 += channel_block) {
    const std::int64_t width = std::min(channel_block, s.c - c0);
    alignas(64) A sum[channel_block];
    for (std::int64_t c = 0; c < width; ++c) sum[c] = A(0);
    visit_windows(s, row, x, ps, qs, taps + c0, dy + c0, [&](const WindowOver<T, Tap>& window) {
      const Tap* chosen = window.chosen;
      const T* gradient = window.gradient;
      const Tap tap = window.tap;
#pragma omp simd
      for (std::int64_t c = 0; c < width; ++c) sum[c] += chosen[c] == tap ? cpu::load(gradient + c) : A(0);
    });
    T* result = dx + c0;
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) cpu::store(result + c, sum[c]);
  }
}

/// Row `row` of dx of one image; `columns` [W] are the columns of windows over each pixel.
template <class T, class Tap>
void max_grad_row(const PoolShape& s, std::int64_t row, const Range* columns, const Tap* taps, const T* dy, T* dx) {
  const Range ps = windows_over(row, s.stride_h, s.pad_h, s.kernel_h, s.p);
  for (std::int64_t x = 0; x < s.w; ++x, dx += s.c) {
    WindowOver<T, Tap> windows[4];
    int count = 0;
    visit_windows(s, row, x, ps, columns[x], taps, dy, [&](const WindowOver<T, Tap>& window) {
      if (count < 4) windows[count] = window;
      ++count;
    });
    switch (count) {
      case 0:
        std::fill_n(dx, s.c, T{});
        break;
      case 1:
        add_windows<1>(windows, s.c, dx);
        break;
      case 2:
        add_windows<2>(windows, s.c, dx);
        break;
      case 3:
        add_windows<3>(windows, s.c, dx);
        break;
      case 4:
        add_windows<4>(windows, s.c, dx);
        break;
      default:
        add_many_windows(s, row, x, ps, columns[x], taps, dy, dx);
        break;
    }
  }
}

/// A vector of T's sums of channels, of bf16 a pair: what windows pass on.
template <class T>
struct PassedOn {
  typename Lanes<acc_t<T>>::Vector sum{};
  static constexpr std::int64_t channels = Lanes<acc_t<T>>::count;

  HEARTH_ALWAYS_INLINE void add(const WindowOver<T, std::uint8_t>& window, std::int64_t c, int tap) {
    using Index = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
    sum += passed_by<Index>(window.chosen + c, static_cast<std::uint8_t>(window.tap | tap),
                            load_lanes(window.gradient + c));
  }
  HEARTH_ALWAYS_INLINE void store(T* into) const { store_lanes(into, sum); }
};

template <>
struct PassedOn<bf16> {
  Lanes<float>::Vector even{}, odd{};
  static constexpr std::int64_t channels = 2 * Lanes<float>::count;

  HEARTH_ALWAYS_INLINE void add(const WindowOver<bf16, std::uint8_t>& window, std::int64_t c, int tap) {
    const auto words =
        pairs_passed_by(window.chosen + c, static_cast<std::uint8_t>(window.tap | tap), window.gradient + c);
    even += reinterpret_cast<Lanes<float>::Vector>(words << 16);
    odd += reinterpret_cast<Lanes<float>::Vector>(words & 0xffff0000u);
  }
  HEARTH_ALWAYS_INLINE void store(bf16* into) const {
    const auto words = rounded_to_bf16(even) >> 16 | (rounded_to_bf16(odd) & 0xffff0000u);
    std::memcpy(static_cast<void*>(into), &words, sizeof(words));
  }
};

/// Rows 2p and, if `both`, 2p + 1 of dx of one image under windows of 3x3, two apart, with padding 1, for channels in
/// multiples of 32. Squares of four pixels lie under four windows, whose taps and gradients are read once.
template <class T>
void stem_grad_rows(const PoolShape& s, std::int64_t p, bool both, const std::uint8_t* taps, const T* dy, T* dx) {
  using Sum = PassedOn<T>;
  constexpr std::uint8_t nowhere = 0xf0;  // a tap that no window has
  for (std::int64_t q = 0; q < s.q; ++q, dx += 2 * s.c) {
    const auto window = [&](std::int64_t down, std::int64_t across) {
      const bool is = p + down < s.p && q + across < s.q;
      const std::int64_t at = ((p + (is ? down : 0)) * s.q + q + (is ? across : 0)) * s.c;
      return WindowOver<T, std::uint8_t>{taps + at, dy + at, is ? std::uint8_t{} : nowhere};
    };
    const WindowOver<T, std::uint8_t> w[2][2] = {{window(0, 0), window(0, 1)}, {window(1, 0), window(1, 1)}};
    const bool right = 2 * q + 1 < s.w;
    T* const below = dx + s.w * s.c;
    const std::int64_t next = s.q * s.c;  // the windows of the next rows are asked for
    for (std::int64_t c = 0; c < s.c; c += Sum::channels) {
      __builtin_prefetch(w[1][0].chosen + next + c);
      __builtin_prefetch(w[1][0].gradient + next + c);
      Sum sums[4];
      sums[0].add(w[0][0], c, 4);
      sums[1].add(w[0][0], c, 5);
      sums[1].add(w[0][1], c, 3);
      sums[2].add(w[0][0], c, 7);
      sums[2].add(w[1][0], c, 1);
      sums[3].add(w[0][0], c, 8);
      sums[3].add(w[0][1], c, 6);
      sums[3].add(w[1][0], c, 2);
      sums[3].add(w[1][1], c, 0);
      sums[0].store(dx + c);
      if (right) sums[1].store(dx + s.c + c);
      if (both) sums[2].store(below + c);
      if (both && right) sums[3].store(below + s.c + c);
    }
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else

namespace hearth::kernels {
namespace {

/// Windows as those of a residual network's stem.
bool is_stem(const PoolShape& s) {
  return s.kernel_h == 3 && s.kernel_w == 3 && s.stride_h == 2 && s.stride_w == 2 && s.pad_h == 1 && s.pad_w == 1 &&
         s.c % 32 == 0;
}

/// Some rows of dx of an image.
template <class T, class Tap>
void grad_rows(const PoolShape& s, const Range& rows, const Range* columns, const Tap* taps, const T* dy, T* dx) {
  const std::int64_t row_size = s.w * s.c;
  if constexpr (sizeof(Tap) == 1) {
    if (is_stem(s) && rows.first % 2 == 0) {
      for (std::int64_t row = rows.first; row < rows.last; row += 2, dx += 2 * row_size)
        HEARTH_ISA_CALL_FOR(T, stem_grad_rows, s, row / 2, row + 1 < rows.last, taps, dy, dx);
      return;
    }
  }
  for (std::int64_t row = rows.first; row < rows.last; ++row, dx += row_size)
    HEARTH_ISA_CALL_FOR(T, max_grad_row, s, row, columns, taps, dy, dx);
}

}  // namespace

void max_pool2d_grad(cpu::Stream&, const PoolShape& s, const Tensor& taps, const Tensor& dy, const Tensor& dx) {
  if (dx.size() == 0) return;
  cpu::Scratch scratch;
  Range* const columns = scratch.take<Range>(s.w);
  fill_columns(s, columns);
  visit_dtype("max_pool2d", dy.dtype(), Floats{}, [&]<class T>() {
    visit_taps(taps, [&]<class Tap>() {
      const T* gradient = dy.data<T>();
      const Tap* chosen = taps.data<Tap>();
      T* into = dx.data<T>();
      const std::int64_t pairs = (s.h + 1) / 2;
      each_row(s.n, pairs, 2 * s.w * s.c, [&](std::int64_t n, std::int64_t pair) {
        const Range rows{2 * pair, std::min(2 * pair + 2, s.h)};
        const std::int64_t at = n * s.p * s.q * s.c;
        grad_rows(s, rows, columns, chosen + at, gradient + at, into + (n * s.h + rows.first) * s.w * s.c);
      });
    });
  });
}

template <class T>
void pool::max_grad_rows(const PoolShape& s, const Range& rows, const Range* columns, const std::uint8_t* taps,
                         const T* dy, T* dx) {
  grad_rows(s, rows, columns, taps, dy, dx);
}

#define HEARTH_INSTANTIATE(T) \
  template void pool::max_grad_rows(const PoolShape&, const Range&, const Range*, const std::uint8_t*, const T*, T*);
HEARTH_INSTANTIATE(float)
HEARTH_INSTANTIATE(double)
HEARTH_INSTANTIATE(f16)
HEARTH_INSTANTIATE(bf16)
#undef HEARTH_INSTANTIATE

}  // namespace hearth::kernels
#endif
