// SPDX-License-Identifier: Apache-2.0
// The backward pass over the tape.
#pragma once

#include "core/tensor.h"

namespace hearth {

/// Adds d(loss)/d(leaf) to the gradient of every leaf that `loss` depends on. `loss` has one element.
/// `seed` is d(total)/d(loss), for example a loss scale. Contributions are summed in a fixed order. A graph can be
/// run backward once. Throws UsageError if nothing on the tape leads to `loss`, ShapeError if it has more than one
/// element.
HEARTH_API void backward(const Tensor& loss, double seed = 1.0);

/// The same for any result: `dy` has the shape and type of `y` and is on its device.
HEARTH_API void backward(const Tensor& y, const Tensor& dy);

}  // namespace hearth
