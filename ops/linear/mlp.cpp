// SPDX-License-Identifier: Apache-2.0
#include "ops/linear/mlp.h"

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/epilogue/operands.h"
#include "ops/linear/linear.h"
#include "ops/linear/products.h"
#include "ops/matmul/product.h"

namespace hearth {
namespace {

struct Mlp {
  static constexpr OpInfo info{.name = "mlp", .autocast = Autocast::low_precision, .autocast_inputs = 1};
  struct Saved {
    SavedTensor x, w1, w2;
    SavedTensor hidden;     ///< what lies between the layers
    SavedTensor reference;  ///< what the activation's slope needs
    DType bias1_type = DType::f32, bias2_type = DType::f32;
  };
  Activation activation;
  DType w1_type, w2_type;

  Tensor forward(Saved& saved, const Tensor& x_in, const Tensor& w1_in, const Tensor& b1, const Tensor& w2_in,
                 const Tensor& b2) const {
    const Tensor x = x_in.contiguous(), w1 = w1_in.contiguous(), w2 = w2_in.contiguous();
    const detail::Projected between = detail::project(x, w1, b1, activation);
    const Tensor y = detail::project(between.y, w2, b2, Activation::none).y;
    if (b1.defined()) saved.bias1_type = b1.dtype();
    if (b2.defined()) saved.bias2_type = b2.dtype();
    if (needs_grad(w2_in)) saved.hidden = between.y;
    if (!needs_grad(x_in) && !needs_grad(w1_in) && !needs_grad(b1)) return y;
    saved.w2 = w2;
    saved.reference = between.reference;
    if (needs_grad(w1_in)) saved.x = x;
    if (needs_grad(x_in)) saved.w1 = w1;
    return y;
  }

  /// The weight's gradient, and within its product the bias's; the latter by itself where the former is not wanted.
  static void parameter_gradients(const NeedsGrad& needs, std::size_t weight, DType weight_type, DType bias_type,
                                  const Tensor& dy, const SavedTensor& x, std::array<Tensor, 5>& gradients) {
    Tensor& db = gradients[weight + 1];
    if (needs[weight + 1]) db = needs.make(weight + 1, {dy.dim(-1)}, needs.type_for(weight + 1, bias_type));
    if (needs[weight])
      gradients[weight] = detail::weight_gradient(needs, weight, weight_type, dy, x.get(), db);
    else if (db.defined())
      run_on(dy.device(), [&](auto& stream) { kernels::sum_rows(stream, dy, db); });
  }

  std::array<Tensor, 5> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    std::array<Tensor, 5> gradients;
    dy = dy.contiguous();
    parameter_gradients(needs, 3, w2_type, saved.bias2_type, dy, saved.hidden, gradients);
    if (!needs[0] && !needs[1] && !needs[2]) return gradients;
    const Tensor &w2 = saved.w2.get(), &reference = saved.reference.get();
    const Tensor before = Tensor::empty(reference.shape(), dy.dtype(), dy.device());
    run_on(dy.device(), [&](auto& stream) {
      kernels::product(stream, kernels::linear_candidates(stream),
                       {.m = detail::rows_of(dy.shape()), .n = w2.dim(1), .k = dy.dim(-1), .slope = activation},
                       {.a = dy, .b = w2, .c = before, .slope_at = reference});
    });
    dy = Tensor();
    parameter_gradients(needs, 1, w1_type, saved.bias1_type, before, saved.x, gradients);
    if (needs[0]) gradients[0] = detail::input_gradient(needs, before, saved.w1.get());
    return gradients;
  }
};

}  // namespace

Tensor mlp(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2,
           Activation activation) {
  HEARTH_CHECK(UsageError, x.defined() && w1.defined() && w2.defined(), "mlp: x, w1 and w2 are needed; found x ",
               describe(x), ", w1 ", describe(w1), " and w2 ", describe(w2));
  if (x.device().is_cpu() || activation == Activation::none) return linear(linear(x, w1, b1, activation), w2, b2);
  return record(Mlp{activation, w1.dtype(), w2.dtype()}, x, w1, b1, w2, b2);
}

}  // namespace hearth
