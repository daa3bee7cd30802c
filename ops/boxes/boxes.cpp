// SPDX-License-Identifier: Apache-2.0
#include "ops/boxes/boxes.h"

#include <algorithm>
#include <cmath>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/boxes/box_functors.h"
#include "ops/pointwise/cast.h"
#include "ops/pointwise/operators.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"

namespace hearth {
namespace {

using kernels::BoxFunction;
using kernels::BoxNumbers;

struct BoxRow {
  const char* name;
  int outputs;
  bool slope_a, slope_b;
};
constexpr BoxRow box_rows[] = {
#define HEARTH_BOX_ROW(name) \
  {#name, box_functors::name::outputs, box_functors::name::slope_a, box_functors::name::slope_b},
    HEARTH_BOX_FUNCTIONS(HEARTH_BOX_ROW)
#undef HEARTH_BOX_ROW
};
constexpr const BoxRow& row_of_boxes(BoxFunction function) { return box_rows[static_cast<std::size_t>(function)]; }

template <BoxFunction function>
struct BoxOp {
  static constexpr BoxRow row = row_of_boxes(function);
  static constexpr OpInfo info{.name = row.name, .autocast = Autocast::f32};
  struct Saved {
    SavedTensor a, b;
  };
  BoxNumbers numbers;

  Tensor forward(Saved& saved, const Tensor& a_in, const Tensor& b_in) const {
    const Tensor a = a_in.contiguous(), b = b_in.defined() ? b_in.contiguous() : Tensor();
    const Shape shape =
        row.outputs == 4 ? a.shape() : Shape(std::span(a.shape().begin(), static_cast<std::size_t>(a.rank() - 1)));
    const Tensor y = Tensor::empty(shape, a.dtype(), a.device());
    run_on(a.device(), [&](auto& stream) { kernels::map_boxes(stream, function, a, b, numbers, y); });
    if (is_recording()) {
      saved.a = a;
      if (b.defined()) saved.b = b;
    }
    return y;
  }

  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& dy_in, const NeedsGrad& needs) const {
    const Tensor a = saved.a.get(), b = saved.b.defined() ? saved.b.get() : Tensor(), dy = dy_in.contiguous();
    std::array<Tensor, 2> gradients;
    if (row.slope_a && needs[0]) gradients[0] = needs.make(0, a.shape(), a.dtype());
    if (row.slope_b && needs[1]) gradients[1] = needs.make(1, b.shape(), b.dtype());
    run_on(a.device(), [&](auto& stream) {
      kernels::map_boxes_grad(stream, function, a, b, numbers, dy, gradients[0], gradients[1]);
    });
    return gradients;
  }
};

void require_boxes(const char* op, const char* name, const Tensor& boxes) {
  require_floating(op, name, boxes);
  HEARTH_CHECK(ShapeError, boxes.rank() >= 1 && boxes.dim(-1) == 4, op, ": ", name, " ", boxes.shape(),
               "; the last axis must hold the 4 numbers of a box");
}

void require_eps(const char* op, double eps) {
  HEARTH_CHECK(UsageError, eps >= 0 && std::isfinite(eps), op, ": eps is ", eps,
               "; it must be a finite number of at least 0");
}

DType wide_type(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// The function of 16-bit boxes in f32.
template <BoxFunction function>
Tensor function_of(const Tensor& a, const Tensor& b, const BoxNumbers& numbers) {
  const DType wide = wide_type(a.dtype());
  return record(BoxOp<function>{numbers}, cast(a, wide), b.defined() ? cast(b, wide) : b);
}

/// The same, with the result in the type of a.
template <BoxFunction function>
Tensor boxes_of(const Tensor& a, const Tensor& b, const BoxNumbers& numbers) {
  const Tensor y = function_of<function>(a, b, numbers);
  return autocast_dtype() ? y : cast(y, a.dtype());
}

template <BoxFunction function>
Tensor overlap_of(const char* op, const Tensor& a, const Tensor& b, double eps, double offset, double factor) {
  require_boxes(op, "a", a);
  require_boxes(op, "b", b);
  HEARTH_CHECK(ShapeError, a.shape() == b.shape(), op, ": a ", a.shape(), " and b ", b.shape(),
               " must have one shape; box_iou() compares each with each");
  if (!autocast_dtype()) require_same_kind(op, "a", a, "b", b);
  require_eps(op, eps);
  return function_of<function>(a, b, {eps, eps, offset, factor});
}

template <BoxFunction function>
Tensor loss_of_boxes(const char* op, const Tensor& boxes, const Tensor& targets, const BoxLossOptions& options) {
  const Tensor losses = overlap_of<function>(op, boxes, targets, options.eps, 1, -1);
  if (options.reduction == Reduction::none) return losses;
  return options.reduction == Reduction::mean && losses.size() > 0 ? mean(losses) : sum(losses);
}

/// Boxes, or codes of them, beside anchors that may lack leading axes.
void require_anchors(const char* op, const char* name, const Tensor& a, const Tensor& anchors) {
  require_boxes(op, name, a);
  require_boxes(op, "anchors", anchors);
  const int lead = a.rank() - anchors.rank();
  bool fits = lead >= 0;
  for (int axis = 0; fits && axis < anchors.rank(); ++axis) fits = anchors.dim(axis) == a.dim(axis + lead);
  HEARTH_CHECK(ShapeError, fits, op, ": anchors ", anchors.shape(), " beside ", name, " ", a.shape(),
               "; their shape must be that, or its last axes");
  if (!autocast_dtype()) require_same_kind(op, name, a, "anchors", anchors);
}

BoxNumbers checked_weights(const char* op, const DeltaWeights& weights) {
  for (const double weight : weights)
    HEARTH_CHECK(UsageError, weight > 0 && std::isfinite(weight), op, ": a weight is ", weight,
                 "; weights are finite and above 0 (1 / variance)");
  return weights;
}

/// The rows of a 2 x 2 matrix from the two numbers of an axis to those of corners, or back.
BoxNumbers matrix_of(BoxFormat format, bool to_corners) {
  if (format == BoxFormat::xywh) return to_corners ? BoxNumbers{1, 0, 1, 1} : BoxNumbers{1, 0, -1, 1};
  if (format == BoxFormat::cxcywh) return to_corners ? BoxNumbers{1, -0.5, 1, 0.5} : BoxNumbers{0.5, 0.5, -1, 1};
  return {1, 0, 0, 1};
}

}  // namespace

Tensor convert_boxes(const Tensor& boxes, BoxFormat from, BoxFormat to) {
  require_boxes("convert_boxes", "boxes", boxes);
  const BoxNumbers m = matrix_of(to, false), k = matrix_of(from, true);
  return boxes_of<BoxFunction::convert_boxes>(
      boxes, {},
      {m[0] * k[0] + m[1] * k[2], m[0] * k[1] + m[1] * k[3], m[2] * k[0] + m[3] * k[2], m[2] * k[1] + m[3] * k[3]});
}

Tensor box_area(const Tensor& boxes) {
  require_boxes("box_area", "boxes", boxes);
  return function_of<BoxFunction::box_area>(boxes, {}, {});
}

Tensor clip_boxes(const Tensor& boxes, double height, double width) {
  require_boxes("clip_boxes", "boxes", boxes);
  HEARTH_CHECK(UsageError, height >= 0 && width >= 0 && std::isfinite(height) && std::isfinite(width),
               "clip_boxes: an image of ", height, " x ", width, "; height and width are finite and at least 0");
  return boxes_of<BoxFunction::clip_boxes>(boxes, {}, {width, height});
}

#define HEARTH_OVERLAP(name)                                                                      \
  Tensor name(const Tensor& a, const Tensor& b, double eps) {                                     \
    return overlap_of<BoxFunction::name>(#name, a, b, eps, 0, 1);                                 \
  }                                                                                               \
  Tensor name##_loss(const Tensor& boxes, const Tensor& targets, const BoxLossOptions& options) { \
    return loss_of_boxes<BoxFunction::name>(#name "_loss", boxes, targets, options);              \
  }
HEARTH_OVERLAP(iou)
HEARTH_OVERLAP(giou)
HEARTH_OVERLAP(diou)
HEARTH_OVERLAP(ciou)
#undef HEARTH_OVERLAP

Tensor box_iou(const Tensor& a, const Tensor& b, BoxOverlap overlap) {
  const char* const op = "box_iou";
  require_boxes(op, "a", a);
  require_boxes(op, "b", b);
  require_same_kind(op, "a", a, "b", b);
  HEARTH_CHECK(ShapeError, a.rank() >= 2 && a.rank() == b.rank() && a.shape().with(-2, 0) == b.shape().with(-2, 0), op,
               ": a ", a.shape(), " and b ", b.shape(),
               "; they are [..., N, 4] and [..., M, 4] with equal leading axes");
  const profiler::Scope scope(op);
  const OriginScope origin = OriginScope::of_op(op);
  const DType wide = wide_type(a.dtype());
  const auto prepared = [&](const Tensor& x) { return x.detach().to(wide).contiguous(); };
  const Tensor left = prepared(a), right = prepared(b);
  const std::int64_t n = a.dim(-2), m = b.dim(-2);
  const Tensor y = Tensor::empty(a.shape().with(-1, m), wide, a.device());
  if (y.size() == 0) return y;
  const std::int64_t batch = y.size() / n / m;
  constexpr BoxFunction functions[] = {BoxFunction::iou, BoxFunction::giou, BoxFunction::diou, BoxFunction::ciou};
  // Without eps but for squared lengths, as torchvision's pairwise functions.
  run_on(a.device(), [&](auto& stream) {
    kernels::pair_boxes(stream, functions[static_cast<std::size_t>(overlap)], left.as_shape({batch, n, 4}),
                        right.as_shape({batch, m, 4}), {0, 1e-7, 0, 1}, y.as_shape({batch, n, m}));
  });
  return y;
}

Tensor encode_deltas(const Tensor& boxes, const Tensor& anchors, const DeltaWeights& weights) {
  require_anchors("encode_deltas", "boxes", boxes, anchors);
  return boxes_of<BoxFunction::encode_deltas>(boxes.detach(), anchors.detach(),
                                              checked_weights("encode_deltas", weights));
}

Tensor decode_deltas(const Tensor& deltas, const Tensor& anchors, const DeltaWeights& weights) {
  require_anchors("decode_deltas", "deltas", deltas, anchors);
  return boxes_of<BoxFunction::decode_deltas>(deltas, anchors.detach(), checked_weights("decode_deltas", weights));
}

Tensor encode_distances(const Tensor& boxes, const Tensor& anchors, bool in_sides) {
  require_anchors("encode_distances", "boxes", boxes, anchors);
  return boxes_of<BoxFunction::encode_distances>(boxes.detach(), anchors.detach(), {in_sides ? 1.0 : 0.0});
}

Tensor decode_distances(const Tensor& distances, const Tensor& anchors, bool in_sides) {
  require_anchors("decode_distances", "distances", distances, anchors);
  return boxes_of<BoxFunction::decode_distances>(distances, anchors.detach(), {in_sides ? 1.0 : 0.0});
}

}  // namespace hearth
