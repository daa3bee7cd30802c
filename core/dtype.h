// SPDX-License-Identifier: Apache-2.0
// Element types and the visitor that turns a run-time DType into a C++ type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/error.h"
#include "core/half.h"

namespace hearth {

enum class DType : std::uint8_t { f32, f64, f16, bf16, i32, i64, u8, boolean };

/// Bytes of one element.
HEARTH_API std::size_t size_of(DType dtype);
/// "f32", "f64", "f16", "bf16", "i32", "i64", "u8" or "bool".
HEARTH_API const char* name_of(DType dtype);
/// The inverse of name_of; throws DTypeError listing the names.
HEARTH_API DType dtype_named(std::string_view name);
/// f32, f64, f16 or bf16.
HEARTH_API bool is_floating(DType dtype);
HEARTH_API std::ostream& operator<<(std::ostream& out, DType dtype);

template <class... T>
struct Types {};
using Floats = Types<float, double, f16, bf16>;
using FullFloats = Types<float, double>;
using Integers = Types<std::int32_t, std::int64_t>;
using AllTypes = Types<float, double, f16, bf16, std::int32_t, std::int64_t, std::uint8_t, bool>;

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, f16>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, bf16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return DType::i64;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return DType::u8;
  else {
    static_assert(std::is_same_v<T, bool>, "not an element type");
    return DType::boolean;
  }
}

[[noreturn]] HEARTH_API void throw_unsupported(const char* op, DType found, const DType* allowed, std::size_t count);

/// Calls `f.template operator()<T>()` for the T in the list that `dtype` names; the list at the call site documents
/// what the op supports. Throws DTypeError, naming `op`, for any other.
template <class... T, class F>
void visit_dtype(const char* op, DType dtype, Types<T...>, F&& f) {
  const bool found = ((dtype == dtype_of<T>() ? (f.template operator()<T>(), true) : false) || ...);
  if (!found) {
    constexpr DType allowed[] = {dtype_of<T>()...};
    throw_unsupported(op, dtype, allowed, sizeof...(T));
  }
}

}  // namespace hearth
