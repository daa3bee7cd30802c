// SPDX-License-Identifier: Apache-2.0
// Memory for time: a part of the model whose intermediate results are computed again when its gradient is needed.
// Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost" (arXiv:1604.06174).
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace hearth {

using Recomputable = std::function<Tensor(std::span<const Tensor>)>;

/// f(inputs), of which the tape keeps the inputs alone. The backward pass calls f again, with the same random numbers
/// and autocast, and runs the backward pass over that; results and gradients have the bits of f without recompute (the
/// gradient of an input that f uses more than once and others use too is another order of the same sum). `parameters`
/// are the leaves that f uses: by them the tape knows that a gradient is needed, even where the inputs want none. f
/// must give the same result for the same inputs, not return one of them itself, live as long as the result's graph,
/// and capture no results of recorded ops, which are inputs; while it runs again is_recomputing() is true. UsageError
/// for an empty f, no input or an undefined one, or a parameter that is no leaf.
HEARTH_API Tensor recompute(Recomputable f, std::vector<Tensor> inputs, const std::vector<Tensor>& parameters);
/// f(x), the same for one input.
HEARTH_API Tensor recompute(std::function<Tensor(const Tensor&)> f, const Tensor& x,
                            const std::vector<Tensor>& parameters);

}  // namespace hearth
