// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/binary.h"

#include <cmath>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/reduce/broadcast_sum.h"

namespace hearth {
namespace {

using kernels::Binary;

/// Which operand a gradient is for.
enum class Side { a, b };

/// dy * df/d(side) as one function, where that is no plain product.
constexpr Binary gradient_of(Binary function, Side side) {
  if (function == Binary::div) return Binary::div_b;
  if (function == Binary::pow) return side == Side::a ? Binary::pow_a : Binary::pow_b;
  if (function == Binary::maximum) return side == Side::a ? Binary::maximum_a : Binary::maximum_b;
  return side == Side::a ? Binary::minimum_a : Binary::minimum_b;
}

/// Defined for floating types only.
constexpr bool is_real(Binary function) { return function == Binary::div || function == Binary::pow; }

constexpr bool slope_needs_operands(Binary function) { return function != Binary::add && function != Binary::sub; }

void require_arithmetic(const char* op, const Tensor& x, bool real) {
  const bool whole = x.dtype() == DType::i32 || x.dtype() == DType::i64;
  HEARTH_CHECK(DTypeError, is_floating(x.dtype()) || (whole && !real), op, ": the operands are ", x.dtype(),
               real ? "; it takes f32, f64, f16 or bf16" : "; convert them to a floating type, i32 or i64");
}

/// The number as a tensor of the type that arithmetic runs in, on the CPU: kernels take it along by value.
Tensor number_for(const char* op, const Tensor& x, double number) {
  switch (x.dtype()) {
    case DType::f16:
    case DType::bf16:
      return Tensor::full({}, number, DType::f32);
    case DType::i32:
    case DType::i64: {
      const double limit = x.dtype() == DType::i32 ? 0x1p31 : 0x1p63;
      HEARTH_CHECK(UsageError, number >= -limit && number < limit && std::trunc(number) == number, op, ": the number ",
                   number, " is not a value of ", x.dtype(), "; convert the tensor to a floating type first");
      return Tensor::full({}, number, x.dtype());
    }
    default:
      return Tensor::full({}, number, x.dtype());
  }
}

/// dy * df/d(side), or dy itself where that factor is 1. Overwrites dy if nobody else holds it.
Tensor local_gradient(Binary function, Side side, const Tensor& a, const Tensor& b, Tensor dy) {
  if (function == Binary::add || (function == Binary::sub && side == Side::a)) return dy;
  const bool in_place = dy.is_contiguous() && dy.sole_owner();
  const Tensor dense = in_place ? std::move(dy) : dy.contiguous();
  const Tensor dx = in_place ? dense : Tensor::empty_like(dense);
  run_on(dx.device(), [&](auto& stream) {
    if (function == Binary::sub)
      kernels::binary(stream, Binary::mul, dense, number_for("sub", dense, -1.0), dx);
    else if (function == Binary::mul)
      kernels::binary(stream, Binary::mul, dense, side == Side::a ? b : a, dx);
    else if (function == Binary::div && side == Side::a)
      kernels::binary(stream, Binary::div, dense, b, dx);
    else
      kernels::binary(stream, gradient_of(function, side), a, b, dx, dense);
  });
  return dx;
}

constexpr OpInfo info_of(Binary function) {
  return {.name = name_of(function), .autocast = function == Binary::pow ? Autocast::f32 : Autocast::follow};
}

template <Binary function>
struct BinaryOp {
  static constexpr OpInfo info = info_of(function);
  struct Saved {
    SavedTensor a, b;
    Shape shape_a, shape_b;
  };

  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    require_same_kind(info.name, "a", a, "b", b);
    require_arithmetic(info.name, a, is_real(function));
    const Tensor y = Tensor::empty(broadcast_shapes(info.name, a.shape(), b.shape()), a.dtype(), a.device());
    run_on(y.device(), [&](auto& stream) { kernels::binary(stream, function, a, b, y); });
    if (is_recording()) {
      saved.shape_a = a.shape();
      saved.shape_b = b.shape();
      if (slope_needs_operands(function)) {
        saved.a = a;
        saved.b = b;
      }
    }
    return y;
  }

