// SPDX-License-Identifier: Apache-2.0
#include "ops/boxes/nms.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/cpu/parallel.h"
#include "core/dtype.h"
#include "core/profiler.h"
#include "core/run_on.h"
#include "ops/argument.h"

namespace hearth {
namespace {

CountedList suppressed(const char* op, const Tensor& boxes, const Tensor& scores, const Tensor& classes,
                       double threshold) {
  require_floating(op, "boxes", boxes);
  require_floating(op, "scores", scores);
  require_same_kind(op, "boxes", boxes, "scores", scores);
  const int rank = scores.rank();
  HEARTH_CHECK(ShapeError,
               (rank == 1 || rank == 2) && boxes.rank() == rank + 1 && boxes.dim(-1) == 4 &&
                   std::equal(scores.shape().begin(), scores.shape().end(), boxes.shape().begin()),
               op, ": boxes ", boxes.shape(), " and scores ", scores.shape(),
               "; they are [n, 4] and [n], or [N, n, 4] and [N, n]");
  HEARTH_CHECK(UsageError, threshold >= 0 && threshold <= 1, op, ": threshold ", threshold, "; it must be in [0, 1]");
  const profiler::Scope scope(op);
  const OriginScope origin = OriginScope::of_op(op);
  const DType wide = boxes.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const std::int64_t images = rank == 2 ? scores.dim(0) : 1, n = scores.dim(-1);
  const CountedList list{Tensor::empty(scores.shape(), DType::i64, boxes.device()),
                         Tensor::empty(rank == 2 ? Shape{images} : Shape{}, DType::i64, boxes.device())};
  if (n == 0) list.count.fill_(0);
  if (scores.size() == 0) return list;
  const auto prepared = [&](const Tensor& x, DType dtype, const Shape& as) {
    return x.detach().to(dtype).contiguous().as_shape(as);
  };
  const Shape shape{images, n};
  run_on(boxes.device(), [&](auto& stream) {
    kernels::nms(stream, prepared(boxes, wide, {images, n, 4}), prepared(scores, wide, shape),
                 classes.defined() ? prepared(classes, DType::i64, shape) : Tensor(), threshold,
                 list.values.as_shape(shape), list.count.as_shape({images}));
  });
  return list;
}

}  // namespace

CountedList nms(const Tensor& boxes, const Tensor& scores, double threshold) {
  return suppressed("nms", boxes, scores, {}, threshold);
}

CountedList batched_nms(const Tensor& boxes, const Tensor& scores, const Tensor& classes, double threshold) {
  require_index_type("batched_nms", "classes", classes);
  require_defined("batched_nms", "scores", scores);
  HEARTH_CHECK(ShapeError, classes.shape() == scores.shape(), "batched_nms: classes ", classes.shape(), " and scores ",
               scores.shape(), " must have one shape");
  HEARTH_CHECK(DeviceError, classes.device() == scores.device(), "batched_nms: classes are on ",
               name_of(classes.device()), " but scores on ", name_of(scores.device()), "; move one with to(device)");
  return suppressed("batched_nms", boxes, scores, classes, threshold);
}

namespace kernels {
namespace {

/// The boxes of an image by descending score, a number of all of them after the other, so that vectors hold boxes.
/// This source is compiled for the least of processors only: one that multiplies and adds at once would round
/// intersections otherwise than torchvision does.
template <class T>
class SortedBoxes {
 public:
  SortedBoxes(const T* boxes, const T* scores, const std::int64_t* classes, std::int64_t n)
      : n_(n), order_(static_cast<std::size_t>(n)), numbers_(static_cast<std::size_t>(5 * n)) {
    std::iota(order_.begin(), order_.end(), std::int64_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](std::int64_t a, std::int64_t b) {
      return std::isnan(scores[a]) ? !std::isnan(scores[b]) : scores[a] > scores[b];
    });
    for (std::int64_t i = 0; i < n; ++i) {
      const T* const box = boxes + order_[static_cast<std::size_t>(i)] * 4;
      for (int k = 0; k < 4; ++k) column(k)[i] = box[k];
      column(4)[i] = (box[2] - box[0]) * (box[3] - box[1]);
    }
    if (classes == nullptr) return;
    for (const std::int64_t place : order_) classes_.push_back(classes[place]);
  }

  /// Marks the boxes behind box i that it suppresses.
  void suppress(std::int64_t i, T bound, char* gone) const {
    const T *const x0 = column(0), *const y0 = column(1), *const x1 = column(2), *const y1 = column(3);
    const T* const area = column(4);
    const T a0 = x0[i], b0 = y0[i], a1 = x1[i], b1 = y1[i], area_i = area[i];
    const auto overlaps = [&](std::int64_t j) {
      const T w = std::max(T(0), std::min(a1, x1[j]) - std::max(a0, x0[j]));
      const T h = std::max(T(0), std::min(b1, y1[j]) - std::max(b0, y0[j]));
      const T shared = w * h;
      return shared / (area_i + area[j] - shared) > bound;
    };
    if (classes_.empty()) {
#pragma omp simd
      for (std::int64_t j = i + 1; j < n_; ++j) gone[j] = static_cast<char>(gone[j] | (overlaps(j) ? 1 : 0));
      return;
    }
    const std::int64_t* const classes = classes_.data();
    for (std::int64_t j = i + 1; j < n_; ++j)
      if (classes[j] == classes[i] && gone[j] == 0) gone[j] = overlaps(j) ? 1 : 0;
  }

  std::int64_t place(std::int64_t i) const { return order_[static_cast<std::size_t>(i)]; }

 private:
  T* column(int k) { return numbers_.data() + k * n_; }
  const T* column(int k) const { return numbers_.data() + k * n_; }

  std::int64_t n_;
  std::vector<std::int64_t> order_, classes_;
  std::vector<T> numbers_;
};

template <class T>
std::int64_t nms_of_image(const SortedBoxes<T>& boxes, std::int64_t n, T bound, std::int64_t* indices) {
  std::vector<char> gone(static_cast<std::size_t>(n), 0);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (gone[static_cast<std::size_t>(i)] != 0) continue;
    indices[count++] = boxes.place(i);
    boxes.suppress(i, bound, gone.data());
  }
  std::fill(indices + count, indices + n, std::int64_t{0});
  return count;
}

}  // namespace

void nms(cpu::Stream&, const Tensor& boxes, const Tensor& scores, const Tensor& classes, double threshold,
         const Tensor& indices, const Tensor& counts) {
  const std::int64_t images = scores.dim(0), n = scores.dim(1);
  visit_dtype("nms", boxes.dtype(), FullFloats{}, [&]<class T>() {
    const T *const box = boxes.data<T>(), *const score = scores.data<T>();
    const std::int64_t* const kind = classes.defined() ? classes.data<std::int64_t>() : nullptr;
    std::int64_t *const to = indices.data<std::int64_t>(), *const count = counts.data<std::int64_t>();
    cpu::parallel_chunks(images, [&](std::int64_t i) {
      const SortedBoxes<T> sorted(box + i * n * 4, score + i * n, kind == nullptr ? nullptr : kind + i * n, n);
      count[i] = nms_of_image(sorted, n, bound_of<T>(threshold), to + i * n);
    });
  });
}

}  // namespace kernels
}  // namespace hearth
