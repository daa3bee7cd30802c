// SPDX-License-Identifier: Apache-2.0
// Reading by index on the device, and its gradients: the positions are sorted by the element they came from, then each
// element's are added up in order, in f64: by segments of 64, and where an element is in several by segments of their
// sums. So bits do not depend on the device's scheduling, and no thread adds more than 64 rows, however often one is
// read.
#include "ops/index/index.h"

#include <algorithm>

#include "core/cuda/elementwise.h"
#include "core/cuda/fault.h"
#include "core/dtype.h"
#include "ops/device/words.cuh"
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

/// Rows to be added up by key. Neighbours with one key that is below the bound make a run.
template <class In>
struct Runs {
  const In* x;               ///< [outer, count, inner]
  const std::int64_t* keys;  ///< [count]; ascending but for those of no row, which are negative or not below the bound
  const std::int64_t* places;  ///< of the rows in x; null: in their order
  std::int64_t outer, count, inner, bound;

  __device__ bool is_row(std::int64_t key) const { return key >= 0 && key < bound; }
  /// Whether the run of row i - 1 goes on at i.
  __device__ bool goes_on(std::int64_t i) const {
    return i > 0 && i < count && keys[i] == keys[i - 1] && is_row(keys[i]);
  }
};

constexpr std::int64_t segment = 64;

/// Segments of 64 rows, a thread `width` columns of one: the sums of the runs that lie in the segment go to dx [outer,
/// bound, inner]; those of the run that began before it and of the one that goes on behind it to `parts`, [outer, 2
/// segments, inner], the former first, with their keys, -1 where there is none. Where that is one run the second of the
/// two is 0, so that its parts are neighbours. Reads x once.
template <class In, class T, int width>
__global__ void sum_segments(Runs<In> in, std::int64_t segments, T* dx, double* parts, std::int64_t* part_keys) {
  const std::int64_t packs = in.inner / width;
  for (std::int64_t at = cuda::global_thread(); at < in.outer * segments * packs; at += cuda::global_threads()) {
    const std::int64_t column = at % packs * width, here = at / packs % segments, slab = at / packs / segments;
    const std::int64_t begin = here * segment, end = begin + segment < in.count ? begin + segment : in.count;
    const bool goes_on = in.goes_on(end);
    bool began_before = in.goes_on(begin);
    if (parts != nullptr && slab == 0 && column == 0) {
      part_keys[2 * here] = began_before ? in.keys[begin] : -1;
      part_keys[2 * here + 1] = goes_on ? in.keys[end - 1] : -1;
    }
    double sum[width] = {};
    const auto store_part = [&](int which) {
      double* const to = parts + ((slab * segments + here) * 2 + which) * in.inner + column;
      for (int k = 0; k < width; ++k) to[k] = sum[k];
    };
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t key = in.keys[i];
      if (!in.is_row(key)) continue;
      const std::int64_t row = in.places == nullptr ? i : in.places[i];
      const auto value = cuda::load_pack<width>(in.x + (slab * in.count + row) * in.inner + column);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) sum[k] += static_cast<double>(cuda::upcast(value.at[k]));
      const bool is_last = i + 1 == end;
      if (!is_last && in.goes_on(i + 1)) continue;
      if (began_before) store_part(0);
      if (is_last && goes_on) {
        if (began_before)
          for (double& part : sum) part = 0;
        store_part(1);
      } else if (!began_before) {
        cuda::Pack<T, width> result;
        HEARTH_UNROLL
        for (int k = 0; k < width; ++k) result.at[k] = cuda::cast_down<T>(static_cast<acc_t<T>>(sum[k]));
        cuda::store_pack(dx + (slab * in.bound + key) * in.inner + column, result);
      }
      began_before = false;
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) sum[k] = 0;
    }
  }
}

/// The runs of `in` added up; what is left of those that several segments share, in a shorter list.
template <class In, class T>
void sum_runs(cuda::Stream& stream, const Runs<In>& in, const Tensor& dx) {
  const std::int64_t segments = (in.count + segment - 1) / segment;
  Tensor parts, keys;
  if (segments > 1) {
    parts = Tensor::empty(Shape{in.outer, 2 * segments, in.inner}, DType::f64, dx.device());
    keys = Tensor::empty(Shape{2 * segments}, DType::i64, dx.device());
  }
  const std::int64_t wide = in.outer * in.inner, list = in.places == nullptr ? 8 : 16;
  const std::int64_t moved = in.count * (wide * static_cast<std::int64_t>(sizeof(In)) + list) +
                             std::min(in.count, in.bound) * wide * static_cast<std::int64_t>(sizeof(T)) +
                             cuda::bytes_of(parts, keys);
  const auto sum = [&]<int width>() {
    cuda::launch(stream, "index gradient", cuda::shape_over(in.outer * segments * (in.inner / width)).moving(moved),
                 sum_segments<In, T, width>, in, segments, dx.data<T>(),
                 parts.defined() ? parts.data<double>() : nullptr,
                 keys.defined() ? keys.data<std::int64_t>() : nullptr);
  };
  const auto fits = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  constexpr int pack = cuda::pack_size<In>;
  if (in.inner % pack == 0 && fits(in.x) && fits(dx.bytes()))
    sum.template operator()<pack>();
  else
    sum.template operator()<1>();
  if (segments == 1) return;
  const Runs<double> rest{
      parts.data<double>(), keys.data<std::int64_t>(), nullptr, in.outer, 2 * segments, in.inner, in.bound};
  sum_runs<double, T>(stream, rest, dx);
}

/// dx [outer, rows, inner] = sums of dy [outer, count, inner] over the positions of each row.
void sum_sorted(cuda::Stream& stream, const Tensor& dy, const AroundAxis& around, const Order& order,
                const Tensor& dx) {
  dx.fill_(0);
  if (order.keys.size() == 0) return;
  visit_dtype("index gradient", dy.dtype(), Floats{}, [&]<class T>() {
    sum_runs<T, T>(stream,
                   {dy.data<T>(), order.keys.data<std::int64_t>(), order.places.data<std::int64_t>(), around.outer,
                    order.keys.size(), around.inner, around.rows},
                   dx);
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
  cuda::visit_word(bytes, x, y, [&]<class Word>() {
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
  sum_sorted(stream, dy, in, sort_places(stream, keys, in.rows + 1), dx);
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
  sum_sorted(stream, dy, {1, dx.size(), 1}, sort_places(stream, keys, dx.size() + 1), dx);
}

}  // namespace hearth::kernels
