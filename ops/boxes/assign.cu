// SPDX-License-Identifier: Apache-2.0
// One thread a point of an image, which goes through the image's boxes; neighbouring threads read the same ones.
#include "core/cuda/elementwise.h"
#include "core/cuda/fault.h"
#include "core/dtype.h"
#include "ops/boxes/assign.h"

namespace hearth::kernels {
namespace {

template <class P>
struct PointInput {
  const P *anchors, *reach, *boxes;
  const std::int64_t* counts;
  const bool* ignored;  ///< null: none is
  std::int64_t images, points, all;
  P radius;
};

template <class P>
__global__ void boxes_of_points(PointInput<P> in, cuda::FaultSlot* faults, std::int64_t* y) {
  for (std::int64_t i = cuda::global_thread(); i < in.images * in.points; i += cuda::global_threads()) {
    const std::int64_t image = i / in.points, p = i % in.points;
    std::int64_t begin = 0;
    for (std::int64_t before = 0; before < image; ++before) begin += in.counts[before];
    const std::int64_t end = begin + in.counts[image];
    if (begin < 0 || end < begin || end > in.all) {
      cuda::report_fault(faults, cuda::FaultKind::index, end, in.all + 1);
      y[i] = background_point;
      continue;
    }
    y[i] = box_of_point(in.anchors + p * 4, in.reach + p * 2, in.radius, in.boxes, in.ignored, begin, end);
  }
}

}  // namespace

void assign_points(cuda::Stream& stream, const Tensor& anchors, const Tensor& reach, const BoxList& list, double radius,
                   const Tensor& y) {
  if (y.size() == 0) return;
  visit_dtype("assign_points", anchors.dtype(), FullFloats{}, [&]<class P>() {
    const PointInput<P> in{anchors.data<P>(),
                           reach.data<P>(),
                           list.boxes.data<P>(),
                           list.counts.data<std::int64_t>(),
                           list.ignored.defined() ? list.ignored.data<bool>() : nullptr,
                           y.dim(0),
                           y.dim(1),
                           list.boxes.dim(0),
                           static_cast<P>(radius)};
    cuda::launch(stream, "assign_points",
                 cuda::shape_over(y.size()).moving(cuda::bytes_of(anchors, reach, list.boxes, y)), boxes_of_points<P>,
                 in, cuda::fault_slot(stream), y.data<std::int64_t>());
  });
}

}  // namespace hearth::kernels
