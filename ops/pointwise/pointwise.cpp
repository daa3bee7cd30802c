// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/pointwise.h"

#include <cmath>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/pointwise/parametric_functors.h"

namespace hearth {
namespace {

using functors::Keeps;
using kernels::Pointwise;
using kernels::PointwiseFunction;

/// What a row of the table says about its function.
struct Row {
  const char* name;
  Keeps keeps;
  bool widens;
};
constexpr Row rows[] = {
#define HEARTH_POINTWISE_ROW(name, ...) {#name, functors::name::keeps, functors::name::widens},
    HEARTH_POINTWISE(HEARTH_POINTWISE_ROW) HEARTH_PARAMETRIC(HEARTH_POINTWISE_ROW)
#undef HEARTH_POINTWISE_ROW
};
constexpr const Row& row_of(Pointwise function) { return rows[static_cast<std::size_t>(function)]; }

Tensor forward_of(const PointwiseFunction& f, SavedTensor& saved, const Tensor& x) {
  const Row& row = row_of(f.which);
  require_floating(row.name, "x", x);
  const Tensor dense = x.contiguous();
  Tensor y = Tensor::empty_like(dense);
  run_on(x.device(), [&](auto& stream) { kernels::pointwise(stream, f, dense, y); });
  if (is_recording() && row.keeps != Keeps::nothing) saved = row.keeps == Keeps::x ? dense : y;
  return y;
}

Tensor backward_of(const PointwiseFunction& f, const SavedTensor& saved, Tensor dy, const NeedsGrad& needs) {
  if (!needs[0]) return {};
  const Tensor saved_tensor = row_of(f.which).keeps == Keeps::nothing ? Tensor() : saved.get();
  const bool in_place = dy.is_contiguous() && dy.sole_owner();
  const Tensor dense = in_place ? std::move(dy) : dy.contiguous();
  const Tensor dx = in_place ? dense : needs.make(0, dense.shape(), dense.dtype());
  run_on(dx.device(), [&](auto& stream) { kernels::pointwise_grad(stream, f, saved_tensor, dense, dx); });
  return dx;
}

template <Pointwise function>
struct PointwiseOp {
  static constexpr OpInfo info{.name = row_of(function).name,
                               .autocast = row_of(function).widens ? Autocast::f32 : Autocast::follow};
  struct Saved {
    SavedTensor tensor;
  };
  double a = 0, b = 0;

  Tensor forward(Saved& saved, const Tensor& x) const { return forward_of({function, a, b}, saved.tensor, x); }
  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    return {backward_of({function, a, b}, saved.tensor, std::move(dy), needs)};
  }
};

}  // namespace

#define HEARTH_DEFINE_POINTWISE(name, domain) \
  Tensor name(const Tensor& x) { return record(PointwiseOp<Pointwise::name>{}, x); }
HEARTH_POINTWISE(HEARTH_DEFINE_POINTWISE)
#undef HEARTH_DEFINE_POINTWISE

Tensor leaky_relu(const Tensor& x, double negative_slope) {
  HEARTH_CHECK(UsageError, std::isfinite(negative_slope), "leaky_relu: negative_slope is ", negative_slope,
               "; it must be finite");
  return record(PointwiseOp<Pointwise::leaky_relu>{negative_slope}, x);
}

Tensor elu(const Tensor& x, double alpha) {
  HEARTH_CHECK(UsageError, std::isfinite(alpha), "elu: alpha is ", alpha, "; it must be finite");
  return record(PointwiseOp<Pointwise::elu>{alpha}, x);
}

Tensor softplus(const Tensor& x, double beta) {
  HEARTH_CHECK(UsageError, beta > 0 && std::isfinite(beta), "softplus: beta is ", beta,
               "; it must be a finite number above 0");
  return record(PointwiseOp<Pointwise::softplus>{beta}, x);
}

Tensor clamp(const Tensor& x, double low, double high) {
  HEARTH_CHECK(UsageError, low <= high, "clamp: the bounds are ", low, " and ", high,
               "; the first must not be above the second, and neither NaN");
  return record(PointwiseOp<Pointwise::clamp>{low, high}, x);
}

}  // namespace hearth
