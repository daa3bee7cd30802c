// SPDX-License-Identifier: Apache-2.0
// Elements as unsigned numbers that sort as they do.
#pragma once

#include "core/cuda/kernel.h"

namespace hearth::cuda {

/// Ascends as the element does; all NaN are the largest number and -0 is 0.
__device__ __forceinline__ std::uint64_t ordered(float value) {
  if (value != value) return 0xffffffffu;
  const auto bits = __float_as_uint(value == 0 ? 0.0f : value);
  return (bits >> 31) != 0 ? ~bits & 0xffffffffu : bits | 0x80000000u;
}
__device__ __forceinline__ std::uint64_t ordered(double value) {
  if (value != value) return ~std::uint64_t{0};
  const auto bits = static_cast<std::uint64_t>(__double_as_longlong(value == 0 ? 0.0 : value));
  return (bits >> 63) != 0 ? ~bits : bits | std::uint64_t{1} << 63;
}
__device__ __forceinline__ std::uint64_t ordered(f16 value) { return ordered(upcast(value)); }
__device__ __forceinline__ std::uint64_t ordered(bf16 value) { return ordered(upcast(value)); }
__device__ __forceinline__ std::uint64_t ordered(std::int64_t value) {
  return static_cast<std::uint64_t>(value) ^ std::uint64_t{1} << 63;
}
__device__ __forceinline__ std::uint64_t ordered(std::int32_t value) {
  return static_cast<std::uint32_t>(value) ^ 0x80000000u;
}
__device__ __forceinline__ std::uint64_t ordered(std::uint8_t value) { return value; }
__device__ __forceinline__ std::uint64_t ordered(bool value) { return value ? 1 : 0; }

}  // namespace hearth::cuda
