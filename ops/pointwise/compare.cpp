// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/compare.h"

#include <array>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/reduce/broadcast_sum.h"
#include "ops/written_value.h"

namespace hearth {
namespace {

using kernels::Comparison;
using kernels::Operand;

Tensor compared(const char* op, Comparison comparison, const Tensor& a, const Tensor& b) {
  require_same_kind(op, "a", a, "b", b);
  const profiler::Scope scope(op);
  const OriginScope origin = OriginScope::of_op(op);
  const Tensor y = Tensor::empty(broadcast_shapes(op, a.shape(), b.shape()), DType::boolean, a.device());
  run_on(y.device(), [&](auto& stream) { kernels::compare(stream, comparison, {a}, {b}, y); });
  return y;
}

Tensor compared(const char* op, Comparison comparison, const Tensor& a, double b) {
  require_defined(op, "a", a);
  require_value(op, a, b);
  const profiler::Scope scope(op);
  const OriginScope origin = OriginScope::of_op(op);
  const Tensor y = Tensor::empty(a.shape(), DType::boolean, a.device());
  run_on(y.device(), [&](auto& stream) { kernels::compare(stream, comparison, {a}, {{}, b}, y); });
  return y;
}

void require_mask(const char* op, const char* name, const Tensor& mask) {
  require_defined(op, name, mask);
  HEARTH_CHECK(DTypeError, mask.dtype() == DType::boolean, op, ": ", name, " is ", describe(mask),
               "; it must be bool, for example not_equal(", name, ", 0)");
}

/// An absent a or b stands for its number.
struct Where {
  static constexpr OpInfo info{.name = "where"};
  struct Saved {
    SavedTensor condition;
    Shape shape_a, shape_b;
  };
  double number_a = 0, number_b = 0;

  Tensor forward(Saved& saved, const Tensor& condition, const Tensor& a, const Tensor& b) const {
    const Tensor& like = a.defined() ? a : b;
    Shape shape = broadcast_shapes(info.name, condition.shape(), like.shape());
    if (a.defined() && b.defined()) {
      require_same_kind(info.name, "a", a, "b", b);
      shape = broadcast_shapes(info.name, shape, b.shape());
    }
    const Tensor y = Tensor::empty(shape, like.dtype(), like.device());
    run_on(y.device(), [&](auto& stream) { kernels::select(stream, condition, {a, number_a}, {b, number_b}, y); });
    if (is_recording()) {
      saved.condition = condition;
      if (a.defined()) saved.shape_a = a.shape();
      if (b.defined()) saved.shape_b = b.shape();
    }
    return y;
  }

  std::array<Tensor, 3> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    std::array<Tensor, 3> gradients;
    for (const std::size_t input : {std::size_t{1}, std::size_t{2}}) {
      if (!needs[input]) continue;
      const Tensor dx = Tensor::empty(dy.shape(), dy.dtype(), dy.device());
      const Operand arriving{dy}, zero{};
      run_on(dy.device(), [&](auto& stream) {
        kernels::select(stream, saved.condition.get(), input == 1 ? arriving : zero, input == 1 ? zero : arriving, dx);
      });
      gradients[input] = broadcast_sum(dx, input == 1 ? saved.shape_a : saved.shape_b);
    }
    return gradients;
  }
};

}  // namespace

#define HEARTH_DEFINE_COMPARISON(name, ...)                                                         \
  Tensor name(const Tensor& a, const Tensor& b) { return compared(#name, Comparison::name, a, b); } \
  Tensor name(const Tensor& a, double b) { return compared(#name, Comparison::name, a, b); }
HEARTH_COMPARISONS(HEARTH_DEFINE_COMPARISON)
#undef HEARTH_DEFINE_COMPARISON

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  require_mask("where", "condition", condition);
  require_defined("where", "a", a);
  require_defined("where", "b", b);
  return record(Where{}, condition, a, b);
}

Tensor where(const Tensor& condition, const Tensor& a, double b) {
  require_mask("where", "condition", condition);
  require_defined("where", "a", a);
  require_value("where", a, b);
  return record(Where{0, b}, condition, a, Tensor());
}

Tensor where(const Tensor& condition, double a, const Tensor& b) {
  require_mask("where", "condition", condition);
  require_defined("where", "b", b);
  require_value("where", b, a);
  return record(Where{a, 0}, condition, Tensor(), b);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  require_defined("masked_fill", "x", x);
  require_mask("masked_fill", "mask", mask);
  require_value("masked_fill", x, value);
  HEARTH_CHECK(ShapeError, broadcasts_to(mask.shape(), x.shape()), "masked_fill: mask ", mask.shape(),
               " does not broadcast to x ", x.shape(),
               "; aligned at the last axis, each of its extents must be x's or 1");
  return where(mask, value, x);
}

}  // namespace hearth
