// SPDX-License-Identifier: Apache-2.0
#include "ops/boxes/assign.h"

#include <cmath>

#include "core/cpu/parallel.h"
#include "core/dtype.h"
#include "core/profiler.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/boxes/assign_rule.h"

namespace hearth {

Tensor assign_points(const Tensor& anchors, const Tensor& reach, const BoxList& list, double radius) {
  const char* const op = "assign_points";
  require_floating(op, "anchors", anchors);
  require_floating(op, "reach", reach);
  require_floating(op, "boxes", list.boxes);
  require_index_type(op, "counts", list.counts);
  require_same_kind(op, "anchors", anchors, "reach", reach);
  require_same_kind(op, "anchors", anchors, "boxes", list.boxes);
  HEARTH_CHECK(DTypeError, anchors.dtype() == DType::f32 || anchors.dtype() == DType::f64, op, ": anchors are ",
               describe(anchors), "; they must be f32 or f64");
  HEARTH_CHECK(ShapeError,
               anchors.rank() == 2 && anchors.dim(1) == 4 && reach.shape() == (Shape{anchors.dim(0), 2}) &&
                   list.boxes.rank() == 2 && list.boxes.dim(1) == 4 && list.counts.rank() == 1,
               op, ": anchors ", anchors.shape(), ", reach ", reach.shape(), ", boxes ", list.boxes.shape(),
               ", counts ", list.counts.shape(), "; they are [P, 4], [P, 2], [M, 4] and [N]");
  HEARTH_CHECK(UsageError, radius > 0 && std::isfinite(radius), op, ": radius ", radius,
               "; it must be finite and above 0");
  HEARTH_CHECK(DeviceError, list.counts.device() == anchors.device(), op, ": counts are on ",
               name_of(list.counts.device()), " but anchors on ", name_of(anchors.device()),
               "; move one with to(device)");
  if (list.ignored.defined()) {
    HEARTH_CHECK(DTypeError, list.ignored.dtype() == DType::boolean, op, ": ignored is ", describe(list.ignored),
                 "; it must be bool");
    HEARTH_CHECK(ShapeError, list.ignored.shape() == Shape{list.boxes.dim(0)}, op, ": ignored ", list.ignored.shape(),
                 " and boxes ", list.boxes.shape(), "; they are [M] and [M, 4]");
    HEARTH_CHECK(DeviceError, list.ignored.device() == anchors.device(), op, ": ignored is on ",
                 name_of(list.ignored.device()), " but anchors on ", name_of(anchors.device()),
                 "; move one with to(device)");
  }
  const profiler::Scope scope(op);
  const OriginScope origin = OriginScope::of_op(op);
  const BoxList plain{list.boxes.detach().contiguous(), list.counts.to(DType::i64).contiguous(),
                      list.ignored.defined() ? list.ignored.contiguous() : Tensor()};
  const Tensor y = Tensor::empty({list.counts.size(), anchors.dim(0)}, DType::i64, anchors.device());
  run_on(anchors.device(), [&](auto& stream) {
    kernels::assign_points(stream, anchors.detach().contiguous(), reach.detach().contiguous(), plain, radius, y);
  });
  return y;
}

namespace kernels {

void assign_points(cpu::Stream&, const Tensor& anchors, const Tensor& reach, const BoxList& list, double radius,
                   const Tensor& y) {
  const std::int64_t images = y.dim(0), points = y.dim(1), all = list.boxes.dim(0);
  const std::int64_t* const counts = list.counts.data<const std::int64_t>();
  const bool* const ignored = list.ignored.defined() ? list.ignored.data<const bool>() : nullptr;
  std::int64_t* const to = y.data<std::int64_t>();
  std::int64_t begin = 0;
  for (std::int64_t image = 0; image < images; ++image) {
    const std::int64_t end = begin + counts[image];
    HEARTH_CHECK(IndexError, counts[image] >= 0 && end <= all, "assign_points: counts of ", images, " images are ",
                 end - begin, " at image ", image, ", and ", all,
                 " boxes; their sum must be the number of boxes at most");
    visit_dtype("assign_points", anchors.dtype(), FullFloats{}, [&]<class P>() {
      cpu::parallel_for(points, 256, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t p = first; p < last; ++p)
          to[image * points + p] =
              box_of_point(anchors.data<const P>() + p * 4, reach.data<const P>() + p * 2, static_cast<P>(radius),
                           list.boxes.data<const P>(), ignored, begin, end);
      });
    });
    begin = end;
  }
}

}  // namespace kernels
}  // namespace hearth
