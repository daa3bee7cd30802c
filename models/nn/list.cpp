// SPDX-License-Identifier: Apache-2.0
// Modules in a row.
#include "models/nn/list.h"

#include "models/nn/norm.h"

namespace hearth::nn {

Tensor ModuleList::run(const Tensor& x, std::size_t first, std::size_t end) {
  HEARTH_CHECK(IndexError, first <= end && end <= modules_.size(), "module list: modules ", first, " to ", end, " of ",
               modules_.size());
  Tensor y = x;
  for (std::size_t i = first; i < end; ++i) {
    auto* const convolution = dynamic_cast<Conv2d*>(modules_[i].get());
    auto* const norm = i + 1 < end ? dynamic_cast<BatchNorm*>(modules_[i + 1].get()) : nullptr;
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
