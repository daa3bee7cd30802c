// SPDX-License-Identifier: Apache-2.0
#include "ops/written_value.h"

#include <cmath>

namespace hearth {

void require_value(const char* op, const Tensor& x, double number) {
  if (is_floating(x.dtype())) return;
  const double low = x.dtype() == DType::i32 ? -0x1p31 : x.dtype() == DType::i64 ? -0x1p63 : 0.0;
  const double end = x.dtype() == DType::i32   ? 0x1p31
                     : x.dtype() == DType::i64 ? 0x1p63
                     : x.dtype() == DType::u8  ? 256.0
                                               : 2.0;
  HEARTH_CHECK(UsageError, number >= low && number < end && std::trunc(number) == number, op, ": the number ", number,
               " is not a value of ", x.dtype(), "; convert the tensor to a floating type first");
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  const int lead = to.rank() - from.rank();
  bool fits = lead >= 0;
  for (int axis = 0; fits && axis < from.rank(); ++axis) fits = from[axis] == 1 || from[axis] == to[axis + lead];
  return fits;
}

}  // namespace hearth
