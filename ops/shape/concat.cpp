// SPDX-License-Identifier: Apache-2.0
#include "ops/shape/concat.h"

#include <limits>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/written_value.h"

namespace hearth {
namespace {

/// The part of y that begins at `begin` along `axis`, as a view.
Tensor part_of(const Tensor& y, int axis, std::int64_t begin, std::int64_t extent) {
  const Shape shape = y.shape().with(axis, extent);
  const std::int64_t offset =
      shape.size() == 0 ? y.offset() : y.offset() + begin * y.strides()[static_cast<std::size_t>(axis)];
  return Tensor::view(y.storage(), shape, y.strides(), offset, y.dtype(), y.device());
}

struct Concat {
  static constexpr OpInfo info{.name = "concat", .autocast_inputs = std::numeric_limits<int>::max()};
  struct Saved {
    std::vector<std::int64_t> extents;
  };
  int axis;
  Shape shape;

  Tensor forward(Saved& saved, std::span<const Tensor> parts) const {
    for (const Tensor& part : parts) require_same_kind(info.name, "the first part", parts[0], "another part", part);
    const Tensor y = Tensor::empty(shape, parts[0].dtype(), parts[0].device());
    std::int64_t rows = 1;
    for (int i = 0; i < axis; ++i) rows *= shape[i];
    const std::int64_t pitch = rows == 0 ? 0 : static_cast<std::int64_t>(y.byte_size()) / rows;
    std::byte* to = y.bytes();
    for (const Tensor& part : parts) {
      if (is_recording()) saved.extents.push_back(part.shape()[axis]);
      const std::int64_t run = rows == 0 ? 0 : static_cast<std::int64_t>(part.byte_size()) / rows;
      if (run == 0) continue;
      const Tensor dense = part.contiguous();
      run_on(y.device(), [&](auto& stream) { kernels::copy_runs(stream, dense.bytes(), run, to, pitch, rows, run); });
      to += run;
    }
    return y;
  }

  std::vector<Tensor> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    std::vector<Tensor> gradients(saved.extents.size());
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (needs[i]) gradients[i] = part_of(dy, axis, begin, saved.extents[i]);
      begin += saved.extents[i];
    }
    return gradients;
  }
};

struct Pad {
  static constexpr OpInfo info{.name = "pad"};
  struct Saved {
    Shape shape;
  };
  std::vector<PadWidth> widths;
  double value;
  Shape to;

  /// Where x lies in y.
  Tensor middle_of(Tensor y, const Shape& inner) const {
    for (int axis = 0; axis < inner.rank(); ++axis)
      y = part_of(y, axis, widths[static_cast<std::size_t>(axis)].before, inner[axis]);
    return y;
  }
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.shape = x.shape();
    const Tensor y = Tensor::full(to, value, x.dtype(), x.device());
    middle_of(y, x.shape()).copy_from(x);
    return y;
  }
  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad&) const {
    return {middle_of(std::move(dy), saved.shape)};
  }
};

}  // namespace

Tensor concat(const std::vector<Tensor>& parts, int axis) {
  HEARTH_CHECK(UsageError, !parts.empty(), "concat: the list is empty; give at least one tensor");
  for (const Tensor& part : parts) require_defined("concat", "a part", part);
  const Shape& first = parts[0].shape();
  const int place = require_axis("concat", axis, first);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Shape& shape = parts[i].shape();
    HEARTH_CHECK(ShapeError, shape.rank() == first.rank() && shape.with(place, 0) == first.with(place, 0),
                 "concat: part ", i, " has shape ", shape, ", part 0 has ", first, "; they may differ on axis ", place,
                 " only");
    total = checked_add(total, shape[place], "concat: extent");
  }
  return record_list(Concat{place, first.with(place, total)}, parts);
}

Tensor pad(const Tensor& x, const std::vector<PadWidth>& widths, double value) {
  require_defined("pad", "x", x);
  require_value("pad", x, value);
  HEARTH_CHECK(ShapeError, widths.size() == static_cast<std::size_t>(x.rank()), "pad: ", widths.size(),
               " widths for shape ", x.shape(), "; give one {before, after} for each of its ", x.rank(), " axes");
  std::array<std::int64_t, Shape::max_rank> extents{};
  std::int64_t product = 1;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    HEARTH_CHECK(ShapeError, widths[i].before >= 0 && widths[i].after >= 0, "pad: {", widths[i].before, ", ",
                 widths[i].after, "} on axis ", i, "; widths must be at least 0 (slice cuts off)");
    extents[i] = checked_add(checked_add(x.shape()[static_cast<int>(i)], widths[i].before, "pad: extent"),
                             widths[i].after, "pad: extent");
    product = checked_mul(product, std::max<std::int64_t>(extents[i], 1), "pad: element count");
  }
  (void)checked_mul(product, 8, "pad: byte count");
  return record(Pad{widths, value, Shape(std::span<const std::int64_t>(extents.data(), widths.size()))}, x);
}

}  // namespace hearth
