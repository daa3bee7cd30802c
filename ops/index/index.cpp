// SPDX-License-Identifier: Apache-2.0
#include "ops/index/index.h"

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"

namespace hearth {
namespace {

/// `ids` as contiguous i64, every one of them in [0, size).
Tensor checked_indices(const char* op, const Tensor& x, const Tensor& ids, std::int64_t size) {
  HEARTH_CHECK(DeviceError, x.device() == ids.device(), op, ": ids are on ", name_of(ids.device()),
               " but the values on ", name_of(x.device()), "; move one with to(device)");
  const Tensor wide = ids.dtype() == DType::i64 ? ids.contiguous() : ids.to(DType::i64);
  run_on(wide.device(), [&](auto& stream) { kernels::check_indices(stream, op, wide, size); });
  return wide;
}

kernels::AroundAxis around_axis(const Shape& shape, int axis) {
  kernels::AroundAxis around{.rows = shape[axis]};
  for (int i = 0; i < axis; ++i) around.outer *= shape[i];
  for (int i = axis + 1; i < shape.rank(); ++i) around.inner *= shape[i];
  return around;
}

/// What is taken by each index.
enum class Taken { rows, elements };

template <Taken what>
struct Taking {
  struct Saved {
    SavedTensor ids;
    Shape shape;
    kernels::AroundAxis around;
  };

  /// y, of this shape, by checked indices along an axis.
  Tensor take(Saved& saved, const Tensor& x, int axis, const Tensor& ids, const Shape& shape) const {
    const kernels::AroundAxis around = around_axis(x.shape(), axis);
    const Tensor y = Tensor::empty(shape, x.dtype(), x.device());
    run_on(x.device(), [&](auto& stream) {
      if constexpr (what == Taken::rows)
        kernels::take_rows(stream, x.contiguous(), around, ids, y);
      else
        kernels::take_along(stream, x.contiguous(), around, ids, y);
    });
    if (is_recording()) {
      saved.ids = ids;
      saved.shape = x.shape();
      saved.around = around;
    }
    return y;
  }

  std::array<Tensor, 2> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    if (!needs[0]) return {};
    const Tensor dx = needs.make(0, saved.shape, dy.dtype());
    run_on(dy.device(), [&](auto& stream) {
      if constexpr (what == Taken::rows)
        kernels::sum_rows_by_id(stream, dy.contiguous(), saved.around, saved.ids.get(), dx);
      else
        kernels::sum_along(stream, dy.contiguous(), saved.around, saved.ids.get(), dx);
    });
    return {dx, Tensor()};
  }
};

struct Embedding : Taking<Taken::rows> {
  static constexpr OpInfo info{.name = "embedding"};

  Tensor forward(Saved& saved, const Tensor& w, const Tensor& ids) const {
    require_floating(info.name, "w", w);
    require_index_type(info.name, "ids", ids);
    HEARTH_CHECK(ShapeError, w.rank() == 2 && w.dim(0) >= 1, info.name, ": w has shape ", w.shape(),
                 "; it must be [rows, columns] with at least one row");
    HEARTH_CHECK(ShapeError, ids.rank() < Shape::max_rank, info.name, ": ids have shape ", ids.shape(),
                 "; the result would exceed rank ", Shape::max_rank);
    std::vector<std::int64_t> extents(ids.shape().begin(), ids.shape().end());
    extents.push_back(w.dim(1));
    return take(saved, w, 0, checked_indices(info.name, w, ids, w.dim(0)),
                Shape(std::span<const std::int64_t>(extents)));
  }
};

struct IndexSelect : Taking<Taken::rows> {
  static constexpr OpInfo info{.name = "index_select"};
  int axis;

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& ids) const {
    require_defined(info.name, "x", x);
    require_index_type(info.name, "ids", ids);
    const int place = require_axis(info.name, axis, x.shape());
    HEARTH_CHECK(ShapeError, ids.rank() == 1, info.name, ": ids have shape ", ids.shape(),
                 "; they must be a list [n] (embedding and gather take other shapes)");
    return take(saved, x, place, checked_indices(info.name, x, ids, x.shape()[place]),
                x.shape().with(place, ids.dim(0)));
  }
};

struct Gather : Taking<Taken::elements> {
  static constexpr OpInfo info{.name = "gather"};
  int axis;

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& ids) const {
    require_defined(info.name, "x", x);
    require_index_type(info.name, "ids", ids);
    const int place = require_axis(info.name, axis, x.shape());
    HEARTH_CHECK(ShapeError, ids.rank() == x.rank() && ids.shape().with(place, 0) == x.shape().with(place, 0),
                 info.name, ": ids have shape ", ids.shape(), ", x has ", x.shape(), "; they may differ on axis ",
                 place, " only");
    return take(saved, x, place, checked_indices(info.name, x, ids, x.shape()[place]), ids.shape());
  }
};

}  // namespace

Tensor embedding(const Tensor& w, const Tensor& ids) { return record(Embedding{}, w, ids); }
Tensor index_select(const Tensor& x, int axis, const Tensor& ids) { return record(IndexSelect{{}, axis}, x, ids); }
Tensor gather(const Tensor& x, int axis, const Tensor& ids) { return record(Gather{{}, axis}, x, ids); }

}  // namespace hearth
