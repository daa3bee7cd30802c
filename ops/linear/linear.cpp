// SPDX-License-Identifier: Apache-2.0
#include "ops/linear/linear.h"

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/epilogue/epilogue.h"
#include "ops/epilogue/operands.h"
#include "ops/matmul/product.h"

namespace hearth {
namespace {

void check_shapes(const Tensor& x, const Tensor& w, const Tensor& b) {
  HEARTH_CHECK(ShapeError, x.rank() >= 1, "linear: x is a scalar; it needs a last axis of inputs");
  HEARTH_CHECK(ShapeError, w.rank() == 2, "linear: w ", w.shape(), " must be [outputs, inputs]");
  HEARTH_CHECK(ShapeError, x.dim(-1) == w.dim(1), "linear: x ", x.shape(), " has ", x.dim(-1), " inputs but w ",
               w.shape(), " takes ", w.dim(1), "; they must be equal");
  HEARTH_CHECK(ShapeError, !b.defined() || (b.rank() == 1 && b.dim(0) == w.dim(0)), "linear: b ",
               b.defined() ? b.shape() : Shape{}, " must be [", w.dim(0), "], one value for each row of w ", w.shape());
}

struct Linear {
  static constexpr OpInfo info{.name = "linear", .autocast = Autocast::low_precision, .autocast_inputs = 1};
  struct Saved {
    SavedTensor x, w;
    SavedTensor reference;  ///< what the activation's slope needs
    DType bias_type = DType::f32;
  };
  Activation activation;

  Tensor forward(Saved& saved, const Tensor& x_in, const Tensor& w_in, const Tensor& b) const {
    check_shapes(x_in, w_in, b);
    detail::check_operand_types("linear", x_in, w_in, b);
    const Tensor x = x_in.contiguous(), w = w_in.contiguous();
    const std::int64_t inputs = w.dim(1), outputs = w.dim(0);
    const std::int64_t rows = detail::rows_of(x.shape());
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
    if (needs_grad(w_in)) saved.x = x;
    if (needs_grad(x_in)) saved.w = w;
    if (b.defined()) saved.bias_type = b.dtype();
    if (is_recording() && activation != Activation::none) saved.reference = keeps_pre ? pre : y;
    return y;
  }

  std::array<Tensor, 3> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    const std::int64_t outputs = dy.dim(-1);
    std::array<Tensor, 3> gradients;
    Tensor& dx = gradients[0];
    Tensor& dw = gradients[1];
    Tensor& db = gradients[2];
    if (needs[2]) db = needs.make(2, {outputs}, needs.type_for(2, saved.bias_type));
    // Where an activation's gradient passes over dy anyway, it sums the bias gradient on the way; else the product of
    // the weight gradient, which reads dy too, may.
    const bool sums_in_product = activation == Activation::none && needs[1] && needs[2];
    dy = detail::grad_before_activation(activation, saved.reference, std::move(dy), sums_in_product ? Tensor() : db);
    const std::int64_t rows = detail::rows_of(dy.shape());
    run_on(dy.device(), [&](auto& stream) {
      if (needs[1]) {
        const Tensor& x = saved.x.get();
        const std::int64_t inputs = x.dim(-1);
        const DType type = needs.type_for(1, weight_type);
        // On the CPU the tape adds, so that the bits there do not depend on it.
        const bool adds = !dy.device().is_cpu() && size_of(type) >= 4;
        const Tensor sum = adds ? needs.sum_so_far(1, {outputs, inputs}, type) : Tensor();
        dw = sum.defined() ? sum : needs.make(1, {outputs, inputs}, type);
        kernels::product(stream, kernels::linear_candidates(stream),
                         {.m = outputs, .n = inputs, .k = rows, .transpose_a = true, .accumulate = sum.defined()},
                         {.a = dy, .b = x, .c = dw, .a_sums = sums_in_product ? db : Tensor()});
      }
      if (needs[0]) {
        const Tensor& w = saved.w.get();
        const std::int64_t inputs = w.dim(1);
        dx = needs.make(0, dy.shape().with(-1, inputs), dy.dtype());
        kernels::product(stream, kernels::linear_candidates(stream), {.m = rows, .n = inputs, .k = outputs},
                         {.a = dy, .b = w, .c = dx});
      }
    });
    return gradients;
  }

  DType weight_type;
};

}  // namespace

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b, Activation activation) {
  HEARTH_CHECK(UsageError, x.defined() && w.defined(), "linear: x and w are needed; found x ", describe(x), " and w ",
               describe(w));
  return record(Linear{.activation = activation, .weight_type = w.dtype()}, x, w, b);
}

}  // namespace hearth
