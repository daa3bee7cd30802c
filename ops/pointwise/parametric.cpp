// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/parametric.h"

#include <array>
#include <cmath>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"

namespace hearth {
namespace {

using kernels::Parametric;

constexpr const char* names[] = {
#define HEARTH_PARAMETRIC_NAME(name) #name,
    HEARTH_PARAMETRIC(HEARTH_PARAMETRIC_NAME)
#undef HEARTH_PARAMETRIC_NAME
};

template <Parametric function>
struct ParametricOp {
  static constexpr OpInfo info{.name = names[static_cast<std::size_t>(function)]};
  struct Saved {
    SavedTensor x;
  };
  double a, b = 0;

  Tensor forward(Saved& saved, const Tensor& view) const {
    require_floating(info.name, "x", view);
    const Tensor x = view.contiguous();
    const Tensor y = Tensor::empty_like(x);
    run_on(x.device(), [&](auto& stream) { kernels::parametric(stream, {function, a, b}, x, y); });
    if (is_recording()) saved.x = x;
    return y;
  }

  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    const bool in_place = dy.is_contiguous() && dy.sole_owner();
    const Tensor dense = in_place ? std::move(dy) : dy.contiguous();
    const Tensor dx = in_place ? dense : needs.make(0, dense.shape(), dense.dtype());
    run_on(dx.device(), [&](auto& stream) {
      kernels::parametric_grad(stream, {function, a, b}, saved.x.get(), dense, dx);
    });
    return {dx};
  }
};

}  // namespace

Tensor leaky_relu(const Tensor& x, double negative_slope) {
  HEARTH_CHECK(UsageError, std::isfinite(negative_slope), "leaky_relu: negative_slope is ", negative_slope,
               "; it must be finite");
  return record(ParametricOp<Parametric::leaky_relu>{negative_slope}, x);
}

Tensor elu(const Tensor& x, double alpha) {
  HEARTH_CHECK(UsageError, std::isfinite(alpha), "elu: alpha is ", alpha, "; it must be finite");
  return record(ParametricOp<Parametric::elu>{alpha}, x);
}

Tensor softplus(const Tensor& x, double beta) {
  HEARTH_CHECK(UsageError, beta > 0 && std::isfinite(beta), "softplus: beta is ", beta,
               "; it must be a finite number above 0");
  return record(ParametricOp<Parametric::softplus>{beta}, x);
}

Tensor clamp(const Tensor& x, double low, double high) {
  HEARTH_CHECK(UsageError, low <= high, "clamp: the bounds are ", low, " and ", high,
               "; the first must not be above the second, and neither NaN");
  return record(ParametricOp<Parametric::clamp>{low, high}, x);
}

}  // namespace hearth
