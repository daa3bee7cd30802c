// SPDX-License-Identifier: Apache-2.0
#include "ops/argument.h"

namespace hearth {

void require_defined(const char* op, const char* argument, const Tensor& tensor) {
  HEARTH_CHECK(UsageError, tensor.defined(), op, ": ", argument, " is absent (an undefined tensor); pass a tensor");
}

void require_floating(const char* op, const char* argument, const Tensor& tensor) {
  require_defined(op, argument, tensor);
  HEARTH_CHECK(DTypeError, is_floating(tensor.dtype()), op, ": ", argument, " is ", describe(tensor),
               "; convert it to f32, f64, f16 or bf16");
}

void require_index_type(const char* op, const char* argument, const Tensor& tensor) {
  require_defined(op, argument, tensor);
  HEARTH_CHECK(DTypeError, tensor.dtype() == DType::i32 || tensor.dtype() == DType::i64, op, ": ", argument, " is ",
               describe(tensor), "; indices are i32 or i64");
}

void require_same_kind(const char* op, const char* name_a, const Tensor& a, const char* name_b, const Tensor& b) {
  require_defined(op, name_a, a);
  require_defined(op, name_b, b);
  HEARTH_CHECK(DTypeError, a.dtype() == b.dtype(), op, ": ", name_a, " is ", describe(a), " but ", name_b, " is ",
               describe(b), "; convert one with cast");
  HEARTH_CHECK(DeviceError, a.device() == b.device(), op, ": ", name_a, " is on ", name_of(a.device()), " but ", name_b,
               " is on ", name_of(b.device()), "; move one with to(device)");
}

void require_probability(const char* op, const char* name, double p) {
  HEARTH_CHECK(UsageError, p >= 0 && p < 1, op, ": ", name, " is ", p, "; it must be at least 0 and below 1");
}

int require_axis(const char* op, int axis, const Shape& shape) {
  const std::int64_t rank = shape.rank();
  // In 64 bits: an axis near the smallest int must not wrap around.
  const std::int64_t normalized = axis < 0 ? axis + rank : axis;
  HEARTH_CHECK(ShapeError, normalized >= 0 && normalized < rank, op, ": axis ", axis, " is outside shape ", shape,
               "; it must lie in [", -rank, ", ", rank, ")");
  return static_cast<int>(normalized);
}

}  // namespace hearth
