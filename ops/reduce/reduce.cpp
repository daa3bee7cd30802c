// SPDX-License-Identifier: Apache-2.0
#include "ops/reduce/reduce.h"

#include <bitset>
#include <limits>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/pointwise/binary.h"
#include "ops/pointwise/compare.h"
#include "ops/reduce/broadcast_sum.h"

namespace hearth {
namespace {

using AxisSet = std::bitset<Shape::max_rank>;

AxisSet axes_of(const char* op, const std::vector<int>& axes, const Shape& shape) {
  AxisSet set;
  if (axes.empty()) {
    for (int axis = 0; axis < shape.rank(); ++axis) set.set(static_cast<std::size_t>(axis));
  }
  for (const int axis : axes) {
    const auto index = static_cast<std::size_t>(require_axis(op, axis, shape));
    HEARTH_CHECK(ShapeError, !set.test(index), op, ": axis ", axis, " of shape ", shape,
                 " is given twice; name each axis once");
    set.set(index);
  }
  return set;
}

/// `shape` with the axes of the set at extent 1, or without them.
Shape reduced_shape(const Shape& shape, AxisSet axes, bool keep_dims) {
  std::vector<std::int64_t> extents;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (!axes.test(static_cast<std::size_t>(axis)))
      extents.push_back(shape[axis]);
    else if (keep_dims)
      extents.push_back(1);
  }
  return Shape(std::span<const std::int64_t>(extents));
}

std::int64_t count_over(const Shape& shape, AxisSet axes) {
  std::int64_t count = 1;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (axes.test(static_cast<std::size_t>(axis))) count *= shape[axis];
  return count;
}

/// Neighbouring axes that are all summed or all kept, seen as one.
struct Group {
  std::int64_t extent;
  bool summed;
};

std::vector<Group> groups_of(const Shape& shape, AxisSet axes) {
  std::vector<Group> groups;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 1) continue;
    const bool summed = axes.test(static_cast<std::size_t>(axis));
    if (!groups.empty() && groups.back().summed == summed)
      groups.back().extent *= shape[axis];
    else
      groups.push_back({shape[axis], summed});
  }
  return groups;
}

/// scale * sum over `axes`, as a contiguous tensor of the shape without them. Groups are summed from the last to the
/// first, in f64 in between.
Tensor sum_over(const Tensor& x, AxisSet axes, bool keep_dims, double scale) {
  const Shape shape = reduced_shape(x.shape(), axes, keep_dims);
  if (x.size() == 0) return Tensor::zeros(shape, x.dtype(), x.device());
  std::vector<Group> groups = groups_of(x.shape(), axes);
  Tensor current = x.contiguous();
  const Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  while (true) {
    std::int64_t outer = 1, reduced = 1, inner = 1, summed_groups = 0;
    std::size_t last = groups.size();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (!groups[g].summed) continue;
      ++summed_groups;
      last = g;
    }
    for (std::size_t g = 0; g < groups.size(); ++g)
      (g < last ? outer : g == last ? reduced : inner) *= groups[g].extent;
    const bool final = summed_groups <= 1;
    const Tensor target = final ? y : Tensor::empty({outer, inner}, DType::f64, x.device());
    run_on(x.device(),
           [&](auto& stream) { kernels::sum(stream, current, outer, reduced, inner, final ? scale : 1.0, target); });
    if (final) return y;
    groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(last));
    current = target;
  }
}

/// dy of the reduced shape, repeated to `shape` and multiplied by `scale`, written to `dx`.
void spread(const Tensor& dy, const Shape& shape, AxisSet axes, double scale, const Tensor& dx) {
  const Tensor saved = dy.contiguous().as_shape(reduced_shape(shape, axes, true));
  const bool narrow = size_of(dx.dtype()) == 2;
  const Tensor factor = Tensor::full({}, scale, narrow ? DType::f32 : dx.dtype());
  run_on(dx.device(), [&](auto& stream) { kernels::binary(stream, kernels::Binary::mul, saved, factor, dx); });
}

