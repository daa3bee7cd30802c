// SPDX-License-Identifier: Apache-2.0
#include "ops/linear/products.h"

#include "autograd/grad_mode.h"
#include "core/run_on.h"
#include "ops/epilogue/operands.h"
#include "ops/matmul/product.h"

namespace hearth::detail {
namespace {

void check_shapes(const Tensor& x, const Tensor& w, const Tensor& b) {
  HEARTH_CHECK(ShapeError, x.rank() >= 1, "linear: x is a scalar; it needs a last axis of inputs");
  HEARTH_CHECK(ShapeError, w.rank() == 2, "linear: w ", w.shape(), " must be [outputs, inputs]");
  HEARTH_CHECK(ShapeError, x.dim(-1) == w.dim(1), "linear: x ", x.shape(), " has ", x.dim(-1), " inputs but w ",
               w.shape(), " takes ", w.dim(1), "; they must be equal");
  HEARTH_CHECK(ShapeError, !b.defined() || (b.rank() == 1 && b.dim(0) == w.dim(0)), "linear: b ",
               b.defined() ? b.shape() : Shape{}, " must be [", w.dim(0), "], one value for each row of w ", w.shape());
}

}  // namespace

Projected project(const Tensor& x, const Tensor& w, const Tensor& b, Activation activation) {
  check_shapes(x, w, b);
  check_operand_types("linear", x, w, b);
  const std::int64_t inputs = w.dim(1), outputs = w.dim(0), rows = rows_of(x.shape());
  checked_mul(rows, outputs, "linear: elements of the result");
  const Tensor y = Tensor::empty(x.shape().with(-1, outputs), x.dtype(), x.device());
  // ReLU's slope can be read from its result; the others need what went in.
  const bool keeps_pre = is_recording() && activation != Activation::none && activation != Activation::relu;
  const Tensor pre = keeps_pre ? Tensor::empty_like(y) : Tensor();
  run_on(x.device(), [&](auto& stream) {
    kernels::product(stream, kernels::linear_candidates(stream),
                     {.m = rows, .n = outputs, .k = inputs, .transpose_b = true, .activation = activation},
                     {.a = x, .b = w, .bias = b.defined() ? b.contiguous() : b, .c = y, .pre = pre});
  });
  return {y, keeps_pre ? pre : y};
}

Tensor weight_gradient(const NeedsGrad& needs, std::size_t input, DType own, const Tensor& dy, const Tensor& x,
                       const Tensor& db) {
  const std::int64_t outputs = dy.dim(-1), inputs = x.dim(-1), rows = rows_of(dy.shape());
  const DType type = needs.type_for(input, own);
  // On the CPU the tape adds, so that the bits there do not depend on it.
  const bool adds = !dy.device().is_cpu() && size_of(type) >= 4;
  const Tensor sum = adds ? needs.sum_so_far(input, {outputs, inputs}, type) : Tensor();
  const Tensor dw = sum.defined() ? sum : needs.make(input, {outputs, inputs}, type);
  run_on(dy.device(), [&](auto& stream) {
    kernels::product(stream, kernels::linear_candidates(stream),
                     {.m = outputs, .n = inputs, .k = rows, .transpose_a = true, .accumulate = sum.defined()},
                     {.a = dy, .b = x, .c = dw, .a_sums = db});
  });
  return dw;
}

Tensor input_gradient(const NeedsGrad& needs, const Tensor& dy, const Tensor& w) {
  const std::int64_t inputs = w.dim(1);
  const Tensor dx = needs.make(0, dy.shape().with(-1, inputs), dy.dtype());
  run_on(dy.device(), [&](auto& stream) {
    kernels::product(stream, kernels::linear_candidates(stream),
                     {.m = rows_of(dy.shape()), .n = inputs, .k = dy.dim(-1)}, {.a = dy, .b = w, .c = dx});
  });
  return dx;
}

}  // namespace hearth::detail
