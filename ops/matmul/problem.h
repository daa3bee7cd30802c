// SPDX-License-Identifier: Apache-2.0
// A matrix product as its implementations see it, on every device.
#pragma once

#include <compare>
#include <cstdint>
#include <iosfwd>

#include "core/dtype.h"
#include "ops/activation.h"

namespace hearth {

/// A (batched) matrix product C = activation(op(A) op(B) [+ bias] [+ C]) [* slope], row-major; the key of its
/// implementations and of their plans. op(A) is [m,k]: stored [m,k], or [k,m] when transposed; op(B) is [k,n]: stored
/// [k,n], or [n,k] when transposed.
struct MatmulProblem {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t lda = 0, ldb = 0, ldc = 0;  ///< elements between stored rows; 0 means densely stored
  /// Elements between the matrices of the batch; -1 means densely stored, 0 (a and b only) one matrix for all.
  std::int64_t batch_stride_a = -1, batch_stride_b = -1, batch_stride_c = -1;
  /// All f64; or any mix of f32 and one 16-bit type, summed in f32. f32 beside 16 bits may be rounded to their
  /// type for the arithmetic.
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  bool accumulate = false;     ///< add to what C holds
  bool deterministic = false;  ///< as in ConvProblem
  bool repeatable = true;      ///< as in ConvProblem
  bool has_bias = false;       ///< n values are added to every row
  // Of devices only: on the CPU what follows the product is done by kernels of its own.
  Activation activation = Activation::none;
  bool keeps_pre = false;  ///< what went into the activation is stored beside C
  /// C is multiplied by the slope of this activation, which the operands say where to take; without an activation,
  /// bias and sum.
  Activation slope = Activation::none;
  bool sums_a = false;  ///< the rows of op(A) are summed over k
  bool tf32 = false;    ///< f32 operands may be rounded to TF32
  int device = 0;       ///< which of its type

  auto operator<=>(const MatmulProblem&) const = default;
};

/// In words; on one device two problems of a library have the same if and only if they are the same, deterministic mode
/// aside.
std::ostream& operator<<(std::ostream& out, const MatmulProblem& problem);

}  // namespace hearth