template <bool averages>
struct SumOp {
  static constexpr OpInfo info{.name = averages ? "mean" : "sum", .autocast = Autocast::f32};
  struct Saved {
    Shape shape;
    AxisSet axes;
  };
  std::vector<int> axes;
  bool keep_dims;

  static double scale_for(const Shape& shape, AxisSet set) {
    return averages ? 1.0 / static_cast<double>(count_over(shape, set)) : 1.0;
  }

  Tensor forward(Saved& saved, const Tensor& x) const {
    require_floating(info.name, "x", x);
    saved.shape = x.shape();
    saved.axes = axes_of(info.name, axes, x.shape());
    HEARTH_CHECK(ShapeError, !averages || count_over(x.shape(), saved.axes) > 0, info.name, ": x has shape ", x.shape(),
                 ", so there are no elements to average; its extents along the axes must be at least 1");
    return sum_over(x, saved.axes, keep_dims, scale_for(x.shape(), saved.axes));
  }

  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    const Tensor dx = needs.make(0, saved.shape, dy.dtype());
    spread(dy, saved.shape, saved.axes, scale_for(saved.shape, saved.axes), dx);
    return {dx};
  }
};

void require_choice(const char* op, const Tensor& x, AxisSet axes) {
  HEARTH_CHECK(DTypeError, is_floating(x.dtype()) || x.dtype() == DType::i32 || x.dtype() == DType::i64, op, ": x is ",
               describe(x), "; use a floating type, i32 or i64");
  HEARTH_CHECK(ShapeError, count_over(x.shape(), axes) > 0, op, ": x has shape ", x.shape(),
               ", so there is nothing to choose from; its extents along the axes must be at least 1");
}

/// The order of axes that puts those of the set last, as a view.
Tensor reduced_axes_last(const Tensor& x, AxisSet axes) {
  std::vector<std::int64_t> extents;
  Strides strides{};
  for (const bool reduced : {false, true}) {
    for (int axis = 0; axis < x.rank(); ++axis) {
      if (axes.test(static_cast<std::size_t>(axis)) != reduced) continue;
      strides[extents.size()] = x.strides()[static_cast<std::size_t>(axis)];
      extents.push_back(x.shape()[axis]);
    }
  }
  return Tensor::view(x.storage(), Shape(std::span<const std::int64_t>(extents)), strides, x.offset(), x.dtype(),
                      x.device());
}

/// What the gradient of equal extremes goes to.
enum class Ties { first, even };

template <kernels::Extreme kind, Ties ties>
struct ExtremeOp {
  static constexpr bool largest = kind == kernels::Extreme::largest, even = ties == Ties::even;
  static constexpr OpInfo info{.name = even ? (largest ? "amax" : "amin") : (largest ? "max" : "min")};
  struct Saved {
    Shape shape;
    AxisSet axes;
    Tensor column;     // of the first
    SavedTensor x, y;  // of even
  };
  std::vector<int> axes;
  bool keep_dims;

