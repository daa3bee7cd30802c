// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/cast.h"

#include "autograd/record.h"
#include "ops/argument.h"

namespace hearth {

Tensor cast(const Tensor& x, DType dtype) {
  require_defined("cast", "x", x);
  if (x.dtype() == dtype) return x;
  if (!is_floating(dtype)) return x.to(dtype);
  return detail::cast(x, dtype);
}

}  // namespace hearth
