// SPDX-License-Identifier: Apache-2.0
#include "ops/epilogue/operands.h"

#include <utility>

#include "autograd/grad_mode.h"
#include "core/run_on.h"
#include "ops/epilogue/epilogue.h"

namespace hearth::detail {

void check_operand_types(const char* op, const Tensor& x, const Tensor& w, const Tensor& b) {
  const DType type = x.dtype();
  HEARTH_CHECK(DTypeError, is_floating(type), op, ": x is ", type, "; use f32, f64, f16 or bf16");
  const bool narrow = type == DType::f16 || type == DType::bf16;
  HEARTH_CHECK(DTypeError, w.dtype() == type || (narrow && w.dtype() == DType::f32), op, ": x is ", type, " and w is ",
               w.dtype(), "; w must be ", type, narrow ? " or f32" : "", ", cast one of them");
  HEARTH_CHECK(DTypeError, !b.defined() || b.dtype() == type || b.dtype() == w.dtype(), op, ": x is ", type, ", w is ",
               w.dtype(), " and b is ", b.defined() ? b.dtype() : type, "; b must have the type of either");
  HEARTH_CHECK(DeviceError, x.device() == w.device(), op, ": x is on ", x.device(), " but w on ", w.device(),
               "; move one with to(device)");
  HEARTH_CHECK(DeviceError, !b.defined() || b.device() == x.device(), op, ": x is on ", x.device(), " but b on ",
               b.defined() ? b.device() : x.device(), "; move one with to(device)");
}

std::int64_t rows_of(const Shape& shape) {
  std::int64_t rows = 1;
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows = checked_mul(rows, shape[axis], "rows of a tensor");
  return rows;
}

Tensor activate_result(Activation activation, const Tensor& y, SavedTensor& reference) {
  if (activation == Activation::none) return y;
  // ReLU's slope can be read from its result; the others need what went in.
  const bool in_place = activation == Activation::relu || !is_recording();
  const Tensor result = in_place ? y : Tensor::empty_like(y);
  run_on(y.device(), [&](auto& stream) { kernels::activate(stream, activation, y, result); });
  if (is_recording()) reference = activation == Activation::relu ? result : y;
  return result;
}

Tensor grad_before_activation(Activation activation, const SavedTensor& reference, Tensor dy, const Tensor& db) {
  dy = dy.contiguous();
  if (activation == Activation::none) {
    if (db.defined()) run_on(dy.device(), [&](auto& stream) { kernels::sum_rows(stream, dy, db); });
    return dy;
  }
  const Tensor into = dy.sole_owner() ? dy : Tensor::empty_like(dy);
  run_on(dy.device(), [&](auto& stream) { kernels::activate_grad(stream, activation, reference.get(), dy, into, db); });
  return into;
}

}  // namespace hearth::detail
