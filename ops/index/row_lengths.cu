// SPDX-License-Identifier: Apache-2.0
#include "ops/index/row_lengths.h"

#include "core/cuda/kernel.h"
#include "core/dtype.h"

namespace hearth::kernels {
namespace {

constexpr int threads = 128;

/// One thread a row, from its end: reads the padding and one id more.
template <class T>
__global__ void lengths_of_rows(const T* ids, std::int64_t rows, std::int64_t cols, std::int64_t pad,
                                std::int32_t* lengths) {
  for (std::int64_t row = cuda::global_thread(); row < rows; row += cuda::global_threads()) {
    std::int64_t length = cols;
    while (length > 0 && ids[row * cols + length - 1] == pad) --length;
    lengths[row] = static_cast<std::int32_t>(length);
  }
}

}  // namespace

void row_lengths(cuda::Stream& stream, const Tensor& ids, std::int64_t pad, const Tensor& lengths) {
  const std::int64_t rows = ids.dim(0), cols = ids.dim(1);
  if (rows == 0) return;
  visit_dtype("row_lengths", ids.dtype(), Types<std::int32_t, std::int64_t>{}, [&]<class T>() {
    cuda::launch(stream, "row_lengths",
                 {cuda::blocks_for(rows, threads, 1 << 16), threads, 0, cuda::bytes_of(ids, lengths)},
                 lengths_of_rows<T>, ids.data<T>(), rows, cols, pad, lengths.data<std::int32_t>());
  });
}

}  // namespace hearth::kernels
