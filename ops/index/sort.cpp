// SPDX-License-Identifier: Apache-2.0
#include "ops/index/sort.h"

#include "autograd/grad_mode.h"
#include "core/profiler.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/index/index.h"

namespace hearth {
namespace {

/// i64 [.., k, ..]: where the first k elements in order along the axis are.
Tensor sorted_indices(const char* op, const Tensor& x, std::int64_t k, int axis, bool descending) {
  const NoGrad without;
  const profiler::Scope scope(op);
  // Exchanging the axis and the last one is its own inverse.
  const Tensor rows = x.detach().transpose(axis, -1);
  const Tensor columns = Tensor::empty(rows.shape().with(x.rank() - 1, k), DType::i64, x.device());
  if (columns.size() != 0) {
    const std::int64_t cols = rows.dim(-1), count = rows.size() / cols;
    const Tensor flat = rows.contiguous().as_shape({count, cols});
    run_on(x.device(), [&](auto& stream) {
      kernels::sort_columns(stream, flat, descending, columns.as_shape({count, k}));
    });
  }
  return columns.transpose(axis, -1).contiguous();
}

int checked_axis(const char* op, const Tensor& x, int axis) {
  require_defined(op, "x", x);
  return require_axis(op, axis, x.shape());
}

}  // namespace

Tensor argsort(const Tensor& x, int axis, bool descending) {
  const int at = checked_axis("argsort", x, axis);
  return sorted_indices("argsort", x, x.dim(at), at, descending);
}

Sorted sort(const Tensor& x, int axis, bool descending) {
  const int at = checked_axis("sort", x, axis);
  const Tensor indices = sorted_indices("sort", x, x.dim(at), at, descending);
  return {gather(x, at, indices), indices};
}

Sorted topk(const Tensor& x, std::int64_t k, int axis, bool largest) {
  const int at = checked_axis("topk", x, axis);
  HEARTH_CHECK(ShapeError, k >= 0 && k <= x.dim(at), "topk: ", k, " elements of axis ", axis, " of ", describe(x),
               "; there are ", x.dim(at));
  const Tensor indices = sorted_indices("topk", x, k, at, largest);
  return {gather(x, at, indices), indices};
}

}  // namespace hearth
