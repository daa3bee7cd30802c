// SPDX-License-Identifier: Apache-2.0
// Reading by index on the device, and its gradients: the positions are sorted by the element they came from, then each
// element of dx adds up its places in order, in f64. So bits do not depend on the device's scheduling.
#include "ops/index/index.h"

#include "core/cuda/elementwise.h"
#include "core/cuda/fault.h"
#include "core/dtype.h"
#include "ops/index/order.h"

namespace hearth::kernels {
namespace {

/// The index, or 0 and a note of the fault.
__device__ __forceinline__ std::int64_t checked(std::int64_t id, std::int64_t rows, cuda::FaultSlot* faults) {
  if (id >= 0 && id < rows) return id;
  cuda::report_fault(faults, cuda::FaultKind::index, id, rows);
  return 0;
}

/// y [outer, count, inner] = rows of x [outer, rows, inner]. One thread a word of 1 to 16 bytes; reads the row and
/// writes it once.
template <class Word>
__global__ void copy_rows(const Word* x, std::int64_t outer, std::int64_t rows, std::int64_t inner,
                          const std::int64_t* ids, std::int64_t count, cuda::FaultSlot* faults, Word* y) {
  for (std::int64_t at = cuda::global_thread(); at < outer * count * inner; at += cuda::global_threads()) {
    const std::int64_t column = at % inner, place = at / inner;
    const std::int64_t row = place / count * rows + checked(ids[place % count], rows, faults);
    y[at] = x[row * inner + column];
  }
}

/// y[o, j, i] = x[o, ids[o, j, i], i]. One thread an element.
template <class Word>
__global__ void copy_along(const Word* x, std::int64_t rows, std::int64_t inner, std::int64_t count, std::int64_t size,
                           const std::int64_t* ids, cuda::FaultSlot* faults, Word* y) {
  for (std::int64_t at = cuda::global_thread(); at < size; at += cuda::global_threads()) {
    const std::int64_t slab = at / (count * inner);
    y[at] = x[(slab * rows + checked(ids[at], rows, faults)) * inner + at % inner];
  }
}

/// keys = ids, those outside [0, rows) behind all others.
__global__ void keys_of_rows(const std::int64_t* ids, std::int64_t count, std::int64_t rows, std::int64_t* keys) {
  for (std::int64_t i = cuda::global_thread(); i < count; i += cuda::global_threads())
    keys[i] = ids[i] >= 0 && ids[i] < rows ? ids[i] : rows;
}

/// keys = the element of dx [outer, rows, inner] that each position of ids [outer, count, inner] read, those outside
/// behind all others.
__global__ void keys_of_elements(const std::int64_t* ids, std::int64_t size, std::int64_t rows, std::int64_t inner,
                                 std::int64_t count, std::int64_t elements, std::int64_t* keys) {
  for (std::int64_t at = cuda::global_thread(); at < size; at += cuda::global_threads()) {
    const std::int64_t id = ids[at], slab = at / (count * inner);
    keys[at] = id >= 0 && id < rows ? (slab * rows + id) * inner + at % inner : elements;
  }
}

/// The first of the n ascending keys that is not below `key`.
__device__ __forceinline__ std::int64_t first_not_below(const std::int64_t* keys, std::int64_t n, std::int64_t key) {
  std::int64_t low = 0, high = n;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (keys[middle] < key)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/// dx [outer, rows, inner] = sums of dy [outer, count, inner] over the positions of each row. One thread an element,
/// columns fastest. Reads dy once and writes dx once, beside log2(count) cached keys an element.
template <class T>
__global__ void sum_places(const T* dy, std::int64_t rows, std::int64_t inner, std::int64_t count, std::int64_t size,
                           const std::int64_t* keys, const std::int64_t* places, T* dx) {
  for (std::int64_t at = cuda::global_thread(); at < size; at += cuda::global_threads()) {
    const std::int64_t column = at % inner, row = at / inner % rows, slab = at / inner / rows;
    const T* const from = dy + slab * count * inner + column;
    double sum = 0;
    for (std::int64_t i = first_not_below(keys, count, row); i < count && keys[i] == row; ++i)
      sum += static_cast<double>(cuda::upcast(from[places[i] * inner]));
    dx[at] = cuda::cast_down<T>(static_cast<acc_t<T>>(sum));
  }
}

/// Words that rows of `bytes` bytes are made of: the widest that sizes and addresses allow.
template <class F>
void visit_word(std::int64_t bytes, const Tensor& x, const Tensor& y, F&& f) {
  const auto fits = [&](std::uintptr_t width) {
    return static_cast<std::uintptr_t>(bytes) % width == 0 &&
           reinterpret_cast<std::uintptr_t>(x.bytes()) % width == 0 &&
           reinterpret_cast<std::uintptr_t>(y.bytes()) % width == 0;
  };
  if (fits(16)) return f.template operator()<cuda::Pack<std::uint64_t, 2>>();
  if (fits(4)) return f.template operator()<std::uint32_t>();
  if (fits(2)) return f.template operator()<std::uint16_t>();
  f.template operator()<std::uint8_t>();
}

/// dx [.., rows, inner] of one sort; dx is [outer, rows, inner] and the positions count along dy's middle axis.
void sum_sorted(cuda::Stream& stream, const Tensor& dy, std::int64_t rows, std::int64_t inner, const Order& order,
                const Tensor& dx) {
  visit_dtype("index gradient", dy.dtype(), Floats{}, [&]<class T>() {
    cuda::launch(stream, "index gradient",
                 cuda::shape_over(dx.size()).moving(cuda::bytes_of(dy, order.keys, order.places, dx)), sum_places<T>,
                 dy.data<T>(), rows, inner, order.keys.size(), dx.size(), order.keys.data<std::int64_t>(),
                 order.places.data<std::int64_t>(), dx.data<T>());
  });
}

}  // namespace

void check_indices(cuda::Stream&, const char* op, const Tensor& ids, std::int64_t size) {
  // There is no row 0 to read instead.
  HEARTH_CHECK(IndexError, ids.size() == 0 || size > 0, op, ": ids of shape ", ids.shape(),
               " for an axis without elements; every index is outside");
}

void take_rows(cuda::Stream& stream, const Tensor& x, const AroundAxis& in, const Tensor& ids, const Tensor& y) {
  if (y.size() == 0) return;
  const std::int64_t bytes = in.inner * static_cast<std::int64_t>(size_of(x.dtype()));
  visit_word(bytes, x, y, [&]<class Word>() {
    const std::int64_t words = bytes / static_cast<std::int64_t>(sizeof(Word));
    cuda::launch(stream, "take_rows", cuda::shape_over(in.outer * ids.size() * words).moving(cuda::bytes_of(ids, y, y)),
                 copy_rows<Word>, reinterpret_cast<const Word*>(x.bytes()), in.outer, in.rows, words,
                 ids.data<std::int64_t>(), ids.size(), cuda::fault_slot(stream), reinterpret_cast<Word*>(y.bytes()));
  });
}

void sum_rows_by_id(cuda::Stream& stream, const Tensor& dy, const AroundAxis& in, const Tensor& ids, const Tensor& dx) {
  if (dx.size() == 0) return;
  const Tensor keys = Tensor::empty({ids.size()}, DType::i64, ids.device());
  cuda::launch(stream, "index keys", cuda::shape_over(ids.size()).moving(cuda::bytes_of(ids, keys)), keys_of_rows,
               ids.data<std::int64_t>(), ids.size(), in.rows, keys.data<std::int64_t>());
  sum_sorted(stream, dy, in.rows, in.inner, sort_places(stream, keys, in.rows + 1), dx);
}

void take_along(cuda::Stream& stream, const Tensor& x, const AroundAxis& in, const Tensor& ids, const Tensor& y) {
  if (y.size() == 0) return;
  visit_width(x.dtype(), [&]<class Word>() {
    cuda::launch(stream, "take_along", cuda::shape_over(y.size()).moving(cuda::bytes_of(ids, y, y)), copy_along<Word>,
                 reinterpret_cast<const Word*>(x.bytes()), in.rows, in.inner, ids.size() / (in.outer * in.inner),
                 y.size(), ids.data<std::int64_t>(), cuda::fault_slot(stream), reinterpret_cast<Word*>(y.bytes()));
  });
}

void sum_along(cuda::Stream& stream, const Tensor& dy, const AroundAxis& in, const Tensor& ids, const Tensor& dx) {
  if (dx.size() == 0) return;
  const Tensor keys = Tensor::empty({ids.size()}, DType::i64, ids.device());
  cuda::launch(stream, "index keys", cuda::shape_over(ids.size()).moving(cuda::bytes_of(ids, keys)), keys_of_elements,
               ids.data<std::int64_t>(), ids.size(), in.rows, in.inner, ids.size() / (in.outer * in.inner), dx.size(),
               keys.data<std::int64_t>());
  // Every element is a row of its own.
  sum_sorted(stream, dy, dx.size(), 1, sort_places(stream, keys, dx.size() + 1), dx);
}

}  // namespace hearth::kernels
