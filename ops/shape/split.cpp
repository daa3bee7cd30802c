// SPDX-License-Identifier: Apache-2.0
#include "ops/shape/split.h"

#include <algorithm>

#include "core/creation.h"
#include "core/error.h"
#include "ops/argument.h"
#include "ops/index/index.h"
#include "ops/shape/concat.h"
#include "ops/shape/view.h"

namespace hearth {
namespace {

/// From 0 up, of a tensor of `rank` axes.
int axis_of(const char* op, int axis, int rank, const Tensor& x) {
  HEARTH_CHECK(ShapeError, rank > 0, op, ": axis ", axis, " of ", describe(x),
               "; it has no axes, as it is a single number: unsqueeze() makes one");
  HEARTH_CHECK(ShapeError, axis >= -rank && axis < rank, op, ": axis ", axis, " of ", describe(x), "; axes are ", -rank,
               "..", rank - 1);
  return axis < 0 ? axis + rank : axis;
}

/// A list of more would fill the memory before it is made.
void require_possible(const char* op, std::int64_t parts, const Tensor& x) {
  constexpr std::int64_t most = std::int64_t{1} << 24;
  HEARTH_CHECK(ShapeError, parts <= most, op, ": ", describe(x), " into ", parts, " parts; at most ", most,
               " are made");
}

std::vector<std::int64_t> extents_of(const Tensor& x) { return {x.shape().begin(), x.shape().end()}; }

}  // namespace

Tensor unsqueeze(const Tensor& x, int axis) {
  const int at = axis_of("unsqueeze", axis, x.rank() + 1, x);
  std::vector<std::int64_t> extents = extents_of(x);
  extents.insert(extents.begin() + at, 1);
  return reshape(x, extents);
}

Tensor stack(const std::vector<Tensor>& tensors, int axis) {
  HEARTH_CHECK(ShapeError, !tensors.empty(), "stack: there are no tensors");
  const int at = axis_of("stack", axis, tensors[0].rank() + 1, tensors[0]);
  std::vector<Tensor> parts;
  for (const Tensor& one : tensors) {
    HEARTH_CHECK(ShapeError, one.shape() == tensors[0].shape(), "stack: ", describe(tensors[0]), " and ", describe(one),
                 "; all tensors have one shape");
    parts.push_back(unsqueeze(one, at));
  }
  return concat(parts, at);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int axis) {
  const int at = axis_of("split", axis, x.rank(), x);
  const std::int64_t extent = x.dim(at);
  std::int64_t begin = 0;
  std::vector<Tensor> parts;
  for (const std::int64_t size : sizes) {
    HEARTH_CHECK(ShapeError, size >= 0 && size <= extent - begin, "split: a part of ", size, " elements at ", begin,
                 " of axis ", axis, " of ", describe(x));
    parts.push_back(slice(x, at, begin, begin + size));
    begin += size;
  }
  HEARTH_CHECK(ShapeError, begin == extent, "split: the parts have ", begin, " of the ", extent, " elements of axis ",
               axis, " of ", describe(x));
  return parts;
}

std::vector<Tensor> detail::split_evenly(const Tensor& x, std::int64_t size, int axis) {
  const int at = axis_of("split", axis, x.rank(), x);
  HEARTH_CHECK(ShapeError, size >= 1, "split: parts of ", size, " elements of ", describe(x),
               "; a part has at least 1");
  require_possible("split", x.dim(at) / size, x);
  std::vector<std::int64_t> sizes;
  for (std::int64_t left = x.dim(at); left > 0 || sizes.empty(); left -= size) sizes.push_back(std::min(size, left));
  return split(x, sizes, axis);
}

std::vector<Tensor> chunk(const Tensor& x, std::int64_t count, int axis) {
  const int at = axis_of("chunk", axis, x.rank(), x);
  HEARTH_CHECK(ShapeError, count >= 1, "chunk: ", count, " parts of ", describe(x), "; there is at least 1");
  const std::int64_t extent = x.dim(at);
  require_possible("chunk", extent == 0 ? count : 0, x);
  // Of nothing all parts are empty.
  if (extent == 0) return split(x, std::vector<std::int64_t>(static_cast<std::size_t>(count)), axis);
  return detail::split_evenly(x, extent / count + (extent % count != 0 ? 1 : 0), axis);
}

Tensor squeeze(const Tensor& x) {
  Tensor y = x;
  for (int axis = x.rank(); axis-- > 0;) y = squeeze(y, axis);
  return y;
}

Tensor squeeze(const Tensor& x, int axis) {
  const int at = axis_of("squeeze", axis, x.rank(), x);
  if (x.dim(at) != 1) return x;
  std::vector<std::int64_t> extents = extents_of(x);
  extents.erase(extents.begin() + at);
  return reshape(x, extents);
}

Tensor flip(const Tensor& x, const std::vector<int>& axes) {
  require_defined("flip", "x", x);
  std::vector<int> seen;
  Tensor y = x;
  for (const int axis : axes) {
    const int at = axis_of("flip", axis, x.rank(), x);
    HEARTH_CHECK(ShapeError, std::count(seen.begin(), seen.end(), at) == 0, "flip: axis ", axis, " of ", describe(x),
                 " is named twice");
    seen.push_back(at);
    const Tensor ids = Tensor::empty({x.dim(at)}, DType::i64);
    for (std::int64_t i = 0; i < ids.size(); ++i) ids.data<std::int64_t>()[i] = ids.size() - 1 - i;
    y = index_select(y, at, ids.to(x.device()));
  }
  return y;
}

}  // namespace hearth
