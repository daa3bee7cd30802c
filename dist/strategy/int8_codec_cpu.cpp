// SPDX-License-Identifier: Apache-2.0
// Multiples of a block's scale, rounded at random. Code: f32 scale, then a signed byte for each element, and zeros up
// to a multiple of 4 bytes. Traffic: x stays in the first cache.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/cpu/philox_lanes.h"
#include "dist/strategy/quantized.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "dist/strategy/int8_codec_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::dist::HEARTH_ISA_NAMESPACE {

template <class T>
void encode_int8(T* x, std::int64_t n, std::byte* code, bool remains, const Draw& draw) {
  // By the bits, as a comparison of numbers would pass over NaN.
  std::int32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) {
    std::int32_t bits;
    std::memcpy(&bits, x + i, sizeof(bits));
    bits &= 0x7FFFFFFF;
    largest = bits > largest ? bits : largest;
  }
  T magnitude;
  std::memcpy(&magnitude, &largest, sizeof(largest));
  const bool is_finite = largest < 0x7F800000;
  // Smaller ones have no scale in f32 of full precision.
  const bool is_zero = magnitude < T(127) * std::numeric_limits<T>::min();
  const T scale = !is_finite ? std::numeric_limits<T>::quiet_NaN() : is_zero ? T(0) : magnitude / T(127);
  const T inverse = is_finite && !is_zero ? T(127) / magnitude : T(0);
  std::memcpy(code, &scale, sizeof(scale));
  auto* const bytes = reinterpret_cast<std::int8_t*>(code + sizeof(scale));
  if (inverse == 0) {
    std::memset(bytes, 0, static_cast<std::size_t>((n + 3) / 4 * 4));
    if (remains)
      for (std::int64_t i = 0; i < n; ++i) x[i] -= scale * T(0);
    return;
  }
  constexpr int lanes = 32, elements = 8 * lanes;
  for (std::int64_t begin = 0; begin < n; begin += elements) {
    // Element i of these has a half of a word, 16 bits.
    alignas(64) std::uint32_t words[4][lanes];
    const auto block = static_cast<std::uint32_t>((draw.first + begin) / 8);
    for (std::uint32_t l = 0; l < lanes; ++l) {
      words[0][l] = block + l;
      words[1][l] = draw.stream;
      words[2][l] = static_cast<std::uint32_t>(draw.update);
      words[3][l] = static_cast<std::uint32_t>(draw.update >> 32);
    }
    hearth::kernels::philox_lanes(words, draw.seed);
    const std::int64_t count = n - begin < elements ? n - begin : elements;
    for (int part = 0; part < 8; ++part) {
      const std::int64_t first = part * lanes, some = count - first < lanes ? count - first : lanes;
      const std::uint32_t* const word = words[part / 2];
      const int shift = part % 2 * 16;
      T* const at = x + begin + first;
      std::int8_t* const to = bytes + begin + first;
#pragma omp simd
      for (std::int64_t i = 0; i < some; ++i) {
        const auto sixteen = static_cast<std::int32_t>(word[i] >> shift & 0xFFFFU);
        // Below 256 a sum with a multiple of 2^-16 is one, so that a multiple of the scale stays what it is.
        const T moved = at[i] * inverse + static_cast<T>(sixteen) * T(0x1p-16);
        const auto down = static_cast<std::int32_t>(moved + T(128)) - 128;
        const std::int32_t bounded = down > 127 ? 127 : down < -127 ? -127 : down;
        to[i] = static_cast<std::int8_t>(bounded);
        if (remains) at[i] -= scale * static_cast<T>(bounded);
      }
    }
  }
  for (std::int64_t i = n; i % 4 != 0; ++i) bytes[i] = 0;
}

template <bool add>
void decode_int8(const std::byte* code, std::int64_t n, float* y) {
  float scale;
  std::memcpy(&scale, code, sizeof(scale));
  const auto* const bytes = reinterpret_cast<const std::int8_t*>(code + sizeof(scale));
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float value = scale * static_cast<float>(bytes[i]);
    y[i] = add ? y[i] + value : value;
  }
}

}  // namespace hearth::dist::HEARTH_ISA_NAMESPACE
#else
namespace hearth::dist {
namespace {

class Int8Codec final : public Codec {
 public:
  const char* name() const override { return "int8"; }
  std::int64_t bytes(std::int64_t n) const override { return 4 + (n + 3) / 4 * 4; }
  void encode(float* x, std::int64_t n, std::byte* code, bool remains, const Draw& draw) const override {
    HEARTH_ISA_CALL(encode_int8<float>, x, n, code, remains, draw);
  }
  void decode(const std::byte* code, std::int64_t n, float* y, bool add) const override {
    if (add)
      HEARTH_ISA_CALL(decode_int8<true>, code, n, y);
    else
      HEARTH_ISA_CALL(decode_int8<false>, code, n, y);
  }
};

}  // namespace

std::unique_ptr<Codec> int8_codec() { return std::make_unique<Int8Codec>(); }

}  // namespace hearth::dist
#endif
