// SPDX-License-Identifier: Apache-2.0
// Modules in a row.
#include "models/nn/list.h"

namespace hearth::nn {

Tensor ModuleList::run(const Tensor& x, std::size_t first, std::size_t end) {
  HEARTH_CHECK(IndexError, first <= end && end <= modules_.size(), "module list: modules ", first, " to ", end, " of ",
               modules_.size());
  Tensor y = x;
  for (std::size_t i = first; i < end; ++i) y = recompute_ ? recomputed(*modules_[i], y) : (*modules_[i])(y);
  return y;
}

}  // namespace hearth::nn