  std::array<Tensor, 2> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    const Tensor a = slope_needs_operands(function) ? saved.a.get() : Tensor();
    const Tensor b = slope_needs_operands(function) ? saved.b.get() : Tensor();
    std::array<Tensor, 2> gradients;
    // The last use of dy hands it over, so that it can be overwritten.
    if (needs[0])
      gradients[0] =
          broadcast_sum(local_gradient(function, Side::a, a, b, needs[1] ? dy : std::move(dy)), saved.shape_a);
    if (needs[1]) gradients[1] = broadcast_sum(local_gradient(function, Side::b, a, b, std::move(dy)), saved.shape_b);
    return gradients;
  }
};

/// f(x, number) if x_side is a, else f(number, x).
template <Binary function>
struct NumberOp {
  static constexpr OpInfo info = info_of(function);
  struct Saved {
    SavedTensor x;
  };
  double number;
  Side x_side = Side::a;

  Tensor forward(Saved& saved, const Tensor& x) const {
    require_defined(info.name, x_side == Side::a ? "a" : "b", x);
    require_arithmetic(info.name, x, is_real(function));
    const Tensor y = Tensor::empty_like(x);
    const Tensor constant = number_for(info.name, x, number);
    const bool first = x_side == Side::a;
    run_on(y.device(),
           [&](auto& stream) { kernels::binary(stream, function, first ? x : constant, first ? constant : x, y); });
    if (is_recording() && slope_needs_operands(function) && !factor_is_number()) saved.x = x;
    return y;
  }

  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad&) const {
    const Tensor x = saved.x.defined() ? saved.x.get() : Tensor();
    const Tensor constant = number_for(info.name, dy, number);
    const bool first = x_side == Side::a;
    return {local_gradient(function, x_side, first ? x : constant, first ? constant : x, std::move(dy))};
  }

  /// y = x * number and y = x / number: the slope needs no x.
  bool factor_is_number() const { return function == Binary::mul || (function == Binary::div && x_side == Side::a); }
};

template <Binary function>
Tensor with_number(const Tensor& x, double number, Side x_side = Side::a) {
  return record(NumberOp<function>{number, x_side}, x);
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return record(BinaryOp<Binary::add>{}, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return record(BinaryOp<Binary::sub>{}, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return record(BinaryOp<Binary::mul>{}, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return record(BinaryOp<Binary::div>{}, a, b); }
Tensor pow(const Tensor& a, const Tensor& b) { return record(BinaryOp<Binary::pow>{}, a, b); }
Tensor maximum(const Tensor& a, const Tensor& b) { return record(BinaryOp<Binary::maximum>{}, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return record(BinaryOp<Binary::minimum>{}, a, b); }

Tensor add(const Tensor& a, double b) { return with_number<Binary::add>(a, b); }
Tensor sub(const Tensor& a, double b) { return with_number<Binary::sub>(a, b); }
Tensor mul(const Tensor& a, double b) { return with_number<Binary::mul>(a, b); }
Tensor div(const Tensor& a, double b) { return with_number<Binary::div>(a, b); }
Tensor pow(const Tensor& a, double b) { return with_number<Binary::pow>(a, b); }
Tensor maximum(const Tensor& a, double b) { return with_number<Binary::maximum>(a, b); }
Tensor minimum(const Tensor& a, double b) { return with_number<Binary::minimum>(a, b); }
Tensor sub(double a, const Tensor& b) { return with_number<Binary::sub>(b, a, Side::b); }
Tensor div(double a, const Tensor& b) { return with_number<Binary::div>(b, a, Side::b); }
Tensor pow(double a, const Tensor& b) { return with_number<Binary::pow>(b, a, Side::b); }

}  // namespace hearth
