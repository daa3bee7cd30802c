// SPDX-License-Identifier: Apache-2.0
#include "ops/linear/linear.h"

#include "autograd/record.h"
#include "ops/epilogue/operands.h"
#include "ops/linear/products.h"

namespace hearth {
namespace {

struct Linear {
  static constexpr OpInfo info{.name = "linear", .autocast = Autocast::low_precision, .autocast_inputs = 1};
  struct Saved {
    SavedTensor x, w;
    SavedTensor reference;  ///< what the activation's slope needs
    DType bias_type = DType::f32;
  };
  Activation activation;

  Tensor forward(Saved& saved, const Tensor& x_in, const Tensor& w_in, const Tensor& b) const {
    const Tensor x = x_in.contiguous(), w = w_in.contiguous();
    const detail::Projected made = detail::project(x, w, b, activation);
    if (needs_grad(w_in)) saved.x = x;
    if (needs_grad(x_in)) saved.w = w;
    if (b.defined()) saved.bias_type = b.dtype();
    if (is_recording() && activation != Activation::none) saved.reference = made.reference;
    return made.y;
  }

  std::array<Tensor, 3> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    std::array<Tensor, 3> gradients;
    Tensor& db = gradients[2];
    if (needs[2]) db = needs.make(2, {dy.dim(-1)}, needs.type_for(2, saved.bias_type));
    // Where an activation's gradient passes over dy anyway, it sums the bias gradient on the way; else the product of
    // the weight gradient, which reads dy too, may.
    const bool sums_in_product = activation == Activation::none && needs[1] && needs[2];
    dy = detail::grad_before_activation(activation, saved.reference, std::move(dy), sums_in_product ? Tensor() : db);
    if (needs[1])
      gradients[1] = detail::weight_gradient(needs, 1, weight_type, dy, saved.x.get(), sums_in_product ? db : Tensor());
    if (needs[0]) gradients[0] = detail::input_gradient(needs, dy, saved.w.get());
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
