// SPDX-License-Identifier: Apache-2.0
#include "ops/boxes/assign.h"

#include <cmath>
#include <functional>

#include "core/cpu/parallel.h"
#include "core/dtype.h"
#include "core/profiler.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/boxes/assign_rule.h"
#include "ops/scratch.h"

namespace hearth {

BoxList kernels::checked_list(const char* op, const Tensor& anchors, const BoxList& list) {
  require_floating(op, "anchors", anchors);
  require_floating(op, "boxes", list.boxes);
  require_index_type(op, "counts", list.counts);
  require_same_kind(op, "anchors", anchors, "boxes", list.boxes);
  HEARTH_CHECK(DTypeError, anchors.dtype() == DType::f32 || anchors.dtype() == DType::f64, op, ": anchors are ",
               describe(anchors), "; they must be f32 or f64");
  HEARTH_CHECK(ShapeError,
               anchors.rank() == 2 && anchors.dim(1) == 4 && list.boxes.rank() == 2 && list.boxes.dim(1) == 4 &&
                   list.counts.rank() == 1,
               op, ": anchors ", anchors.shape(), ", boxes ", list.boxes.shape(), ", counts ", list.counts.shape(),
               "; they are [P, 4], [M, 4] and [N]");
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
  return {list.boxes.detach().contiguous(), list.counts.to(DType::i64).contiguous(),
          list.ignored.defined() ? list.ignored.contiguous() : Tensor()};
}

namespace {

Tensor unassigned(const Tensor& anchors, const BoxList& list) {
  return Tensor::empty({list.counts.size(), anchors.dim(0)}, DType::i64, anchors.device());
}

}  // namespace

Tensor assign_points(const Tensor& anchors, const Tensor& reach, const BoxList& list, double radius) {
  const char* const op = "assign_points";
  require_floating(op, "anchors", anchors);
  require_floating(op, "reach", reach);
  require_same_kind(op, "anchors", anchors, "reach", reach);
  const BoxList plain = kernels::checked_list(op, anchors, list);
  HEARTH_CHECK(ShapeError, reach.shape() == (Shape{anchors.dim(0), 2}), op, ": anchors ", anchors.shape(), ", reach ",
               reach.shape(), "; they are [P, 4] and [P, 2]");
  HEARTH_CHECK(UsageError, radius > 0 && std::isfinite(radius), op, ": radius ", radius,
               "; it must be finite and above 0");
  const profiler::Scope scope(op);
  const OriginScope origin = OriginScope::of_op(op);
  const Tensor y = unassigned(anchors, plain);
  run_on(anchors.device(), [&](auto& stream) {
    kernels::assign_points(stream, anchors.detach().contiguous(), reach.detach().contiguous(), plain, radius, y);
  });
  return y;
}

Tensor assign_anchors(const Tensor& anchors, const BoxList& list, const AnchorRule& rule) {
  const char* const op = "assign_anchors";
  const BoxList plain = kernels::checked_list(op, anchors, list);
  HEARTH_CHECK(
      UsageError,
      rule.background >= 0 && rule.background <= rule.foreground && rule.foreground > 0 && rule.foreground <= 1, op,
      ": overlaps of ", rule.background, " for the background and ", rule.foreground,
      " for boxes; they must be in [0, 1], the first at most the second, and that above 0");
  const profiler::Scope scope(op);
  const OriginScope origin = OriginScope::of_op(op);
  const Tensor y = unassigned(anchors, plain);
  run_on(anchors.device(),
         [&](auto& stream) { kernels::assign_anchors(stream, anchors.detach().contiguous(), plain, rule, y); });
  return y;
}

namespace kernels {
namespace {

constexpr std::int64_t assign_grain = 256;

/// f(image, first box, box behind the last) for each image.
template <class F>
void for_each_image(const char* op, const BoxList& list, F&& f) {
  const std::int64_t images = list.counts.size(), all = list.boxes.dim(0);
  const std::int64_t* const counts = list.counts.data<const std::int64_t>();
  std::int64_t begin = 0;
  for (std::int64_t image = 0; image < images; ++image) {
    const std::int64_t end = begin + counts[image];
    HEARTH_CHECK(IndexError, counts[image] >= 0 && end <= all, op, ": counts of ", images, " images are ", end - begin,
                 " at image ", image, ", and ", all, " boxes; their sum must be the number of boxes at most");
    f(image, begin, end);
    begin = end;
  }
}

const bool* flags_of(const Tensor& ignored) { return ignored.defined() ? ignored.data<const bool>() : nullptr; }

template <class P>
BestAnchor<P> best_anchor(const P* box, const P* anchors, std::int64_t count) {
  BestAnchor<P> best{-1, 0};
  for (std::int64_t p = 0; p < count; ++p) {
    const P overlap = SharedArea<P>(box, anchors + p * 4, std::multiplies<P>()).overlap;
    if (overlap > best.overlap) best = {overlap, p};
  }
  return best;
}

}  // namespace

void assign_points(cpu::Stream&, const Tensor& anchors, const Tensor& reach, const BoxList& list, double radius,
                   const Tensor& y) {
  const std::int64_t points = y.dim(1);
  std::int64_t* const to = y.data<std::int64_t>();
  visit_dtype("assign_points", anchors.dtype(), FullFloats{}, [&]<class P>() {
    for_each_image("assign_points", list, [&](std::int64_t image, std::int64_t begin, std::int64_t end) {
      cpu::parallel_for(points, assign_grain, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t p = first; p < last; ++p)
          to[image * points + p] =
              box_of_point(anchors.data<const P>() + p * 4, reach.data<const P>() + p * 2, static_cast<P>(radius),
                           list.boxes.data<const P>(), flags_of(list.ignored), begin, end);
      });
    });
  });
}

void assign_anchors(cpu::Stream&, const Tensor& anchors, const BoxList& list, const AnchorRule& rule, const Tensor& y) {
  const std::int64_t count = y.dim(1), all = list.boxes.dim(0);
  std::int64_t* const to = y.data<std::int64_t>();
  visit_dtype("assign_anchors", anchors.dtype(), FullFloats{}, [&]<class P>() {
    const P *const corners = anchors.data<const P>(), *const boxes = list.boxes.data<const P>();
    const AnchorBounds<P> bounds{static_cast<P>(rule.foreground), static_cast<P>(rule.background), rule.best};
    cpu::Scratch scratch;
    BestAnchor<P>* const best = scratch.take<BestAnchor<P>>(all);
    if (rule.best != BestAnchors::none)
      cpu::parallel_for(all, 1, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) best[i] = best_anchor(boxes + i * 4, corners, count);
      });
    for_each_image("assign_anchors", list, [&](std::int64_t image, std::int64_t begin, std::int64_t end) {
      cpu::parallel_for(count, assign_grain, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t p = first; p < last; ++p)
          to[image * count + p] = box_of_anchor(corners + p * 4, p, bounds, boxes, flags_of(list.ignored), best, begin,
                                                end, std::multiplies<P>());
      });
    });
  });
}

}  // namespace kernels
}  // namespace hearth
