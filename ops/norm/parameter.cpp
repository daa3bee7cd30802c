// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/parameter.h"

#include <cmath>

#include "autograd/grad_mode.h"
#include "ops/argument.h"

namespace hearth {

DType norm_result_dtype(const Tensor& x, bool low_precision) {
  return low_precision && x.dtype() == DType::f32 ? autocast_dtype().value_or(DType::f32) : x.dtype();
}

void check_norm_parameter(const char* op, const char* name, const Tensor& parameter, const Tensor& x,
                          std::int64_t columns) {
  HEARTH_CHECK(UsageError, parameter.defined(), op, ": ", name, " is absent; x is ", describe(x));
  HEARTH_CHECK(ShapeError, parameter.rank() == 1 && parameter.dim(0) == columns, op, ": ", name, " is ",
               parameter.shape(), " but for x ", x.shape(), " it must be [", columns, "]");
  const DType wide = norm_parameter_dtype(x.dtype());
  HEARTH_CHECK(DTypeError, parameter.dtype() == wide, op, ": ", name, " is ", parameter.dtype(), "; for x of ",
               x.dtype(), " it must be ", wide);
  // Statistics are no inputs of the op, so nothing else looks at them.
  HEARTH_CHECK(DeviceError, parameter.device() == x.device(), op, ": ", name, " is on ", parameter.device(),
               " but x on ", x.device(), "; move one with to(device)");
}

void check_norm_rows(const char* op, const Tensor& x, double eps) {
  require_floating(op, "x", x);
  HEARTH_CHECK(ShapeError, x.rank() >= 1, op, ": x is a scalar; it needs an axis to normalise over");
  check_norm_eps(op, eps);
}

void check_norm_eps(const char* op, double eps) {
  HEARTH_CHECK(UsageError, std::isfinite(eps) && eps >= 0.0, op, ": eps is ", eps,
               "; it must be finite and at least 0");
}

}  // namespace hearth
