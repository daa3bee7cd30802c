// SPDX-License-Identifier: Apache-2.0
// What the parameters of all norms have in common.
#pragma once

#include <type_traits>

#include "core/tensor.h"

namespace hearth {

/// The type of a norm's parameters and statistics: f64 for f64 inputs, else f32.
inline DType norm_parameter_dtype(DType x) { return x == DType::f64 ? DType::f64 : DType::f32; }

/// The type of y beside x: x's, or, where `low_precision` and x is f32, the one of autocast where it is in force.
DType norm_result_dtype(const Tensor& x, bool low_precision);

/// f.operator()<D>() for the type of y, or of its gradient, beside x of type T.
template <class T, class F>
void visit_norm_result(const char* op, DType result, F&& f) {
  if constexpr (std::is_same_v<T, float>)
    visit_dtype(op, result, Types<float, f16, bf16>{}, f);
  else
    f.template operator()<T>();
}

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
