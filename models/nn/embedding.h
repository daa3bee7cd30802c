// SPDX-License-Identifier: Apache-2.0
// The table-lookup layer.
#pragma once

#include "models/nn/module.h"

namespace hearth::nn {

/// ids [...] (i32 or i64) to rows of weight [rows, width]: y [..., width].
class HEARTH_API Embedding : public Module {
 public:
  /// ShapeError unless rows and width are at least 1.
  Embedding(std::int64_t rows, std::int64_t width, Init weight_init = init::normal(1.0));
  Tensor forward(const Tensor& ids) override;

  Tensor weight;
};

}  // namespace hearth::nn
