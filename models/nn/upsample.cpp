// SPDX-License-Identifier: Apache-2.0
// The layer that makes images larger or smaller.
#include "models/nn/upsample.h"

namespace hearth::nn {

Tensor Upsample::forward(const Tensor& x) { return interpolate(x, options_); }

}  // namespace hearth::nn
