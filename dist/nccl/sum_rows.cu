// SPDX-License-Identifier: Apache-2.0
#include "dist/nccl/sum_rows.h"

#include "core/cuda/elementwise.h"
#include "core/error.h"

namespace hearth::dist::nccl {
namespace {

// Of 2^12 rows.
constexpr int levels = 13;

/// Each thread adds up one column. Level l of its stack holds the sum of 2^l rows where bit l of the row's number is
/// set, so that pairs are those of neighbours; what is left of uneven numbers comes last.
template <class T>
__global__ void sum_rows_by_pairs(const T* rows, int row_count, std::int64_t count, T* sum) {
  using A = acc_t<T>;
  for (std::int64_t i = cuda::global_thread(); i < count; i += cuda::global_threads()) {
    A held[levels];
    A value = A(0);
    for (int row = 0; row < row_count; ++row) {
      value = cuda::upcast(rows[row * count + i]);
      int level = 0;
      for (; (row >> level & 1) != 0; ++level) value = held[level] + value;
      if (row + 1 < row_count)
        held[level] = value;
      else
        for (++level; (row >> level) != 0; ++level)
          if ((row >> level & 1) != 0) value = held[level] + value;
    }
    sum[i] = cuda::cast_down<T>(value);
  }
}

}  // namespace

void sum_rows(cuda::Stream& stream, DType dtype, const std::byte* rows, int row_count, std::int64_t count,
              std::byte* sum) {
  HEARTH_CHECK(UsageError, row_count >= 1 && row_count <= 1 << (levels - 1), "sum of rows: there are ", row_count,
               "; 1..4096 are possible");
  visit_dtype("sum of rows", dtype, Floats{}, [&]<class T>() {
    cuda::launch(stream, "sum_rows_by_pairs",
                 {cuda::blocks_for(count, cuda::element_block), cuda::element_block, 0,
                  (row_count + 1) * count * static_cast<std::int64_t>(sizeof(T))},
                 sum_rows_by_pairs<T>, reinterpret_cast<const T*>(rows), row_count, count, reinterpret_cast<T*>(sum));
  });
}

}  // namespace hearth::dist::nccl
