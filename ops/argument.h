// SPDX-License-Identifier: Apache-2.0
// The argument checks that most ops begin with. Each names the op, the argument and what was found.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace hearth {

/// UsageError if `tensor` is absent.
void require_defined(const char* op, const char* argument, const Tensor& tensor);
/// UsageError if absent, DTypeError unless f32, f64, f16 or bf16.
void require_floating(const char* op, const char* argument, const Tensor& tensor);
/// UsageError if absent, DTypeError unless i32 or i64.
void require_index_type(const char* op, const char* argument, const Tensor& tensor);
/// Both given, of one type (DTypeError) and on one device (DeviceError).
void require_same_kind(const char* op, const char* name_a, const Tensor& a, const char* name_b, const Tensor& b);
/// UsageError unless p is in [0, 1). `name` as in "the probability".
void require_probability(const char* op, const char* name, double p);
/// `axis` in [0, rank), negative ones counted from the end; ShapeError naming the op otherwise.
int require_axis(const char* op, int axis, const Shape& shape);

}  // namespace hearth
