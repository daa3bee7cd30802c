// SPDX-License-Identifier: Apache-2.0
// One thread a point, or an anchor, of an image, which goes through the image's boxes; neighbouring threads read the
// same ones. Before it a block for each box finds the box's best anchor.
#include "core/cuda/elementwise.h"
#include "core/cuda/fault.h"
#include "core/cuda/kernel.h"
#include "core/dtype.h"
#include "ops/boxes/assign.h"
#include "ops/boxes/assign_rule.h"
#include "ops/device/product.cuh"

namespace hearth::kernels {
namespace {

constexpr int best_threads = 256;

template <class P>
struct BoxesOfImages {
  const P* boxes;
  const std::int64_t* counts;
  const bool* ignored;  ///< null: none is
  std::int64_t images, total;

  explicit BoxesOfImages(const BoxList& list)
      : boxes(list.boxes.data<P>()),
        counts(list.counts.data<std::int64_t>()),
        ignored(list.ignored.defined() ? list.ignored.data<bool>() : nullptr),
        images(list.counts.size()),
        total(list.boxes.dim(0)) {}

  /// f(first box, box behind the last) of an image; background_point where counts are wrong, which is reported.
  template <class F>
  __device__ std::int64_t of_image(std::int64_t image, cuda::FaultSlot* faults, const F& f) const {
    std::int64_t begin = 0;
    for (std::int64_t before = 0; before < image; ++before) begin += counts[before];
    const std::int64_t end = begin + counts[image];
    if (begin < 0 || end < begin || end > total) {
      cuda::report_fault(faults, cuda::FaultKind::index, end, total + 1);
      return background_point;
    }
    return f(begin, end);
  }
};

template <class P>
__global__ void boxes_of_points(BoxesOfImages<P> in, const P* anchors, const P* reach, std::int64_t points, P radius,
                                cuda::FaultSlot* faults, std::int64_t* y) {
  for (std::int64_t i = cuda::global_thread(); i < in.images * points; i += cuda::global_threads()) {
    const std::int64_t p = i % points;
    y[i] = in.of_image(i / points, faults, [&](std::int64_t begin, std::int64_t end) {
      return box_of_point(anchors + p * 4, reach + p * 2, radius, in.boxes, in.ignored, begin, end);
    });
  }
}

template <class P>
__global__ void __launch_bounds__(best_threads)
    best_anchors(const P* anchors, std::int64_t count, const P* boxes, BestAnchor<P>* best) {
  const std::int64_t box = blockIdx.x;
  BestAnchor<P> mine{-1, 0};
  for (std::int64_t p = threadIdx.x; p < count; p += best_threads) {
    const P overlap = SharedArea<P>(boxes + box * 4, anchors + p * 4, RoundedProduct()).overlap;
    if (overlap > mine.overlap) mine = {overlap, p};
  }
  const P most = cuda::block_reduce<cuda::Largest>(mine.overlap, P(-1));
  // The first of equals: the largest of the negative positions.
  const long long none = -static_cast<long long>(count);
  const long long first = cuda::block_reduce<cuda::Largest>(mine.overlap == most ? -mine.index : none, none);
  if (threadIdx.x == 0) best[box] = {most, -first};
}

template <class P>
__global__ void boxes_of_anchors(BoxesOfImages<P> in, const P* anchors, std::int64_t count, AnchorBounds<P> bounds,
                                 const BestAnchor<P>* best, cuda::FaultSlot* faults, std::int64_t* y) {
  for (std::int64_t i = cuda::global_thread(); i < in.images * count; i += cuda::global_threads()) {
    const std::int64_t p = i % count;
    y[i] = in.of_image(i / count, faults, [&](std::int64_t begin, std::int64_t end) {
      return box_of_anchor(anchors + p * 4, p, bounds, in.boxes, in.ignored, best, begin, end, RoundedProduct());
    });
  }
}

}  // namespace

void assign_points(cuda::Stream& stream, const Tensor& anchors, const Tensor& reach, const BoxList& list, double radius,
                   const Tensor& y) {
  if (y.size() == 0) return;
  visit_dtype("assign_points", anchors.dtype(), FullFloats{}, [&]<class P>() {
    cuda::launch(stream, "assign_points",
                 cuda::shape_over(y.size()).moving(cuda::bytes_of(anchors, reach, list.boxes, y)), boxes_of_points<P>,
                 BoxesOfImages<P>(list), anchors.data<P>(), reach.data<P>(), y.dim(1), static_cast<P>(radius),
                 cuda::fault_slot(stream), y.data<std::int64_t>());
  });
}

void assign_anchors(cuda::Stream& stream, const Tensor& anchors, const BoxList& list, const AnchorRule& rule,
                    const Tensor& y) {
  if (y.size() == 0) return;
  visit_dtype("assign_anchors", anchors.dtype(), FullFloats{}, [&]<class P>() {
    const std::int64_t all = rule.best == BestAnchors::none ? 0 : list.boxes.dim(0);
    const Tensor memory =
        Tensor::empty({all * static_cast<std::int64_t>(sizeof(BestAnchor<P>))}, DType::u8, anchors.device());
    auto* const best = reinterpret_cast<BestAnchor<P>*>(memory.data<std::uint8_t>());
    cuda::launch(stream, "best_anchors",
                 {cuda::blocks_for(all, 1), best_threads, 0, cuda::bytes_of(anchors, list.boxes, memory)},
                 best_anchors<P>, anchors.data<P>(), y.dim(1), list.boxes.data<P>(), best);
    cuda::launch(stream, "assign_anchors", cuda::shape_over(y.size()).moving(cuda::bytes_of(anchors, list.boxes, y)),
                 boxes_of_anchors<P>, BoxesOfImages<P>(list), anchors.data<P>(), y.dim(1),
                 AnchorBounds<P>{static_cast<P>(rule.foreground), static_cast<P>(rule.background), rule.best}, best,
                 cuda::fault_slot(stream), y.data<std::int64_t>());
  });
}

}  // namespace hearth::kernels
