// SPDX-License-Identifier: Apache-2.0
// The order of axes in weights from PyTorch: convolution filters are [K, C, R, S] there and [K, R, S, C] here;
// everything else is the same.
#pragma once

#include <string_view>

#include "core/tensor.h"

namespace hearth::models {

/// A copy of `tensor`, the parameter or buffer called `name`, with its axes in PyTorch's order.
Tensor to_torch_layout(std::string_view name, const Tensor& tensor);
/// The inverse.
Tensor from_torch_layout(std::string_view name, const Tensor& tensor);

}  // namespace hearth::models
