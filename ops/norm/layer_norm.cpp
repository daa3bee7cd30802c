// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/layer_norm.h"

#include <array>
#include <cmath>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/norm/parameter.h"

namespace hearth {
namespace {

struct LayerNorm {
  static constexpr OpInfo info{.name = "layer_norm", .autocast = Autocast::as_is};
  double eps;

  struct Kept {
    KeptTensor x, gamma;
    Tensor mean, rstd;
  };

  Tensor forward(Kept& kept, const Tensor& x_view, const Tensor& gamma_view, const Tensor& beta) const {
    const Tensor x = x_view.contiguous(), gamma = gamma_view.contiguous();
    const std::int64_t cols = x.dim(-1), rows = cols == 0 ? 0 : x.size() / cols;
    const Tensor y = Tensor::empty_like(x);
    const Tensor mean = Tensor::empty({rows}, gamma.dtype(), x.device()), rstd = Tensor::empty_like(mean);
    run_on(x.device(),
           [&](auto& stream) { kernels::layer_norm(stream, x, gamma, beta.contiguous(), eps, y, mean, rstd); });
    if (is_recording()) {
      kept.x = x;
      kept.gamma = gamma;
      kept.mean = mean;
      kept.rstd = rstd;
    }
    return y;
  }

  std::array<Tensor, 3> backward(const Kept& kept, Tensor dy, const GradWants& wants) const {
    const Tensor& x = kept.x.get();
    const Tensor& gamma = kept.gamma.get();
    dy = dy.contiguous();
    const Tensor dx = dy.sole_owner() ? dy : wants[0] ? wants.make(0, x.shape(), x.dtype()) : Tensor::empty_like(x);
    std::array<Tensor, 3> gradients;
    if (wants[0]) gradients[0] = dx;
    for (const std::size_t input : {std::size_t{1}, std::size_t{2}})
      if (wants[input]) gradients[input] = wants.make(input, gamma.shape(), gamma.dtype());
    run_on(x.device(), [&](auto& stream) {
      kernels::layer_norm_grad(stream, x, dy, gamma, kept.mean, kept.rstd, dx, gradients[1], gradients[2]);
    });
    return gradients;
  }
};

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  const char* const op = LayerNorm::info.name;
  HEARTH_CHECK(UsageError, x.defined(), op, ": x is absent");
  HEARTH_CHECK(DTypeError, is_floating(x.dtype()), op, ": x is ", describe(x), "; it must be f32, f64, f16 or bf16");
  HEARTH_CHECK(ShapeError, x.rank() >= 1, op, ": x is a scalar; it needs an axis to normalise over");
  check_norm_parameter(op, "gamma", gamma, x);
  check_norm_parameter(op, "beta", beta, x);
  HEARTH_CHECK(UsageError, std::isfinite(eps) && eps >= 0.0, op, ": eps is ", eps,
               "; it must be finite and at least 0");
  return record(LayerNorm{eps}, x, gamma, beta);
}

}  // namespace hearth