  Tensor forward(Saved& saved, const Tensor& x) const {
    require_defined(info.name, "x", x);
    saved.shape = x.shape();
    saved.axes = axes_of(info.name, axes, x.shape());
    require_choice(info.name, x, saved.axes);
    const Tensor y = Tensor::empty(reduced_shape(x.shape(), saved.axes, keep_dims), x.dtype(), x.device());
    const Tensor column = Tensor::empty(y.shape(), DType::i64, x.device());
    const Tensor rows = reduced_axes_last(x, saved.axes).contiguous();
    run_on(x.device(), [&](auto& stream) {
      kernels::extreme(stream, kind, rows, y.size(), count_over(x.shape(), saved.axes), y, column);
    });
    if constexpr (!even) {
      saved.column = column;
    } else if (is_recording()) {
      saved.x = x;
      saved.y = y;
    }
    return y;
  }

  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad&) const {
    if constexpr (even) {
      const Shape kept = reduced_shape(saved.shape, saved.axes, true);
      const Tensor equals = equal(saved.x.get(), saved.y.get().as_shape(kept)).to(dy.dtype());
      const Tensor count = sum_over(equals, saved.axes, true, 1.0);
      return {mul(equals, div(dy.contiguous().as_shape(kept), count))};
    }
    const Tensor dx = Tensor::empty(saved.shape, dy.dtype(), dy.device());
    const Tensor view = reduced_axes_last(dx, saved.axes);
    const Tensor rows = view.is_contiguous() ? view : Tensor::empty(view.shape(), dy.dtype(), dy.device());
    run_on(dy.device(), [&](auto& stream) {
      kernels::extreme_grad(stream, dy.contiguous(), saved.column, dy.size(), count_over(saved.shape, saved.axes),
                            rows);
    });
    if (!view.is_contiguous()) view.copy_from(rows);
    return {dx};
  }
};

}  // namespace

Tensor broadcast_sum(Tensor x, const Shape& shape) {
  if (x.shape() == shape) return x;
  AxisSet axes;
  const int lead = x.rank() - shape.rank();
  for (int axis = 0; axis < x.rank(); ++axis)
    axes.set(static_cast<std::size_t>(axis), axis < lead || shape[axis - lead] != x.shape()[axis]);
  return sum_over(x, axes, true, 1.0).as_shape(shape);
}

Tensor sum(const Tensor& x, const std::vector<int>& axes, KeepDims keep_dims) {
  return record(SumOp<false>{axes, keep_dims}, x);
}

Tensor mean(const Tensor& x, const std::vector<int>& axes, KeepDims keep_dims) {
  return record(SumOp<true>{axes, keep_dims}, x);
}

Tensor max(const Tensor& x, const std::vector<int>& axes, KeepDims keep_dims) {
  return record(ExtremeOp<kernels::Extreme::largest, Ties::first>{axes, keep_dims}, x);
}

Tensor min(const Tensor& x, const std::vector<int>& axes, KeepDims keep_dims) {
  return record(ExtremeOp<kernels::Extreme::smallest, Ties::first>{axes, keep_dims}, x);
}

Tensor amax(const Tensor& x, const std::vector<int>& axes, KeepDims keep_dims) {
  return record(ExtremeOp<kernels::Extreme::largest, Ties::even>{axes, keep_dims}, x);
}

Tensor amin(const Tensor& x, const std::vector<int>& axes, KeepDims keep_dims) {
  return record(ExtremeOp<kernels::Extreme::smallest, Ties::even>{axes, keep_dims}, x);
}

namespace {

Tensor place_of_extreme(const char* op, kernels::Extreme kind, const Tensor& x, int axis, bool keep_dims) {
  require_defined(op, "x", x);
  AxisSet axes;
  axes.set(static_cast<std::size_t>(require_axis(op, axis, x.shape())));
  require_choice(op, x, axes);
  const profiler::Scope scope(op);
  const Tensor column = Tensor::empty(reduced_shape(x.shape(), axes, keep_dims), DType::i64, x.device());
  const Tensor rows = reduced_axes_last(x, axes).contiguous();
  run_on(x.device(), [&](auto& stream) {
    kernels::extreme(stream, kind, rows, column.size(), count_over(x.shape(), axes), Tensor(), column);
  });
  return column;
}

}  // namespace

Tensor argmax(const Tensor& x, int axis, KeepDims keep_dims) {
  return place_of_extreme("argmax", kernels::Extreme::largest, x, axis, keep_dims);
}

Tensor argmin(const Tensor& x, int axis, KeepDims keep_dims) {
  return place_of_extreme("argmin", kernels::Extreme::smallest, x, axis, keep_dims);
}

}  // namespace hearth
