// SPDX-License-Identifier: Apache-2.0
// Conversion between element types.
#pragma once

#include "core/tensor.h"

namespace hearth {

/// x converted to `dtype`: floats rounded to nearest even, floats to integers truncated and saturated. The gradient is
/// converted back; a result of integer type carries none. x itself if it has the type already.
HEARTH_API Tensor cast(const Tensor& x, DType dtype);

}  // namespace hearth
