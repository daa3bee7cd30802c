// SPDX-License-Identifier: Apache-2.0
// The functions of two tensors by name, without tensors: what their kernels need.
#pragma once

namespace hearth::kernels {

/// The functions; then dy * df/da and dy * df/db where that is no plain product.
enum class Binary {
  add,
  sub,
  mul,
  div,
  maximum,
  minimum,
  pow,
  div_b,
  maximum_a,
  maximum_b,
  minimum_a,
  minimum_b,
  pow_a,
  pow_b
};
constexpr bool is_gradient(Binary function) { return function >= Binary::div_b; }
/// Of the op, or of its gradient.
constexpr const char* name_of(Binary function) {
  constexpr const char* names[] = {"add",          "sub",          "mul",      "div",          "maximum",
                                   "minimum",      "pow",          "div_grad", "maximum_grad", "maximum_grad",
                                   "minimum_grad", "minimum_grad", "pow_grad", "pow_grad"};
  return names[static_cast<int>(function)];
}

}  // namespace hearth::kernels
