// SPDX-License-Identifier: Apache-2.0
#include "ops/index/row_lengths.h"

#include <limits>

#include "core/dtype.h"
#include "core/profiler.h"
#include "core/run_on.h"

namespace hearth {

Tensor row_lengths(const Tensor& ids, std::int64_t pad) {
  const char* const op = "row_lengths";
  HEARTH_CHECK(ShapeError, ids.defined() && ids.rank() == 2, op, ": ids ", describe(ids), "; they are [N, T]");
  HEARTH_CHECK(DTypeError, ids.dtype() == DType::i32 || ids.dtype() == DType::i64, op, ": ids are ", describe(ids),
               "; they must be i32 or i64");
  HEARTH_CHECK(ShapeError, ids.dim(1) <= std::numeric_limits<std::int32_t>::max(), op, ": rows of ", ids.dim(1),
               " ids; their lengths must fit i32");
  const profiler::Scope scope(op);
  const Tensor lengths = Tensor::empty({ids.dim(0)}, DType::i32, ids.device());
  run_on(ids.device(), [&](auto& stream) { kernels::row_lengths(stream, ids.contiguous(), pad, lengths); });
  return lengths;
}

namespace kernels {

void row_lengths(cpu::Stream&, const Tensor& ids, std::int64_t pad, const Tensor& lengths) {
  const std::int64_t rows = ids.dim(0), cols = ids.dim(1);
  visit_dtype("row_lengths", ids.dtype(), Types<std::int32_t, std::int64_t>{}, [&]<class T>() {
    for (std::int64_t row = 0; row < rows; ++row) {
      const T* const first = ids.data<T>() + row * cols;
      std::int64_t length = cols;
      while (length > 0 && first[length - 1] == pad) --length;
      lengths.data<std::int32_t>()[row] = static_cast<std::int32_t>(length);
    }
  });
}

}  // namespace kernels
}  // namespace hearth
