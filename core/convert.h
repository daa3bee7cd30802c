// SPDX-License-Identifier: Apache-2.0
// Filling, conversion of elements between types, and strided copies, on every device.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/dtype.h"
#include "core/shape.h"

namespace hearth {

/// The f32 that rounds to a 16-bit type as `value` itself does: cut off, with the last bit set where something was lost
/// ("round to odd", Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums"). Rounded to nearest it
/// could come to lie halfway between two low-precision numbers, and the second rounding would go the wrong way.
HEARTH_HD inline float cut_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double found = nearest < 0 ? -static_cast<double>(nearest) : static_cast<double>(nearest);
  const double wanted = value < 0 ? -value : value;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  // Magnitudes are ordered as their bits are. An odd one beside the value is what is looked for already.
  const std::uint32_t step = static_cast<std::uint32_t>(found < wanted) - static_cast<std::uint32_t>(found > wanted);
  return std::bit_cast<float>((bits & 1u) != 0 ? bits : bits + step);
}

/// One element converted: to floats rounded to nearest even (between floats once), to integers truncated and saturated
/// (NaN gives 0), to bool by comparison with zero.
template <class To, class From>
HEARTH_HD To convert_element(From value) {
  if constexpr (std::is_same_v<To, From>)
    return value;
  else if constexpr (std::is_same_v<From, f16> || std::is_same_v<From, bf16>)
    return convert_element<To>(static_cast<float>(value));
  else if constexpr (std::is_same_v<From, double> && (std::is_same_v<To, f16> || std::is_same_v<To, bf16>))
    return To(cut_to_odd(value));
  else if constexpr (std::is_same_v<To, f16> || std::is_same_v<To, bf16>)
    return To(static_cast<float>(value));
  else if constexpr (std::is_same_v<To, bool>)
    return value != From(0);
  else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr From low = static_cast<From>(std::numeric_limits<To>::min());
    constexpr From high = static_cast<From>(std::numeric_limits<To>::max());
    if (value != value) return 0;
    if (value <= low) return std::numeric_limits<To>::min();
    if (value >= high) return std::numeric_limits<To>::max();
    return static_cast<To>(value);
  } else if constexpr (std::is_integral_v<From> && std::is_integral_v<To> && sizeof(To) < sizeof(From)) {
    constexpr From low = static_cast<From>(std::numeric_limits<To>::min());
    constexpr From high = static_cast<From>(std::numeric_limits<To>::max());
    return static_cast<To>(value < low ? low : value > high ? high : value);
  } else
    return static_cast<To>(value);
}

/// One side of a strided copy; strides in elements.
struct StridedBytes {
  std::byte* bytes;
  DType dtype;
  Strides strides;
};

namespace kernels {

/// y[i] = value, rounded to the type, for n contiguous elements.
void fill(cpu::Stream&, DType dtype, std::byte* y, std::int64_t n, double value);
void fill(cuda::Stream&, DType dtype, std::byte* y, std::int64_t n, double value);

/// Converts n contiguous elements.
void convert(cpu::Stream&, DType from, const std::byte* source, DType to, std::byte* destination, std::int64_t n);
void convert(cuda::Stream&, DType from, const std::byte* source, DType to, std::byte* destination, std::int64_t n);

/// Copies element by element, converting where the types differ.
void copy_strided(cpu::Stream&, const StridedBytes& source, const StridedBytes& destination, const Shape& shape);
/// The types must be the same.
void copy_strided(cuda::Stream&, const StridedBytes& source, const StridedBytes& destination, const Shape& shape);

}  // namespace kernels
}  // namespace hearth
