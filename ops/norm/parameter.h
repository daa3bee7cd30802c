// SPDX-License-Identifier: Apache-2.0
// What the parameters of all norms have in common.
#pragma once

#include "hearth/core/tensor.h"

namespace hearth {

/// The type of a norm's parameters and statistics: f64 for f64 inputs, else f32.
inline DType norm_parameter_dtype(DType x) { return x == DType::f64 ? DType::f64 : DType::f32; }

/// UsageError, ShapeError, DTypeError or DeviceError unless `parameter` is [C] for x [..., C], in norm_parameter_dtype
/// and on its device.
void check_norm_parameter(const char* op, const char* name, const Tensor& parameter, const Tensor& x);

}  // namespace hearth
