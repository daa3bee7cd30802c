// SPDX-License-Identifier: Apache-2.0
// What the attention ops do to their operands before they are recorded.
#pragma once

#include <optional>

#include "autograd/grad_state.h"
#include "autograd/record.h"
#include "core/tensor.h"
#include "ops/shape/view.h"

namespace hearth::attention_operands {

constexpr DType sum_type(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// What autocast makes of an operand, before types are compared.
inline Tensor narrowed(const Tensor& x) {
  const std::optional<DType> low_precision = autocast_dtype();
  const bool converts = low_precision && x.defined() && is_floating(x.dtype()) && x.dtype() != DType::f64;
  return converts ? detail::cast(x, *low_precision) : x;
}

/// The bias, but no leaf that autocast would replace by its low-precision copy: it is added to sums in f32.
inline Tensor wide_bias(const Tensor& bias) {
  const bool has_copy = bias.defined() && bias.grad_state() != nullptr && bias.grad_state()->low_precision.defined();
  return has_copy && autocast_dtype() ? reshape(bias, bias.shape()) : bias;
}

inline Tensor in_type(const Tensor& x, DType dtype) { return x.defined() && x.dtype() != dtype ? x.to(dtype) : x; }

/// Memory for a gradient like x, in x's type; the leaf's own where that has it.
inline Tensor sums_for(std::size_t input, const Tensor& x, DType dtype, const NeedsGrad& needs) {
  const bool as_is = needs.type_for(input, dtype) == x.dtype();
  return as_is ? needs.make(input, x.shape(), x.dtype()) : Tensor::empty_like(x);
}

}  // namespace hearth::attention_operands
