// SPDX-License-Identifier: Apache-2.0
// What linear and conv2d share above their kernels: the types they accept, and activation on the tape.
#pragma once

#include "autograd/node.h"
#include "core/tensor.h"
#include "ops/activation.h"

namespace hearth::detail {

/// DTypeError or DeviceError, naming `op`, unless x is floating, w has its type or is f32 beside a 16-bit x, b (where
/// defined) has the type of either, and all lie on one device.
void check_operand_types(const char* op, const Tensor& x, const Tensor& w, const Tensor& b);

/// Product of all extents but the last, which may be 0.
std::int64_t rows_of(const Shape& shape);

/// activation(y), in y's memory where possible. `reference` is set to what the gradient needs, if one is recorded.
Tensor activate_result(Activation activation, const Tensor& y, SavedTensor& reference);

/// The gradient of what went into the activation, contiguous, written over dy where nobody else holds it.
/// db [C], unless undefined, becomes its sum over the rows.
Tensor grad_before_activation(Activation activation, const SavedTensor& reference, Tensor dy, const Tensor& db);

}  // namespace hearth::detail
