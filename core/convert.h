// SPDX-License-Identifier: Apache-2.0
// Conversion of elements between types, and strided copies.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "hearth/core/dtype.h"
#include "hearth/core/shape.h"

namespace hearth {

/// One element converted: to floats rounded to nearest even, to integers truncated and saturated (not-a-number gives
/// 0), to bool by comparison with zero.
template <class To, class From>
To convert_element(From value) {
  if constexpr (std::is_same_v<To, From>)
    return value;
  else if constexpr (std::is_same_v<From, f16> || std::is_same_v<From, bf16>)
    return convert_element<To>(static_cast<float>(value));
  else if constexpr (std::is_same_v<To, f16> || std::is_same_v<To, bf16>)
    return To(static_cast<float>(value));
  else if constexpr (std::is_same_v<To, bool>)
    return value != From(0);
  else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr From low = static_cast<From>(std::numeric_limits<To>::min());
    constexpr From high = static_cast<From>(std::numeric_limits<To>::max());
    if (std::isnan(value)) return 0;
    if (value <= low) return std::numeric_limits<To>::min();
    if (value >= high) return std::numeric_limits<To>::max();
    return static_cast<To>(value);
  } else
    return static_cast<To>(value);
}

/// Converts n contiguous elements, in parallel.
void convert(DType from, const std::byte* source, DType to, std::byte* destination, std::int64_t n);

/// One side of a strided copy; strides in elements.
struct StridedBytes {
  std::byte* bytes;
  DType dtype;
  Strides strides;
};
void copy_strided(const StridedBytes& source, const StridedBytes& destination, const Shape& shape);

}  // namespace hearth
