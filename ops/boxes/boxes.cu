// SPDX-License-Identifier: Apache-2.0
// One thread a box, or a pair of boxes; each number is read and written once, those of pairs mostly from the cache.
#include "core/cuda/elementwise.h"
#include "core/dtype.h"
#include "ops/boxes/box_functors.h"
#include "ops/boxes/boxes.h"

namespace hearth::kernels {
namespace {

using box_functors::NumbersAs;

template <class F, class P>
__global__ void values_of_boxes(const P* a, const P* b, std::int64_t period, NumbersAs<P> numbers, std::int64_t n,
                                P* y) {
  for (std::int64_t i = cuda::global_thread(); i < n; i += cuda::global_threads())
    F::value(a + i * 4, b + i % period * 4, numbers.at, y + i * F::outputs);
}

template <class F, class P>
__global__ void slopes_of_boxes(const P* a, const P* b, std::int64_t period, NumbersAs<P> numbers, std::int64_t n,
                                const P* dy, P* da, P* db) {
  for (std::int64_t i = cuda::global_thread(); i < n; i += cuda::global_threads()) {
    P of_a[4], of_b[4];
    F::slope(a + i * 4, b + i % period * 4, numbers.at, dy + i * F::outputs, of_a, of_b);
    for (int k = 0; k < 4 && da != nullptr; ++k) da[i * 4 + k] = of_a[k];
    if constexpr (F::slope_b)
      for (int k = 0; k < 4 && db != nullptr; ++k) db[i * 4 + k] = of_b[k];
  }
}

template <class F, class P>
__global__ void overlaps_of_pairs(const P* a, const P* b, NumbersAs<P> numbers, std::int64_t n, std::int64_t m,
                                  std::int64_t size, P* y) {
  for (std::int64_t i = cuda::global_thread(); i < size; i += cuda::global_threads()) {
    const std::int64_t row = i / m;
    F::value(a + row * 4, b + (row / n * m + i % m) * 4, numbers.at, y + i);
  }
}

}  // namespace

// Where there is no b its functions read none: a stands for it.
void map_boxes(cuda::Stream& stream, BoxFunction function, const Tensor& a, const Tensor& b, const BoxNumbers& numbers,
               const Tensor& y) {
  const std::int64_t n = a.size() / 4;
  if (n == 0) return;
  const Tensor& other = b.defined() ? b : a;
  visit_dtype("boxes", a.dtype(), FullFloats{}, [&]<class P>() {
    box_functors::visit(function, [&]<class F>(F) {
      cuda::launch(stream, "boxes", cuda::shape_over(n).moving(cuda::bytes_of(a, b, y)), values_of_boxes<F, P>,
                   a.data<P>(), other.data<P>(), other.size() / 4, NumbersAs<P>(numbers), n, y.data<P>());
    });
  });
}

void map_boxes_grad(cuda::Stream& stream, BoxFunction function, const Tensor& a, const Tensor& b,
                    const BoxNumbers& numbers, const Tensor& dy, const Tensor& da, const Tensor& db) {
  const std::int64_t n = a.size() / 4;
  if (n == 0) return;
  const Tensor& other = b.defined() ? b : a;
  visit_dtype("boxes", a.dtype(), FullFloats{}, [&]<class P>() {
    box_functors::visit(function, [&]<class F>(F) {
      if constexpr (F::slope_a)
        cuda::launch(stream, "boxes gradient", cuda::shape_over(n).moving(cuda::bytes_of(a, b, dy, da, db)),
                     slopes_of_boxes<F, P>, a.data<P>(), other.data<P>(), other.size() / 4, NumbersAs<P>(numbers), n,
                     dy.data<P>(), da.defined() ? da.data<P>() : nullptr, db.defined() ? db.data<P>() : nullptr);
    });
  });
}

void pair_boxes(cuda::Stream& stream, BoxFunction function, const Tensor& a, const Tensor& b, const BoxNumbers& numbers,
                const Tensor& y) {
  visit_dtype("boxes", a.dtype(), FullFloats{}, [&]<class P>() {
    box_functors::visit_overlap(function, [&]<class F>(F) {
      cuda::launch(stream, "box_iou", cuda::shape_over(y.size()).moving(cuda::bytes_of(a, b, y)),
                   overlaps_of_pairs<F, P>, a.data<P>(), b.data<P>(), NumbersAs<P>(numbers), y.dim(1), y.dim(2),
                   y.size(), y.data<P>());
    });
  });
}

}  // namespace hearth::kernels
