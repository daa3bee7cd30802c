// SPDX-License-Identifier: Apache-2.0
// Modules in a row.
#include "hearth/models/nn/list.h"

#include "hearth/models/nn/norm.h"

namespace hearth::nn {

Tensor ModuleList::forward(const Tensor& x) {
  Tensor y = x;
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    auto* const convolution = dynamic_cast<Conv2d*>(modules_[i].get());
    auto* const norm = i + 1 < modules_.size() ? dynamic_cast<BatchNorm*>(modules_[i + 1].get()) : nullptr;
    if (recompute_) {
      y = recomputed(*modules_[i], y);
    } else if (convolution != nullptr && norm != nullptr) {
      y = convolve_and_normalize(*convolution, *norm, y);
      ++i;
    } else {
      y = (*modules_[i])(y);
    }
  }
  return y;
}

}  // namespace hearth::nn
