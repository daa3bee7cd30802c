// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the broadcasting ops and of those of their gradients that are no plain product.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/cpu/vector_math.h"
#include "ops/pointwise/binary_function.h"

namespace hearth::kernels {

/// f.operator()<function>(), for a function known at run time.
template <class F, int... i>
void visit_binary(Binary function, const F& f, std::integer_sequence<int, i...>) {
  ((function == Binary{i} ? f.template operator()<Binary{i}>() : void()), ...);
}
template <class F>
void visit_binary(Binary function, const F& f) {
  visit_binary(function, f, std::make_integer_sequence<int, static_cast<int>(Binary::pow_b) + 1>());
}

namespace detail {
/// The type that whole numbers wrap around in, which signed arithmetic may not.
template <class A>
struct Wrapping {
  using type = A;
};
template <>
struct Wrapping<std::int32_t> {
  using type = std::uint32_t;
};
template <>
struct Wrapping<std::int64_t> {
  using type = std::uint64_t;
};
}  // namespace detail

/// Division, powers and the gradients have no integer form.
template <Binary step, class A>
inline constexpr bool is_defined = std::is_floating_point_v<A> ||
                                   (step != Binary::div && step != Binary::pow && !is_gradient(step));

template <Binary step, class A>
HEARTH_ALWAYS_INLINE A evaluate(A a, A b, [[maybe_unused]] A dy) {
  using W = typename detail::Wrapping<A>::type;
  if constexpr (step == Binary::add) return static_cast<A>(static_cast<W>(a) + static_cast<W>(b));
  if constexpr (step == Binary::sub) return static_cast<A>(static_cast<W>(a) - static_cast<W>(b));
  if constexpr (step == Binary::mul) return static_cast<A>(static_cast<W>(a) * static_cast<W>(b));
  if constexpr (step == Binary::div) return a / b;
  // NaN is the only value that differs from itself.
  if constexpr (step == Binary::maximum) return ((a > b) | (a != a)) ? a : b;
  if constexpr (step == Binary::minimum) return ((a < b) | (a != a)) ? a : b;
  if constexpr (step == Binary::pow) return std::pow(a, b);
  if constexpr (step == Binary::pow_a) return b == A(0) ? A(0) : dy * b * std::pow(a, b - A(1));
  if constexpr (step == Binary::pow_b) return a == A(0) && b >= A(0) ? A(0) : dy * std::pow(a, b) * std::log(a);
  if constexpr (step == Binary::div_b) return -dy * (a / b) / b;
  [[maybe_unused]] const bool only_b_is_nan = (b != b) & (a == a);
  if constexpr (step == Binary::maximum_a) return ((b > a) | only_b_is_nan) ? A(0) : dy;
  if constexpr (step == Binary::maximum_b) return ((b > a) | only_b_is_nan) ? dy : A(0);
  if constexpr (step == Binary::minimum_a) return ((b < a) | only_b_is_nan) ? A(0) : dy;
  if constexpr (step == Binary::minimum_b) return ((b < a) | only_b_is_nan) ? dy : A(0);
}

}  // namespace hearth::kernels
