// SPDX-License-Identifier: Apache-2.0
// The checks of what becomes elements of a tensor: a number, or values that are repeated.
#pragma once

#include "core/tensor.h"

namespace hearth {

/// UsageError unless the number is a value of the tensor's integer type; floating types take any.
void require_value(const char* op, const Tensor& x, double number);

/// Whether values of shape `from` are repeated to `to`: aligned at the last axis, each extent is equal or 1.
bool broadcasts_to(const Shape& from, const Shape& to);

}  // namespace hearth
