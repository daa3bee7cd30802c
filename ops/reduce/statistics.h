// SPDX-License-Identifier: Apache-2.0
// Reductions that are made of others. Axes are as in reduce.h: none means all.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace hearth {

struct VarianceOptions {
  double correction = 1;  ///< taken off the number of elements: 1 for the unbiased estimate, 0 for the mean square
  bool keep_dims = false;
};

/// The variance over these axes: the sum of (x - mean)^2, over the number of elements less the correction. x floating.
/// Where that is 0 or below: NaN for a sum of 0, as over no elements, else infinity. 16-bit types are computed in f32.
/// ShapeError for an axis out of range; DTypeError.
HEARTH_API Tensor var(const Tensor& x, const std::vector<int>& axes = {}, const VarianceOptions& options = {});

/// log(sum(exp(x))) over these axes, without overflow: infinities give what the limit is. x floating. The gradient is
/// the softmax, and 0 where all are -infinity; over no elements it is -infinity. 16-bit types are computed in f32.
/// ShapeError for an axis out of range; DTypeError.
HEARTH_API Tensor logsumexp(const Tensor& x, const std::vector<int>& axes, KeepDims keep_dims = false);

}  // namespace hearth
