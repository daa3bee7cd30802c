// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace hearth {

/// 1 at the position of each label and 0 elsewhere: labels [...] of i32 or i64 give i64 [..., classes].
/// IndexError for a label outside 0..classes-1, on a CUDA device when the host next waits; ShapeError for classes below
/// 1; DTypeError.
HEARTH_API Tensor one_hot(const Tensor& labels, std::int64_t classes);

}  // namespace hearth
