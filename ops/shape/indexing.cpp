// SPDX-License-Identifier: Apache-2.0
#include "ops/shape/indexing.h"

#include <algorithm>

#include "autograd/record.h"
#include "ops/argument.h"
#include "ops/shape/view.h"

namespace hearth {
namespace {

/// What an index shows of an axis: elements begin, begin + step, ..., `count` of them.
struct Part {
  std::int64_t begin = 0, count = 0, step = 1;
  bool dropped = false;
};

template <bool of_one_axis>
struct IndexView {
  static constexpr OpInfo info{.name = of_one_axis ? "slice" : "index"};
  struct Saved {
    Shape shape;
  };
  std::array<Part, Shape::max_rank> parts{};

  Tensor part_of(const Tensor& x) const {
    std::array<std::int64_t, Shape::max_rank> extents{};
    Strides strides{};
    std::size_t rank = 0;
    std::int64_t offset = x.offset();
    const bool empty = std::any_of(parts.begin(), parts.begin() + x.rank(), [](const Part& p) { return p.count == 0; });
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(x.rank()); ++axis) {
      const Part& part = parts[axis];
      // An empty part may begin behind the last element, where no view may point.
      if (!empty) offset += part.begin * x.strides()[axis];
      if (part.dropped) continue;
      extents[rank] = part.count;
      // A step is only taken between two elements; a larger one could overflow.
      strides[rank++] = part.count > 1 ? x.strides()[axis] * part.step : x.strides()[axis];
    }
    return Tensor::view(x.storage(), Shape(std::span<const std::int64_t>(extents.data(), rank)), strides, offset,
                        x.dtype(), x.device());
  }

  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.shape = x.shape();
    return part_of(x);
  }
  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    const Tensor dx = needs.make(0, saved.shape, dy.dtype());
    dx.fill_(0);
    part_of(dx).copy_from(dy);
    return {dx};
  }
};

Part part_of_axis(const Index& index, int axis, const Shape& shape) {
  const std::int64_t extent = shape[axis];
  const Slice& slice = index.slice();
  const auto from_end = [&](std::int64_t i) { return i < 0 ? i + extent : i; };
  if (index.is_position()) {
    const std::int64_t position = from_end(slice.begin);
    HEARTH_CHECK(ShapeError, position >= 0 && position < extent, "index: position ", slice.begin, " on axis ", axis,
                 " of shape ", shape, "; it is from ", -extent, " to ", extent - 1);
    return {.begin = position, .count = 1, .dropped = true};
  }
  HEARTH_CHECK(ShapeError, slice.step >= 1, "index: a step of ", slice.step, " on axis ", axis,
               "; it is at least 1 (flip() turns an axis round)");
  const std::int64_t begin = std::clamp<std::int64_t>(from_end(slice.begin), 0, extent);
  const std::int64_t length = std::clamp<std::int64_t>(from_end(slice.end), begin, extent) - begin;
  return {.begin = begin, .count = length / slice.step + (length % slice.step != 0), .step = slice.step};
}

}  // namespace

Tensor index(const Tensor& x, std::span<const Index> indices) {
  require_defined("index", "x", x);
  HEARTH_CHECK(ShapeError, indices.size() <= static_cast<std::size_t>(x.rank()), "index: ", indices.size(),
               " indices for shape ", x.shape(), "; there is at most one for each of its ", x.rank(), " axes");
  IndexView<false> op;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    op.parts[i] = part_of_axis(i < indices.size() ? indices[i] : Index(all), axis, x.shape());
  }
  return record(op, x);
}

Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step) {
  require_defined("slice", "x", x);
  const int place = require_axis("slice", axis, x.shape());
  HEARTH_CHECK(ShapeError, step >= 1, "slice: the step is ", step, "; it must be at least 1");
  HEARTH_CHECK(ShapeError, 0 <= begin && begin <= end && end <= x.shape()[place], "slice: [", begin, ", ", end,
               ") along axis ", place, " of shape ", x.shape(), "; it must lie in [0, ", x.shape()[place], "]");
  IndexView<true> op;
  for (int i = 0; i < x.rank(); ++i)
    op.parts[static_cast<std::size_t>(i)] =
        part_of_axis(i == place ? Index(Slice(begin, end, step)) : Index(all), i, x.shape());
  return record(op, x);
}

}  // namespace hearth
