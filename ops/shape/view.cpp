// SPDX-License-Identifier: Apache-2.0
#include "ops/shape/view.h"

#include "autograd/record.h"
#include "ops/argument.h"
#include "ops/reduce/broadcast_sum.h"
#include "ops/written_value.h"

namespace hearth {
namespace {

Tensor view_of(const Tensor& x, const Shape& shape, const Strides& strides, std::int64_t offset) {
  return Tensor::view(x.storage(), shape, strides, offset, x.dtype(), x.device());
}

struct Reshape {
  static constexpr OpInfo info{.name = "reshape"};
  struct Saved {
    Shape shape;
  };
  Shape to;

  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.shape = x.shape();
    return x.contiguous().as_shape(to);
  }
  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad&) const {
    return {dy.contiguous().as_shape(saved.shape)};
  }
};

/// The extents with -1 filled in.
Shape resolved(const Extents& wanted, const Shape& from) {
  std::vector<std::int64_t> extents = wanted.values();
  HEARTH_CHECK(ShapeError, extents.size() <= Shape::max_rank, "reshape: ", extents.size(),
               " extents; a shape has at most ", Shape::max_rank);
  std::int64_t product = 1;
  std::ptrdiff_t open = -1;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    HEARTH_CHECK(ShapeError, extents[i] >= -1, "reshape: extent ", extents[i], " on axis ", i,
                 "; extents are at least 0, or -1 once");
    if (extents[i] == -1) {
      HEARTH_CHECK(ShapeError, open < 0, "reshape: -1 on axes ", open, " and ", i, "; only one extent can be found");
      open = static_cast<std::ptrdiff_t>(i);
    } else {
      product = checked_mul(product, extents[i], "reshape: element count");
    }
  }
  if (open >= 0) {
    HEARTH_CHECK(ShapeError, product > 0, "reshape: -1 beside an extent of 0 could be anything; give the number");
    HEARTH_CHECK(ShapeError, from.size() % product == 0, "reshape: shape ", from, " has ", from.size(),
                 " elements, which do not divide by ", product, " for the -1 on axis ", open);
    extents[static_cast<std::size_t>(open)] = from.size() / product;
  }
  const Shape shape{std::span<const std::int64_t>(extents)};
  HEARTH_CHECK(ShapeError, shape.size() == from.size(), "reshape: shape ", from, " has ", from.size(), " elements but ",
               shape, " has ", shape.size(), "; the counts must agree");
  return shape;
}

struct Transpose {
  static constexpr OpInfo info{.name = "transpose"};
  struct Saved {};
  /// permutation[i] is the axis of x that axis i of y shows.
  std::array<int, Shape::max_rank> permutation{};

  static Tensor permuted(const Tensor& x, const std::array<int, Shape::max_rank>& order) {
    std::array<std::int64_t, Shape::max_rank> extents{};
    Strides strides{};
    for (std::size_t i = 0; i < static_cast<std::size_t>(x.rank()); ++i) {
      extents[i] = x.shape()[order[i]];
      strides[i] = x.strides()[static_cast<std::size_t>(order[i])];
    }
    const Shape shape(std::span<const std::int64_t>(extents.data(), static_cast<std::size_t>(x.rank())));
    return view_of(x, shape, strides, x.offset());
  }

  Tensor forward(Saved&, const Tensor& x) const { return permuted(x, permutation); }
  std::array<Tensor, 1> backward(const Saved&, Tensor dy, const NeedsGrad&) const {
    std::array<int, Shape::max_rank> inverse{};
    for (int i = 0; i < dy.rank(); ++i) inverse[static_cast<std::size_t>(permutation[static_cast<std::size_t>(i)])] = i;
    return {permuted(dy, inverse)};
  }
};

struct Expand {
  static constexpr OpInfo info{.name = "expand"};
  struct Saved {
    Shape shape;
  };
  Shape to;

  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.shape = x.shape();
    Strides strides{};
    const int lead = to.rank() - x.rank();
    for (int axis = lead; axis < to.rank(); ++axis) {
      const bool repeated = x.shape()[axis - lead] == 1;
      strides[static_cast<std::size_t>(axis)] = repeated ? 0 : x.strides()[static_cast<std::size_t>(axis - lead)];
    }
    return view_of(x, to, strides, x.offset());
  }
  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad&) const {
    return {broadcast_sum(std::move(dy), saved.shape)};
  }
};

}  // namespace

Tensor reshape(const Tensor& x, const Extents& extents) {
  require_defined("reshape", "x", x);
  return record(Reshape{resolved(extents, x.shape())}, x);
}

Tensor flatten(const Tensor& x, int first_axis) {
  require_defined("flatten", "x", x);
  const int first = require_axis("flatten", first_axis, x.shape());
  std::vector<std::int64_t> extents(x.shape().begin(), x.shape().begin() + first);
  std::int64_t merged = 1;
  for (int axis = first; axis < x.rank(); ++axis) merged *= x.shape()[axis];
  extents.push_back(merged);
  return record(Reshape{Shape(std::span<const std::int64_t>(extents))}, x);
}

Tensor transpose(const Tensor& x, const std::vector<int>& permutation) {
  require_defined("transpose", "x", x);
  HEARTH_CHECK(ShapeError, permutation.size() == static_cast<std::size_t>(x.rank()), "transpose: ", permutation.size(),
               " axes for shape ", x.shape(), "; name each of its ", x.rank(), " axes once");
  Transpose op;
  unsigned seen = 0;
  for (std::size_t i = 0; i < permutation.size(); ++i) {
    const int axis = permutation[i];
    HEARTH_CHECK(ShapeError, axis >= 0 && axis < x.rank() && !(seen >> axis & 1u), "transpose: axis ", axis,
                 " at place ", i, " of the permutation for shape ", x.shape(), "; name each axis from 0 to ",
                 x.rank() - 1, " once");
    seen |= 1u << axis;
    op.permutation[i] = axis;
  }
  return record(op, x);
}

Tensor expand(const Tensor& x, const Shape& shape) {
  require_defined("expand", "x", x);
  HEARTH_CHECK(ShapeError, broadcasts_to(x.shape(), shape), "expand: shape ", x.shape(), " does not repeat to ", shape,
               "; aligned at the last axis, each extent must be equal or 1");
  return record(Expand{shape}, x);
}

}  // namespace hearth
