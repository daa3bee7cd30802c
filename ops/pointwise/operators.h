// SPDX-License-Identifier: Apache-2.0
// + - * / between tensors and numbers, as spelled out in binary.h, and what other operators say.
#pragma once

#include <concepts>

#include "ops/pointwise/binary.h"
#include "ops/pointwise/pointwise.h"

namespace hearth {

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }

inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, double b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, double b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, double b) { return div(a, b); }

inline Tensor operator+(double a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(double a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(double a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(double a, const Tensor& b) { return div(a, b); }

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
