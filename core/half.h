// SPDX-License-Identifier: Apache-2.0
// 16-bit floating types as plain storage with round-to-nearest-even conversions.
// Arithmetic is done in float; acc_t<T> is the type sums are kept in.
#pragma once

#include <bit>
#include <cstdint>

// Marks functions that kernels call on both sides.
#if defined(__CUDACC__)
#define HEARTH_HD __host__ __device__
#else
#define HEARTH_HD
#endif

namespace hearth {

/// bfloat16: 8 exponent bits, 7 fraction bits.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  HEARTH_HD explicit bf16(float value) : bits(from_float(value)) {}
  HEARTH_HD explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

  HEARTH_HD static std::uint16_t from_float(float value) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    return static_cast<std::uint16_t>(is_nan ? ((u >> 16) | 0x40u) : rounded);
  }
  HEARTH_HD static bf16 from_bits(std::uint16_t bits) {
    bf16 value;
    value.bits = bits;
    return value;
  }
};

/// IEEE binary16: 5 exponent bits, 10 fraction bits; subnormals kept, overflow becomes infinity.
struct f16 {
  std::uint16_t bits = 0;

  f16() = default;
  HEARTH_HD explicit f16(float value) : bits(from_float(value)) {}
  HEARTH_HD explicit operator float() const { return to_float(bits); }

  // Branch-free forms (selects only), so that loops over them vectorise.
  HEARTH_HD static std::uint16_t from_float(float value) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 16) & 0x8000u;
    const std::uint32_t magnitude = u & 0x7fffffffu;
    // Subnormal results: adding 0.5 aligns the fraction so that the hardware rounds it to nearest even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u;
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + odd) >> 13;
    std::uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
    half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // 65520 and above
    half = magnitude > 0x7f800000u ? 0x7e00u : half;   // not a number
    return static_cast<std::uint16_t>(sign | half);
  }
  HEARTH_HD static float to_float(std::uint16_t bits) {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t magnitude = bits & 0x7fffu;
    const std::uint32_t normal = (magnitude << 13) + 0x38000000u;
    const std::uint32_t special = (magnitude << 13) + 0x70000000u;  // infinity and NaN
    // Subnormals: the integer value times 2^-24 is exact.
    const float subnormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f;
    std::uint32_t u = magnitude >= 0x7c00u ? special : normal;
    u = magnitude < 0x400u ? std::bit_cast<std::uint32_t>(subnormal) : u;
    return std::bit_cast<float>(u | sign);
  }
  HEARTH_HD static f16 from_bits(std::uint16_t bits) {
    f16 value;
    value.bits = bits;
    return value;
  }
};

static_assert(sizeof(bf16) == 2 && sizeof(f16) == 2);

namespace detail {
template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<bf16> {
  using type = float;
};
template <>
struct Accumulator<f16> {
  using type = float;
};
}  // namespace detail

/// The type sums over T are kept in: f32 for the 16-bit types, else T itself.
template <class T>
using acc_t = typename detail::Accumulator<T>::type;

}  // namespace hearth
