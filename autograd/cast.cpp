// SPDX-License-Identifier: Apache-2.0
// The recorded conversion between floating types, and the autocast policy that inserts it.
#include <utility>

#include "autograd/record.h"

namespace hearth::detail {
namespace {

struct Cast {
  static constexpr OpInfo info{.name = "cast", .autocast = Autocast::as_is};
  struct Kept {
    DType from = DType::f32;
  };
  DType to;

  Tensor forward(Kept& kept, const Tensor& x) const {
    kept.from = x.dtype();
    return x.to(to);
  }
  std::array<Tensor, 1> backward(const Kept& kept, Tensor dy, const GradWants&) const { return {dy.to(kept.from)}; }
};

// f64 is never narrowed: the oracle stays exact.
bool may_convert(const Tensor& tensor) {
  return tensor.defined() && is_floating(tensor.dtype()) && tensor.dtype() != DType::f64;
}

/// A leaf's narrow copy with the leaf's own slot, so that gradients arrive where they would without it; undefined if
/// there is none of this type, or the value was written since it was made.
Tensor narrow_copy_of(const Tensor& tensor, DType narrow) {
  if (!tensor.defined() || tensor.grad_state() == nullptr) return {};
  const GradState& state = *tensor.grad_state();
  const Tensor& copy = state.narrow;
  const bool is_current = copy.defined() && *state.narrow_version == tensor.storage()->version();
  return is_current && copy.dtype() == narrow ? copy.with_grad_state(tensor.grad_state()) : Tensor();
}

}  // namespace

Tensor cast(const Tensor& tensor, DType dtype) {
  return tensor.dtype() == dtype ? tensor : record(Cast{dtype}, tensor);
}

void apply_autocast(const OpInfo& info, std::span<Tensor> inputs) {
  const std::optional<DType> narrow = autocast_dtype();
  if (!narrow || info.autocast == Autocast::as_is) return;
  if (info.autocast == Autocast::narrow)
    for (Tensor& input : inputs)
      if (Tensor copy = narrow_copy_of(input, *narrow); copy.defined()) input = std::move(copy);
  const auto count = std::min(inputs.size(), static_cast<std::size_t>(info.autocast_inputs));
  const auto convertible = inputs.first(count);
  DType target = info.autocast == Autocast::narrow ? *narrow : DType::f32;
  if (info.autocast == Autocast::follow) {
    target = *narrow;
    for (const Tensor& input : convertible)
      if (may_convert(input) && input.dtype() == DType::f32) target = DType::f32;
  }
  for (Tensor& input : convertible)
    if (may_convert(input) && input.dtype() != target) input = cast(input, target);
}

}  // namespace hearth::detail
