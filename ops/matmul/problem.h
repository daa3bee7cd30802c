// SPDX-License-Identifier: Apache-2.0
// A matrix product as its implementations see it, on every device.
#pragma once

#include <compare>
#include <cstdint>

#include "core/dtype.h"

namespace hearth {

/// A (batched) matrix product C = op(A) op(B) [+ bias] [+ C], row-major; the key of its plan.
/// op(A) is [m,k]: stored [m,k], or [k,m] when transposed; op(B) is [k,n]: stored [k,n], or [n,k] when transposed.
struct MatmulProblem {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t lda = 0, ldb = 0, ldc = 0;  ///< elements between stored rows; 0 means densely stored
  /// Elements between the matrices of the batch; -1 means densely stored, 0 (a and b only) one matrix for all.
  std::int64_t batch_stride_a = -1, batch_stride_b = -1, batch_stride_c = -1;
  /// f32 with f32 gives f32. If either of a and b is bf16 the other may be f32 and is rounded to bf16 for the
  /// arithmetic; sums are f32 and c is f32 or bf16.
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  bool accumulate = false;     ///< add to what C holds
  bool deterministic = false;  ///< as in ConvProblem

  auto operator<=>(const MatmulProblem&) const = default;
};

}  // namespace hearth
