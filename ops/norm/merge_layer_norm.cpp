// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/merge_layer_norm.h"

#include <array>
#include <cmath>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/norm/parameter.h"

namespace hearth {
namespace {

struct MergeLayerNorm {
  static constexpr OpInfo info{.name = "merge_layer_norm", .autocast = Autocast::as_is};
  double eps;

  struct Kept {
    KeptTensor x, gamma;
    Tensor mean, rstd;
  };

  Tensor forward(Kept& kept, const Tensor& x_view, const Tensor& gamma_view, const Tensor& beta) const {
    const Tensor x = x_view.contiguous(), gamma = gamma_view.contiguous();
    const Shape shape{x.dim(0), (x.dim(1) + 1) / 2, (x.dim(2) + 1) / 2, gamma.dim(0)};
    const Tensor y = Tensor::empty(shape, x.dtype(), x.device());
    const std::int64_t rows = shape.dim(0) * shape.dim(1) * shape.dim(2);
    const Tensor mean = Tensor::empty({rows}, gamma.dtype(), x.device()), rstd = Tensor::empty_like(mean);
    run_on(x.device(),
           [&](auto& stream) { kernels::merge_layer_norm(stream, x, gamma, beta.contiguous(), eps, y, mean, rstd); });
    if (is_recording()) {
      kept.x = x;
      kept.gamma = gamma;
      kept.mean = mean;
      kept.rstd = rstd;
    }
    return y;
  }

  std::array<Tensor, 3> backward(const Kept& kept, const Tensor& dy, const GradWants& wants) const {
    const Tensor& x = kept.x.get();
    const Tensor& gamma = kept.gamma.get();
    const Tensor dx = wants[0] ? wants.make(0, x.shape(), x.dtype()) : Tensor::empty_like(x);
    std::array<Tensor, 3> gradients;
    if (wants[0]) gradients[0] = dx;
    for (const std::size_t input : {std::size_t{1}, std::size_t{2}})
      if (wants[input]) gradients[input] = wants.make(input, gamma.shape(), gamma.dtype());
    run_on(x.device(), [&](auto& stream) {
      kernels::merge_layer_norm_grad(stream, x, dy.contiguous(), gamma, kept.mean, kept.rstd, dx, gradients[1],
                                     gradients[2]);
    });
    return gradients;
  }
};

}  // namespace

Tensor merge_layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  const char* const op = MergeLayerNorm::info.name;
  require_floating(op, "x", x);
  HEARTH_CHECK(ShapeError, x.rank() == 4, op, ": x ", x.shape(), " is not [N, H, W, C]");
  const std::int64_t columns = checked_mul(4, x.dim(3), op);
  check_norm_parameter(op, "gamma", gamma, x, columns);
  check_norm_parameter(op, "beta", beta, x, columns);
  HEARTH_CHECK(UsageError, std::isfinite(eps) && eps >= 0.0, op, ": eps is ", eps,
               "; it must be finite and at least 0");
  return record(MergeLayerNorm{eps}, x, gamma, beta);
}

}  // namespace hearth
