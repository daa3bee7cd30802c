// SPDX-License-Identifier: Apache-2.0
// Elementary functions as plain branch-free arithmetic, always inlined, so that loops over them vectorise in every
// instruction-set level of a kernel. The f32 forms are polynomials within 2 units in the last position (3 for tanh);
// the f64 forms are the standard library's. Infinities and NaN give what <cmath> gives.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#if defined(__CUDACC__)
#define HEARTH_ALWAYS_INLINE __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define HEARTH_ALWAYS_INLINE [[gnu::always_inline]] inline
#else
#define HEARTH_ALWAYS_INLINE inline
#endif

namespace hearth::cpu::math {
namespace detail {

/// e^x = 2^n (1 + r + r2p), where r + r2p = e^(x - n ln 2) - 1. `x` must lie in about [-110, 110], or be NaN.
struct ExpParts {
  float n;
  std::uint32_t n_bits;  ///< n as a two's complement integer
  float fraction;        ///< r + r2p
};

HEARTH_ALWAYS_INLINE ExpParts split_exp(float x) {
  // Adding 1.5 * 2^23 rounds to an integer, which the low bits of the sum then hold.
  const float shift = 12582912.0f;
  const float shifted = x * 1.44269504f + shift;
  const float n = shifted - shift;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 0.00139505393f;
  p = p * r + 0.00836891774f;
  p = p * r + 0.041666206f;
  p = p * r + 0.166665182f;
  p = p * r + 0.5f;
  return {n, std::bit_cast<std::uint32_t>(shifted) - 0x4b400000u, (p * r) * r + r};
}

/// 2^n for n in [-126, 127].
HEARTH_ALWAYS_INLINE float power_of_two(std::uint32_t n) { return std::bit_cast<float>((n + 127u) << 23); }

}  // namespace detail

HEARTH_ALWAYS_INLINE double exp(double x) { return std::exp(x); }
HEARTH_ALWAYS_INLINE double expm1(double x) { return std::expm1(x); }
HEARTH_ALWAYS_INLINE double log(double x) { return std::log(x); }
HEARTH_ALWAYS_INLINE double tanh(double x) { return std::tanh(x); }
HEARTH_ALWAYS_INLINE double erf(double x) { return std::erf(x); }
HEARTH_ALWAYS_INLINE double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

HEARTH_ALWAYS_INLINE float exp(float x) {
  // The comparisons are false for NaN, which so passes through.
  float clamped = x > 89.0f ? 89.0f : x;
  clamped = clamped < -104.0f ? -104.0f : clamped;
  const detail::ExpParts parts = detail::split_exp(clamped);
  // Two factors, because 2^n itself may be infinite or subnormal where the result is not.
  const std::uint32_t half = static_cast<std::uint32_t>(static_cast<std::int32_t>(parts.n_bits) >> 1);
  const float scale = detail::power_of_two(half);
  return (parts.fraction * scale + scale) * detail::power_of_two(parts.n_bits - half);
}

HEARTH_ALWAYS_INLINE double exp_of_negative(double x) { return std::exp(x); }
/// e^x for x <= 0, or NaN. 0 where f32 would be subnormal.
HEARTH_ALWAYS_INLINE float exp_of_negative(float x) {
  const detail::ExpParts parts = detail::split_exp(x);
  const float power = detail::power_of_two(parts.n_bits);
  return x < -87.0f ? 0.0f : parts.fraction * power + power;
}

/// e^x - 1, exact near 0. -1 below -17, infinity above 88.
HEARTH_ALWAYS_INLINE float expm1(float x) {
  float clamped = x > 89.0f ? 89.0f : x;
  clamped = clamped < -20.0f ? -20.0f : clamped;
  const detail::ExpParts parts = detail::split_exp(clamped);
  // Halved, because 2^128 does not exist.
  const float scale = detail::power_of_two(parts.n_bits - 1u);
  return (parts.fraction * scale + (scale - 0.5f)) * 2.0f;
}

HEARTH_ALWAYS_INLINE float log(float x) {
  const bool subnormal = x < std::numeric_limits<float>::min();
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(subnormal ? x * 8388608.0f : x);
  // x = m 2^e with m in [sqrt(1/2), sqrt(2)).
  const std::uint32_t offset = bits - 0x3f3504f3u;
  const std::int32_t exponent = static_cast<std::int32_t>(offset) >> 23;
  const float e = static_cast<float>(exponent - (subnormal ? 23 : 0));
  const float f = std::bit_cast<float>((offset & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  float p = 0.06915126f;
  p = p * f - 0.117917687f;
  p = p * f + 0.118740901f;
  p = p * f - 0.123841092f;
  p = p * f + 0.142184883f;
  p = p * f - 0.166692585f;
  p = p * f + 0.20002234f;
  p = p * f - 0.249999866f;
  p = p * f + 0.333333105f;
  const float square = f * f;
  const float tail = square * (p * f) - e * 2.12194440e-4f;
  float y = (tail - 0.5f * square + f) + e * 0.693359375f;
  y = x == 0.0f ? -std::numeric_limits<float>::infinity() : y;
  y = x < 0.0f ? std::numeric_limits<float>::quiet_NaN() : y;
  // Infinity and NaN stay what they are.
  return x < std::numeric_limits<float>::infinity() ? y : x;
}

HEARTH_ALWAYS_INLINE float tanh(float x) {
  // e^2x - 1 over e^2x + 1; beyond 10 the result is 1 to the last bit.
  const float magnitude = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffu);
  const float doubled = magnitude > 10.0f ? 20.0f : magnitude * 2.0f;
  const detail::ExpParts parts = detail::split_exp(doubled);
  const float scale = detail::power_of_two(parts.n_bits);
  const float numerator = parts.fraction * scale + (scale - 1.0f);
  const float y = numerator / (numerator + 2.0f);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(y) | (std::bit_cast<std::uint32_t>(x) & 0x80000000u));
}

HEARTH_ALWAYS_INLINE float erf(float x) {
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(x) & 0x80000000u;
  const float magnitude = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffu);
  const float z = x * x;
  float small = 7.85385419e-05f;
  small = small * z - 0.000801019138f;
  small = small * z + 0.00518832728f;
  small = small * z - 0.026853811f;
  small = small * z + 0.112835854f;
  small = small * z - 0.37612626f;
  small = small * z + 0.128379166f;
  // Past 1: 1 - e^q(|x|), where q approximates log erfc; from 4 on the result is 1 to the last bit.
  const float t = magnitude > 4.0f ? 4.0f : magnitude;
  float q = -2.14455631e-05f;
  q = q * t + 0.000438529911f;
  q = q * t - 0.00419085566f;
  q = q * t + 0.0251718089f;
  q = q * t - 0.10836155f;
  q = q * t - 0.633272409f;
  q = q * t - 1.12955201f;
  q = q * t + 0.000182460091f;
  const detail::ExpParts parts = detail::split_exp(q);
  const float scale = detail::power_of_two(parts.n_bits);
  const float large = (1.0f - scale) - parts.fraction * scale;
  const float signed_large = std::bit_cast<float>(std::bit_cast<std::uint32_t>(large) | sign);
  return magnitude < 1.0f ? small * x + x : signed_large;
}

/// 1 / (1 + e^-x).
HEARTH_ALWAYS_INLINE float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

}  // namespace hearth::cpu::math
