// SPDX-License-Identifier: Apache-2.0
// The signs of a block, and two scales. Code: f32 mean of what is not negative, f32 mean of what is, then words of 64
// bits, the bit of element i at i % 64 of word i / 64, set where it is negative. Traffic: x stays in the first cache.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dist/strategy/quantized.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "dist/strategy/sign_codec_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::dist::HEARTH_ISA_NAMESPACE {

// A template, so that each ISA level has its own.
template <class T>
void encode_signs(T* x, std::int64_t n, std::byte* code, bool remains) {
  T positive = 0, negative = 0;
  std::int32_t negatives = 0;
#pragma omp simd reduction(+ : positive, negative, negatives)
  for (std::int64_t i = 0; i < n; ++i) {
    const bool is_negative = x[i] < 0;  // NaN is not, so that a mean is NaN
    positive += is_negative ? T(0) : x[i];
    negative += is_negative ? x[i] : T(0);
    negatives += is_negative ? 1 : 0;
  }
  const auto positives = static_cast<T>(n - negatives);
  const T scales[2] = {positives > 0 ? positive / positives : T(0),
                       negatives > 0 ? negative / static_cast<T>(negatives) : T(0)};
  std::memcpy(code, scales, sizeof(scales));
  std::byte* words = code + sizeof(scales);
  for (std::int64_t begin = 0; begin < n; begin += 64) {
    alignas(64) std::uint8_t bits[64] = {};
    const std::int64_t count = n - begin < 64 ? n - begin : 64;
    const T* const at = x + begin;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) bits[i] = at[i] < 0 ? 1 : 0;
    std::uint64_t word = 0;
    for (int i = 0; i < 8; ++i) {
      std::uint64_t eight;
      std::memcpy(&eight, bits + 8 * i, 8);
      // The product has byte k's bit at 56 + k.
      word |= (eight * 0x0102040810204080U) >> 56 << (8 * i);
    }
    std::memcpy(words, &word, 8);
    words += 8;
  }
  if (!remains) return;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) x[i] -= x[i] < 0 ? scales[1] : scales[0];
}

template <bool add>
void decode_signs(const std::byte* code, std::int64_t n, float* y) {
  float scales[2];
  std::memcpy(scales, code, sizeof(scales));
  const float positive = scales[0], negative = scales[1];
  alignas(64) std::uint32_t masks[32];
  for (std::uint32_t i = 0; i < 32; ++i) masks[i] = 1U << i;
  const std::byte* words = code + sizeof(scales);
  std::int64_t begin = 0;
  for (; begin + 32 <= n; begin += 32) {
    std::uint32_t word;
    std::memcpy(&word, words + begin / 8, 4);
    float* const at = y + begin;
#pragma omp simd
    for (int i = 0; i < 32; ++i) {
      const float value = (word & masks[i]) != 0 ? negative : positive;
      at[i] = add ? at[i] + value : value;
    }
  }
  for (; begin < n; ++begin) {
    const bool is_negative = (std::to_integer<unsigned>(words[begin / 8]) >> (begin % 8) & 1U) != 0;
    const float value = is_negative ? negative : positive;
    y[begin] = add ? y[begin] + value : value;
  }
}

}  // namespace hearth::dist::HEARTH_ISA_NAMESPACE
#else
namespace hearth::dist {
namespace {

class SignCodec final : public Codec {
 public:
  const char* name() const override { return "onebit"; }
  std::int64_t bytes(std::int64_t n) const override { return 8 + (n + 63) / 64 * 8; }
  void encode(float* x, std::int64_t n, std::byte* code, bool remains, const Draw&) const override {
    HEARTH_ISA_CALL(encode_signs<float>, x, n, code, remains);
  }
  void decode(const std::byte* code, std::int64_t n, float* y, bool add) const override {
    if (add)
      HEARTH_ISA_CALL(decode_signs<true>, code, n, y);
    else
      HEARTH_ISA_CALL(decode_signs<false>, code, n, y);
  }
};

}  // namespace

std::unique_ptr<Codec> sign_codec() { return std::make_unique<SignCodec>(); }

}  // namespace hearth::dist
#endif
