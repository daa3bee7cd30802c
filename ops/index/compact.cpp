// SPDX-License-Identifier: Apache-2.0
#include "ops/index/compact.h"

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/index/sort.h"
#include "ops/pointwise/compare.h"
#include "ops/shape/concat.h"
#include "ops/shape/view.h"

namespace hearth {
namespace {

using kernels::MaskedRows;

/// The rows are found already; `indices` are filled with the values.
struct Compact {
  static constexpr OpInfo info{.name = "compact"};
  struct Saved {
    SavedTensor mask, starts;
    Shape shape;
  };
  MaskedRows rows;
  Tensor indices;

  Tensor forward(Saved& saved, const Tensor& x) const {
    const Tensor y = Tensor::empty(x.shape().with(0, rows.capacity), x.dtype(), x.device());
    run_on(x.device(),
           [&](auto& stream) { kernels::pack_rows(stream, rows, x.contiguous(), y, rows.mask.shape(), indices); });
    if (is_recording()) {
      saved.mask = rows.mask;
      saved.starts = rows.starts;
      saved.shape = x.shape();
    }
    return y;
  }

  std::array<Tensor, 1> backward(const Saved& saved, const Tensor& dy, const NeedsGrad& needs) const {
    const Tensor dx = needs.make(0, saved.shape, dy.dtype());
    const MaskedRows of_mask{saved.mask.get(), saved.starts.get(), rows.capacity};
    run_on(dy.device(), [&](auto& stream) { kernels::spread_rows(stream, of_mask, dy.contiguous(), dx); });
    return {dx};
  }
};

/// The rows of a mask [n], and how many there are.
MaskedRows rows_of(const char* op, const Tensor& mask, std::optional<std::int64_t> capacity, Tensor& count) {
  HEARTH_CHECK(UsageError, !capacity || *capacity >= 0, op, ": capacity ", capacity.value_or(0),
               "; it must be at least 0");
  const std::int64_t chunks = (mask.size() + kernels::mask_chunk - 1) / kernels::mask_chunk;
  const MaskedRows rows{mask.detach().contiguous(), Tensor::empty({chunks + 1}, DType::i64, mask.device()),
                        capacity.value_or(mask.size())};
  count = Tensor::empty({}, DType::i64, mask.device());
  run_on(mask.device(), [&](auto& stream) { kernels::find_rows(stream, op, rows, count); });
  return rows;
}

void require_row_mask(const char* op, const Tensor& x, const Tensor& mask) {
  require_defined(op, "x", x);
  require_defined(op, "mask", mask);
  HEARTH_CHECK(DTypeError, mask.dtype() == DType::boolean, op, ": mask is ", describe(mask),
               "; it must be bool, for example not_equal(mask, 0)");
  HEARTH_CHECK(DeviceError, x.device() == mask.device(), op, ": x is on ", name_of(x.device()), " but mask on ",
               name_of(mask.device()), "; move one with to(device)");
}

Compacted compacted(const char* op, const Tensor& x, const Tensor& mask, std::optional<std::int64_t> capacity) {
  const profiler::Scope scope(op);
  Compacted result;
  const MaskedRows rows = rows_of(op, mask, capacity, result.count);
  result.indices = Tensor::empty({rows.capacity}, DType::i64, x.device());
  result.values = record(Compact{rows, result.indices}, x);
  return result;
}

}  // namespace

Compacted compact(const Tensor& x, const Tensor& mask, std::optional<std::int64_t> capacity) {
  require_row_mask("compact", x, mask);
  HEARTH_CHECK(ShapeError, x.rank() >= 1 && mask.shape() == Shape{x.dim(0)}, "compact: x ", x.shape(), " and mask ",
               mask.shape(), "; they are [n, ...] and [n] (masked_select takes a mask of x's shape)");
  return compacted("compact", x, mask, capacity);
}

CountedList masked_select(const Tensor& x, const Tensor& mask, std::optional<std::int64_t> capacity) {
  require_row_mask("masked_select", x, mask);
  HEARTH_CHECK(ShapeError, x.shape() == mask.shape(), "masked_select: x ", x.shape(), " and mask ", mask.shape(),
               " must have one shape (expand gives the mask x's; compact takes whole rows)");
  return compacted("masked_select", reshape(x, {x.size()}), reshape(mask, {mask.size()}), capacity);
}

CountedList nonzero(const Tensor& x, std::optional<std::int64_t> capacity) {
  const char* const op = "nonzero";
  require_defined(op, "x", x);
  HEARTH_CHECK(ShapeError, x.rank() >= 1, op, ": x is a scalar, which has no positions; use not_equal(x, 0)");
  const profiler::Scope scope(op);
  CountedList result;
  const Tensor mask = x.dtype() == DType::boolean ? x : not_equal(x.detach(), 0.0);
  const MaskedRows rows = rows_of(op, reshape(mask, {mask.size()}), capacity, result.count);
  result.values = Tensor::empty({rows.capacity, x.rank()}, DType::i64, x.device());
  run_on(x.device(), [&](auto& stream) { kernels::pack_rows(stream, rows, {}, {}, x.shape(), result.values); });
  return result;
}

CountedList unique(const Tensor& x, std::optional<std::int64_t> capacity) {
  require_defined("unique", "x", x);
  const Tensor values = sort(reshape(x.detach(), {x.size()})).values;
  const std::int64_t n = values.size();
  Tensor is_first = Tensor::full({std::min<std::int64_t>(n, 1)}, 1, DType::boolean, x.device());
  if (n > 1) is_first = concat({is_first, not_equal(slice(values, 0, 1, n), slice(values, 0, 0, n - 1))}, 0);
  return compacted("unique", values, is_first, capacity);
}

}  // namespace hearth
