// SPDX-License-Identifier: Apache-2.0
// The check of a number that becomes elements of a tensor.
#pragma once

#include "core/tensor.h"

namespace hearth {

/// UsageError unless the number is a value of the tensor's integer type; floating types take any.
void require_value(const char* op, const Tensor& x, double number);

}  // namespace hearth
