// SPDX-License-Identifier: Apache-2.0
// + - * / between tensors and numbers, as spelled out in binary.h, and what other operators say.
#pragma once

#include <concepts>
#include <type_traits>

#include "ops/pointwise/binary.h"
#include "ops/pointwise/pointwise.h"

namespace hearth {

// Numbers by templates: an exact match, which no operator of C++ itself on two numbers can contend with.
#define HEARTH_OPERATOR(symbol, of_tensors, of_number_first)                                   \
  inline Tensor operator symbol(const Tensor& a, const Tensor& b) { return of_tensors(a, b); } \
  template <class N>                                                                           \
  requires std::is_arithmetic_v<N> Tensor operator symbol(const Tensor& a, N b) {              \
    return of_tensors(a, static_cast<double>(b));                                              \
  }                                                                                            \
  template <class N>                                                                           \
  requires std::is_arithmetic_v<N> Tensor operator symbol(N number, const Tensor& b) {         \
    const auto a = static_cast<double>(number);                                                \
    return of_number_first;                                                                    \
  }
HEARTH_OPERATOR(+, add, add(b, a))
HEARTH_OPERATOR(-, sub, sub(a, b))
HEARTH_OPERATOR(*, mul, mul(b, a))
HEARTH_OPERATOR(/, div, div(a, b))
#undef HEARTH_OPERATOR

inline Tensor operator-(const Tensor& x) { return neg(x); }

namespace detail {
/// Writes the elements of `value`, broadcast to its shape and converted to its type, into `to`. Not recorded:
/// UsageError, which begins with `what`, where one of both needs a gradient, unless NoGrad is on.
HEARTH_API void write_in_place(const char* what, const Tensor& to, const Tensor& value);
}  // namespace detail

// In place, for updates by hand within NoGrad: w -= lr * w.grad(). UsageError where the tape would miss the write.
#define HEARTH_IN_PLACE_OPERATOR(symbol)                                      \
  inline const Tensor& operator symbol##=(const Tensor& a, const Tensor& b) { \
    detail::write_in_place("a " #symbol "= b", a, a symbol b);                \
    return a;                                                                 \
  }                                                                           \
  inline const Tensor& operator symbol##=(const Tensor& a, double b) {        \
    detail::write_in_place("a " #symbol "= b", a, a symbol b);                \
    return a;                                                                 \
  }
HEARTH_IN_PLACE_OPERATOR(+)
HEARTH_IN_PLACE_OPERATOR(-)
HEARTH_IN_PLACE_OPERATOR(*)
HEARTH_IN_PLACE_OPERATOR(/)
#undef HEARTH_IN_PLACE_OPERATOR

template <class A, class B>
concept ComparesTensors = std::same_as<A, Tensor> || std::same_as<B, Tensor>;

// A tensor in an `if` says whether it is defined, so that `if (loss < best)` would always be taken. They do not
// compile.
#define HEARTH_NO_COMPARISON(symbol, name)                                            \
  template <class A, class B>                                                         \
  requires ComparesTensors<A, B>                                                      \
  void operator symbol(const A&, const B&) {                                          \
    static_assert(sizeof(A) == 0, "tensors are compared element by element by " #name \
                                  "(a, b), which gives a bool "                       \
                                  "tensor; two numbers by a.item() and b.item()");    \
  }
HEARTH_NO_COMPARISON(==, equal)
HEARTH_NO_COMPARISON(!=, not_equal)
HEARTH_NO_COMPARISON(<, less)
HEARTH_NO_COMPARISON(<=, less_equal)
HEARTH_NO_COMPARISON(>, greater)
HEARTH_NO_COMPARISON(>=, greater_equal)
#undef HEARTH_NO_COMPARISON

}  // namespace hearth
