// SPDX-License-Identifier: Apache-2.0
// The recorded conversion between floating types, and the autocast policy that inserts it.
#include <utility>

#include "autograd/record.h"

namespace hearth::detail {
namespace {

struct Cast {
  static constexpr OpInfo info{.name = "cast", .autocast = Autocast::as_is};
  struct Saved {
    DType from = DType::f32;
  };
  DType to;

  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.from = x.dtype();
    return x.to(to);
  }
  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad&) const { return {dy.to(saved.from)}; }
};

// f64 is never cast down: the oracle stays exact.
bool may_convert(const Tensor& tensor) {
  return tensor.defined() && is_floating(tensor.dtype()) && tensor.dtype() != DType::f64;
}

/// A leaf's low-precision copy with the leaf's own slot, so that gradients arrive where they would without it;
/// undefined if there is none of this type, or the value was written since it was made.
Tensor low_precision_copy_of(const Tensor& tensor, DType low_precision) {
  if (!tensor.defined() || tensor.grad_state() == nullptr) return {};
  const GradState& state = *tensor.grad_state();
  const Tensor& copy = state.low_precision;
  const bool is_current = copy.defined() && *state.low_precision_version == tensor.storage()->version();
  return is_current && copy.dtype() == low_precision ? copy.with_grad_state(tensor.grad_state()) : Tensor();
}

}  // namespace

Tensor cast(const Tensor& tensor, DType dtype) {
  return tensor.dtype() == dtype ? tensor : record(Cast{dtype}, tensor);
}

void apply_autocast(const OpInfo& info, std::span<Tensor> inputs) {
  const std::optional<DType> low_precision = autocast_dtype();
  if (!low_precision || info.autocast == Autocast::as_is) return;
  if (info.autocast == Autocast::low_precision)
    for (Tensor& input : inputs)
      if (Tensor copy = low_precision_copy_of(input, *low_precision); copy.defined()) input = std::move(copy);
  const auto count = std::min(inputs.size(), static_cast<std::size_t>(info.autocast_inputs));
  const auto convertible = inputs.first(count);
  DType target = info.autocast == Autocast::low_precision ? *low_precision : DType::f32;
  if (info.autocast == Autocast::follow) {
    target = *low_precision;
    for (const Tensor& input : convertible)
      if (may_convert(input) && input.dtype() == DType::f32) target = DType::f32;
  }
  for (Tensor& input : convertible)
    if (may_convert(input) && input.dtype() != target) input = cast(input, target);
}

}  // namespace hearth::detail
