// SPDX-License-Identifier: Apache-2.0
// What other libraries call ops that have other names here (core/other_names.h).
#pragma once

#include <concepts>
#include <initializer_list>

#include "core/tensor.h"

namespace hearth {

// Of tensors only: a program may have functions of its own with these names.
#define HEARTH_OTHER_OP(name, text)                     \
  template <std::same_as<Tensor> X, class... Arguments> \
  void name(const X&, const Arguments&...) {            \
    static_assert(sizeof(X) == 0, text);                \
  }
HEARTH_OTHER_OP(mm, "write matmul(x, y)")
HEARTH_OTHER_OP(bmm, "write matmul(x, y), which takes batches of matrices")
HEARTH_OTHER_OP(outer, "write matmul(x.unsqueeze(1), y.unsqueeze(0)), or multiply by broadcasting")
HEARTH_OTHER_OP(isnan, "write not_equal(x, x), which is true where x is NaN")
HEARTH_OTHER_OP(rand_like, "write rand(x.shape(), x.dtype(), x.device())")
HEARTH_OTHER_OP(randn_like, "write randn(x.shape(), x.dtype(), x.device())")
HEARTH_OTHER_OP(mse_loss, "write mse(x, target)")
HEARTH_OTHER_OP(nll_loss, "write cross_entropy(logits, labels), which takes the outputs before the softmax")
HEARTH_OTHER_OP(binary_cross_entropy, "write bce_with_logits(x, target), which takes the outputs before the sigmoid")
HEARTH_OTHER_OP(binary_cross_entropy_with_logits, "write bce_with_logits(x, target)")
#undef HEARTH_OTHER_OP

template <std::same_as<int> Axis>
void cat(std::initializer_list<Tensor>, Axis) {
  static_assert(sizeof(Axis) == 0, "write concat({x, y}, axis)");
}
template <std::same_as<int> Size>
void interpolate(const Tensor&, Size) {
  static_assert(sizeof(Size) == 0, "write interpolate(x, {.scale = 2}) with what InterpolateOptions has");
}
template <std::same_as<Tensor> X>
void operator~(const X&) {
  static_assert(sizeof(X) == 0, "write equal(mask, 0)");
}
template <class... Arguments>
void no_grad(const Arguments&...) {
  static_assert(sizeof...(Arguments) > 1000, "write `const NoGrad no_grad;`: gradients are off until its scope ends");
}

}  // namespace hearth
