// SPDX-License-Identifier: Apache-2.0
// Parameters that are a formula of their names, so that a golden file of a large network is small.
#pragma once

#include <cmath>

#include "models/nn/module.h"

namespace hearth::test {

/// The values of tests/golden/make_fcos.py, for a model of f64: element i, in PyTorch's order, of a parameter of n
/// bytes of name that add up to s is ((37 i + s) % 1009 - 504) / 504 times 1.5 / sqrt(fan in) of filters and 0.1 of
/// others, and norms are around 1.
inline void set_formula_weights(nn::Module& model) {
  for (const NamedTensor& named : model.parameters()) {
    Tensor& x = *named.tensor;
    const bool is_filter = x.rank() == 4, is_norm_weight = x.rank() == 1 && named.name.ends_with("weight");
    std::int64_t sum = 0;
    for (const char c : named.name) sum += static_cast<unsigned char>(c);
    const double scale = is_filter ? 1.5 / std::sqrt(static_cast<double>(x.size() / x.dim(0))) : 0.1;
    const std::int64_t rows = is_filter ? x.dim(1) : 1, columns = is_filter ? x.dim(2) : 1,
                       channels = is_filter ? x.dim(3) : 1;
    double* const to = x.data<double>();
    for (std::int64_t i = 0; i < x.size(); ++i) {
      // [K, R, S, C] here, [K, C, R, S] there.
      const std::int64_t c = i % channels, place = i / channels, s = place % columns, r = place / columns % rows;
      const std::int64_t there = is_filter ? ((place / columns / rows * channels + c) * rows + r) * columns + s : i;
      to[i] = (is_norm_weight ? 1.0 : 0.0) + scale * static_cast<double>((37 * there + sum) % 1009 - 504) / 504;
    }
  }
}

}  // namespace hearth::test
