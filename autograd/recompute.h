// SPDX-License-Identifier: Apache-2.0
// Memory for time: a part of the network whose intermediate results are computed again when its gradient is wanted.
// Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost" (arXiv:1604.06174).
#pragma once

#include <functional>
#include <vector>

#include "hearth/core/tensor.h"

namespace hearth {

/// f(x), of which the tape keeps x alone. The backward pass calls f again, with the same random numbers and the same
/// autocast, and sweeps that; results and gradients have the bits of f(x) without recompute. `parameters` are the
/// leaves that f uses: through them the tape knows that a gradient is wanted, even where x wants none. f must give the
/// same result for the same x, must not return x itself, and must live as long as the result's graph; while it runs
/// again is_recomputing() is true. UsageError for an empty f, an undefined x, or a parameter that is no leaf.
Tensor recompute(std::function<Tensor(const Tensor&)> f, const Tensor& x, const std::vector<Tensor>& parameters);

}  // namespace hearth
