// SPDX-License-Identifier: Apache-2.0
// Reordering of filters by strided views.
#include "models/weights/import.h"

#include <array>
#include <span>

namespace hearth::models {

namespace {

bool is_filter(std::string_view name, const Tensor& tensor) {
  return tensor.rank() == 4 && (name == "weight" || name.ends_with(".weight"));
}

/// Axis i of the result is axis order[i] of `tensor`.
Tensor reordered(const Tensor& tensor, const std::array<int, 4>& order) {
  std::array<std::int64_t, 4> extents{};
  Strides strides{};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto axis = static_cast<std::size_t>(order[i]);
    extents[i] = tensor.shape()[order[i]];
    strides[i] = tensor.strides()[axis];
  }
  const Tensor view = Tensor::view(tensor.storage(), Shape(std::span<const std::int64_t>(extents)), strides,
                                   tensor.offset(), tensor.dtype(), tensor.device());
  return view.clone();
}

}  // namespace

Tensor to_torch_layout(std::string_view name, const Tensor& tensor) {
  return is_filter(name, tensor) ? reordered(tensor, {0, 3, 1, 2}) : tensor.clone();
}

Tensor from_torch_layout(std::string_view name, const Tensor& tensor) {
  return is_filter(name, tensor) ? reordered(tensor, {0, 2, 3, 1}) : tensor.clone();
}

}  // namespace hearth::models
