// SPDX-License-Identifier: Apache-2.0
// All rows are sorted at once by the radix sort of order.h: the key is the row, then 32 bits of the element as a number
// that sorts as it does. Elements of 64 bits are sorted by their lower half first; the sort is stable.
#include "core/cuda/elementwise.h"
#include "core/dtype.h"
#include "ops/device/ordered.cuh"
#include "ops/index/order.h"
#include "ops/index/sort.h"

namespace hearth::kernels {
namespace {

/// keys[i]: row and the 32 bits from `shift` of the element at places[i] (null: at i). One thread a key.
template <class T>
__global__ void sort_keys(const T* x, std::int64_t n, std::int64_t cols, const std::int64_t* places, int shift,
                          bool descending, std::int64_t* keys) {
  for (std::int64_t i = cuda::global_thread(); i < n; i += cuda::global_threads()) {
    const std::int64_t at = places == nullptr ? i : places[i];
    const std::uint64_t value = descending ? ~cuda::ordered(x[at]) : cuda::ordered(x[at]);
    keys[i] = at / cols << 32 | static_cast<std::int64_t>(value >> shift & 0xffffffffu);
  }
}

/// columns [rows, k]: the first k of each row. `order` numbers `places` (null: the elements). One thread a result.
__global__ void take_columns(const std::int64_t* order, const std::int64_t* places, std::int64_t size, std::int64_t k,
                             std::int64_t cols, std::int64_t* columns) {
  for (std::int64_t i = cuda::global_thread(); i < size; i += cuda::global_threads()) {
    const std::int64_t at = order[i / k * cols + i % k];
    columns[i] = (places == nullptr ? at : places[at]) % cols;
  }
}

}  // namespace

void sort_columns(cuda::Stream& stream, const Tensor& x, bool descending, const Tensor& columns) {
  const std::int64_t rows = x.dim(0), cols = x.dim(1), n = x.size();
  HEARTH_CHECK(ShapeError, rows < std::int64_t{1} << 30, "sort: ", rows, " rows; on a CUDA device they are below 2^30");
  visit_dtype("sort", x.dtype(), AllTypes{}, [&]<class T>() {
    const auto sort_by = [&](const std::int64_t* places, int shift) {
      const Tensor keys = Tensor::empty({n}, DType::i64, x.device());
      cuda::launch(stream, "sort keys", cuda::shape_over(n).moving(cuda::bytes_of(x, keys)), sort_keys<T>, x.data<T>(),
                   n, cols, places, shift, descending, keys.data<std::int64_t>());
      return sort_places(stream, keys, rows << 32).places;
    };
    Tensor lower;
    const std::int64_t* places = nullptr;
    if constexpr (sizeof(T) == 8) {
      lower = sort_by(nullptr, 0);
      places = lower.data<std::int64_t>();
    }
    const Tensor order = sort_by(places, sizeof(T) == 8 ? 32 : 0);
    cuda::launch(stream, "sort columns", cuda::shape_over(columns.size()).moving(cuda::bytes_of(order, columns)),
                 take_columns, order.data<std::int64_t>(), places, columns.size(), columns.dim(1), cols,
                 columns.data<std::int64_t>());
  });
}

}  // namespace hearth::kernels
