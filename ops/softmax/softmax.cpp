// SPDX-License-Identifier: Apache-2.0
#include "ops/softmax/softmax.h"

#include <array>

#include "autograd/record.h"
#include "core/run_on.h"

namespace hearth {
namespace {

template <bool logarithm>
struct Softmax {
  static constexpr OpInfo info{.name = logarithm ? "log_softmax" : "softmax", .autocast = Autocast::f32};
  struct Saved {
    SavedTensor y;
  };

  Tensor forward(Saved& saved, const Tensor& view) const {
    const Tensor x = view.contiguous();
    const Tensor y = Tensor::empty_like(x);
    run_on(x.device(), [&](auto& stream) { kernels::softmax(stream, logarithm, x, y); });
    if (is_recording()) saved.y = y;
    return y;
  }

  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    dy = dy.contiguous();
    const Tensor dx = dy.sole_owner() ? dy : needs.make(0, dy.shape(), dy.dtype());
    run_on(dy.device(), [&](auto& stream) { kernels::softmax_grad(stream, logarithm, saved.y.get(), dy, dx); });
    return {dx};
  }
};

void check_argument(const char* op, const Tensor& x) {
  HEARTH_CHECK(UsageError, x.defined(), op, ": x is absent");
  HEARTH_CHECK(ShapeError, x.rank() >= 1, op, ": x is a scalar; it needs an axis to normalise over");
  HEARTH_CHECK(DTypeError, is_floating(x.dtype()), op, ": x is ", describe(x), "; it must be f32, f64, f16 or bf16");
}

/// f, which is of the last axis, along another.
Tensor along(const char* op, const Tensor& x, int axis, Tensor (*f)(const Tensor&)) {
  check_argument(op, x);
  const int at = axis < 0 ? axis + x.rank() : axis;
  HEARTH_CHECK(ShapeError, at >= 0 && at < x.rank(), op, ": axis ", axis, " of ", describe(x));
  return at == x.rank() - 1 ? f(x) : f(x.transpose(at, -1)).transpose(at, -1);
}

}  // namespace

Tensor softmax(const Tensor& x, int axis) { return along("softmax", x, axis, &softmax); }

Tensor log_softmax(const Tensor& x, int axis) { return along("log_softmax", x, axis, &log_softmax); }

Tensor softmax(const Tensor& x) {
  check_argument("softmax", x);
  return record(Softmax<false>{}, x);
}

Tensor log_softmax(const Tensor& x) {
  check_argument("log_softmax", x);
  return record(Softmax<true>{}, x);
}

}  // namespace hearth
