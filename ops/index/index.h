// SPDX-License-Identifier: Apache-2.0
// Reading by index. Indices are i32 or i64, never negative, and each is checked: IndexError names the index, the size
// and the position; on a CUDA device it names index and size when the host next waits. Gradients are sums over equal
// indices, taken in f64 in order of the positions.
#pragma once

#include <cstdint>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

/// Rows of a table: w [V, C] of any floating type, ids of any shape [...]; y [..., C].
/// ShapeError unless w has rank 2 and at least one row.
HEARTH_API Tensor embedding(const Tensor& w, const Tensor& ids);

/// Positions `ids` [n] along `axis` of x: that extent becomes n. Any element type.
HEARTH_API Tensor index_select(const Tensor& x, int axis, const Tensor& ids);

/// Single elements along an axis: y[.., j, ..] = x[.., ids[.., j, ..], ..]. ids has x's shape except on `axis`; y has
/// that of ids. Any element type.
HEARTH_API Tensor gather(const Tensor& x, int axis, const Tensor& ids);

namespace kernels {

/// IndexError, naming `op`, unless each of the i64 `ids` lies in [0, size). On a CUDA device nothing is read here: the
/// kernels that take by index read row 0 for one outside and report it when the host next waits (core/cuda/fault.h).
void check_indices(cpu::Stream&, const char* op, const Tensor& ids, std::int64_t size);
void check_indices(cuda::Stream&, const char* op, const Tensor& ids, std::int64_t size);

/// A tensor [outer, rows, inner] around one axis.
struct AroundAxis {
  std::int64_t outer = 1, rows = 1, inner = 1;
};

/// y [outer, count, inner] = rows `ids` (i64 [count]) of x. Contiguous, any element type.
void take_rows(cpu::Stream&, const Tensor& x, const AroundAxis& in, const Tensor& ids, const Tensor& y);
void take_rows(cuda::Stream&, const Tensor& x, const AroundAxis& in, const Tensor& ids, const Tensor& y);
/// dx: the sums of the rows of dy [outer, count, inner] by id; zeros for ids that never occur.
void sum_rows_by_id(cpu::Stream&, const Tensor& dy, const AroundAxis& in, const Tensor& ids, const Tensor& dx);
void sum_rows_by_id(cuda::Stream&, const Tensor& dy, const AroundAxis& in, const Tensor& ids, const Tensor& dx);

/// y[o, j, i] = x[o, ids[o, j, i], i] with ids (i64), y [outer, count, inner].
void take_along(cpu::Stream&, const Tensor& x, const AroundAxis& in, const Tensor& ids, const Tensor& y);
void take_along(cuda::Stream&, const Tensor& x, const AroundAxis& in, const Tensor& ids, const Tensor& y);
/// dx[o, r, i]: the sum of dy[o, j, i] over the j with ids[o, j, i] = r.
void sum_along(cpu::Stream&, const Tensor& dy, const AroundAxis& in, const Tensor& ids, const Tensor& dx);
void sum_along(cuda::Stream&, const Tensor& dy, const AroundAxis& in, const Tensor& ids, const Tensor& dx);

/// Visits the unsigned type of as many bytes: copying needs no arithmetic.
template <class F>
void visit_width(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1:
      return f.template operator()<std::uint8_t>();
    case 2:
      return f.template operator()<std::uint16_t>();
    case 4:
      return f.template operator()<std::uint32_t>();
    default:
      return f.template operator()<std::uint64_t>();
  }
}

}  // namespace kernels
}  // namespace hearth
