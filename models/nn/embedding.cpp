// SPDX-License-Identifier: Apache-2.0
// The table-lookup layer.
#include "models/nn/embedding.h"

#include "ops/ops.h"

namespace hearth::nn {

Embedding::Embedding(std::int64_t rows, std::int64_t width, Init weight_init) {
  HEARTH_CHECK(ShapeError, rows >= 1 && width >= 1, "embedding layer: ", rows, " rows of width ", width,
               "; both are at least 1");
  weight = Tensor::zeros({rows, width});
  parameter("weight", weight, std::move(weight_init));
}

Tensor Embedding::forward(const Tensor& ids) { return embedding(weight, ids); }

}  // namespace hearth::nn
