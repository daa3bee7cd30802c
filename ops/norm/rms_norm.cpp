// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/rms_norm.h"

#include <array>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/norm/parameter.h"

namespace hearth {
namespace {

struct RmsNorm {
  static constexpr OpInfo info{.name = "rms_norm", .autocast = Autocast::as_is};
  double eps;

  struct Saved {
    SavedTensor x, gamma;
    Tensor rstd;
  };

  Tensor forward(Saved& saved, const Tensor& x_view, const Tensor& gamma_view) const {
    const Tensor x = x_view.contiguous(), gamma = gamma_view.contiguous();
    const std::int64_t rows = x.dim(-1) == 0 ? 0 : x.size() / x.dim(-1);
    const Tensor y = Tensor::empty_like(x);
    const Tensor rstd = Tensor::empty({rows}, gamma.dtype(), x.device());
    run_on(x.device(), [&](auto& stream) { kernels::rms_norm(stream, x, gamma, eps, y, rstd); });
    if (is_recording()) {
      saved.x = x;
      saved.gamma = gamma;
      saved.rstd = rstd;
    }
    return y;
  }

  std::array<Tensor, 2> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    const Tensor& x = saved.x.get();
    const Tensor& gamma = saved.gamma.get();
    dy = dy.contiguous();
    const Tensor dx = dy.sole_owner() ? dy : needs[0] ? needs.make(0, x.shape(), x.dtype()) : Tensor::empty_like(x);
    std::array<Tensor, 2> gradients;
    if (needs[0]) gradients[0] = dx;
    if (needs[1]) gradients[1] = needs.make(1, gamma.shape(), gamma.dtype());
    run_on(x.device(),
           [&](auto& stream) { kernels::rms_norm_grad(stream, x, dy, gamma, saved.rstd, dx, gradients[1]); });
    return gradients;
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& gamma, double eps) {
  const char* const op = RmsNorm::info.name;
  check_norm_rows(op, x, eps);
  check_norm_parameter(op, "gamma", gamma, x);
  return record(RmsNorm{eps}, x, gamma);
}

}  // namespace hearth
