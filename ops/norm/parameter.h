// SPDX-License-Identifier: Apache-2.0
// What the parameters of all norms have in common.
#pragma once

#include "core/tensor.h"

namespace hearth {

/// The type of a norm's parameters and statistics: f64 for f64 inputs, else f32.
inline DType norm_parameter_dtype(DType x) { return x == DType::f64 ? DType::f64 : DType::f32; }

/// UsageError, ShapeError, DTypeError or DeviceError unless `parameter` is [columns], in norm_parameter_dtype and on
/// x's device.
void check_norm_parameter(const char* op, const char* name, const Tensor& parameter, const Tensor& x,
                          std::int64_t columns);
/// The same for x [..., columns].
inline void check_norm_parameter(const char* op, const char* name, const Tensor& parameter, const Tensor& x) {
  check_norm_parameter(op, name, parameter, x, x.dim(-1));
}

/// UsageError, DTypeError or ShapeError unless x is floating and has an axis to normalise over, and eps is finite and
/// at least 0.
void check_norm_rows(const char* op, const Tensor& x, double eps);
/// UsageError unless eps is finite and at least 0.
void check_norm_eps(const char* op, double eps);

}  // namespace hearth
