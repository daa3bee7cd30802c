// SPDX-License-Identifier: Apache-2.0
#include "hearth/ops/linear/linear.h"

#include "hearth/autograd/record.h"
#include "hearth/core/run_on.h"
#include "hearth/ops/epilogue/epilogue.h"
#include "hearth/ops/epilogue/operands.h"
#include "hearth/ops/matmul/product.h"

namespace hearth {
namespace {

template <class Stream>
kernels::ProductCandidates& candidates(Stream& stream) {
  static kernels::ProductCandidates list = kernels::product_candidates(stream, "linear");
  return list;
}

void check_shapes(const Tensor& x, const Tensor& w, const Tensor& b) {
  HEARTH_CHECK(ShapeError, x.rank() >= 1, "linear: x is a scalar; it needs a last axis of inputs");
  HEARTH_CHECK(ShapeError, w.rank() == 2, "linear: w ", w.shape(), " must be [outputs, inputs]");
  HEARTH_CHECK(ShapeError, x.dim(-1) == w.dim(1), "linear: x ", x.shape(), " has ", x.dim(-1), " inputs but w ",
               w.shape(), " takes ", w.dim(1), "; they must be equal");
  HEARTH_CHECK(ShapeError, !b.defined() || (b.rank() == 1 && b.dim(0) == w.dim(0)), "linear: b ",
               b.defined() ? b.shape() : Shape{}, " must be [", w.dim(0), "], one value for each row of w ", w.shape());
}

struct Linear {
  static constexpr OpInfo info{.name = "linear", .autocast = Autocast::narrow, .autocast_inputs = 1};
  struct Kept {
    KeptTensor x, w;
    KeptTensor reference;  ///< what the activation's slope needs
    DType bias_type = DType::f32;
  };
  Activation activation;

  Tensor forward(Kept& kept, const Tensor& x_in, const Tensor& w_in, const Tensor& b) const {
    check_shapes(x_in, w_in, b);
    detail::check_operand_types("linear", x_in, w_in, b);
    const Tensor x = x_in.contiguous(), w = w_in.contiguous();
    const std::int64_t inputs = w.dim(1), outputs = w.dim(0);
    const std::int64_t rows = detail::rows_of(x.shape());
    checked_mul(rows, outputs, "linear: elements of the result");
    Tensor y = Tensor::empty(x.shape().with(-1, outputs), x.dtype(), x.device());
    run_on(x.device(), [&](auto& stream) {
      kernels::product(stream, candidates(stream), {.m = rows, .n = outputs, .k = inputs, .transpose_b = true}, x, w,
                       b.defined() ? b.contiguous() : b, y);
    });
    if (wants_grad(w_in)) kept.x = x;
    if (wants_grad(x_in)) kept.w = w;
    if (b.defined()) kept.bias_type = b.dtype();
    y = detail::activate_result(activation, y, kept.reference);
    return y;
  }

  std::array<Tensor, 3> backward(const Kept& kept, Tensor dy, const GradWants& wants) const {
    const std::int64_t outputs = dy.dim(-1);
    std::array<Tensor, 3> gradients;
    Tensor& dx = gradients[0];
    Tensor& dw = gradients[1];
    Tensor& db = gradients[2];
    if (wants[2]) db = wants.make(2, {outputs}, kept.bias_type);
    dy = detail::grad_before_activation(activation, kept.reference, std::move(dy), db);
    const std::int64_t rows = detail::rows_of(dy.shape());
    run_on(dy.device(), [&](auto& stream) {
      if (wants[1]) {
        const Tensor& x = kept.x.get();
        const std::int64_t inputs = x.dim(-1);
        dw = wants.make(1, {outputs, inputs}, weight_type);
        kernels::product(stream, candidates(stream), {.m = outputs, .n = inputs, .k = rows, .transpose_a = true}, dy, x,
                         Tensor(), dw);
      }
      if (wants[0]) {
        const Tensor& w = kept.w.get();
        const std::int64_t inputs = w.dim(1);
        dx = wants.make(0, dy.shape().with(-1, inputs), dy.dtype());
        kernels::product(stream, candidates(stream), {.m = rows, .n = inputs, .k = outputs}, dy, w, Tensor(), dx);
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
