// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/group_norm.h"

#include <array>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/norm/parameter.h"

namespace hearth {
namespace {

struct GroupNorm {
  static constexpr OpInfo info{.name = "group_norm", .autocast = Autocast::as_is};
  std::int64_t groups;
  double eps;

  struct Saved {
    SavedTensor x, gamma;
    Tensor mean, rstd;
  };

  kernels::GroupedImages sizes_of(const Tensor& x) const {
    const std::int64_t images = x.dim(0), channels = x.dim(-1);
    const std::int64_t pixels = x.size() == 0 ? 0 : x.size() / images / channels;
    return {images, pixels, groups, channels / groups};
  }

  Tensor forward(Saved& saved, const Tensor& x_view, const Tensor& gamma_view, const Tensor& beta_view) const {
    const Tensor x = x_view.contiguous(), gamma = gamma_view.contiguous(), beta = beta_view.contiguous();
    const Tensor y = Tensor::empty_like(x);
    const Tensor mean = Tensor::empty({x.dim(0), groups}, gamma.dtype(), x.device()), rstd = Tensor::empty_like(mean);
    run_on(x.device(), [&](auto& stream) {
      if (x.size() > 0) kernels::group_norm(stream, sizes_of(x), x, {gamma, beta, eps, y, mean, rstd});
    });
    if (is_recording()) {
      saved.x = x;
      saved.gamma = gamma;
      saved.mean = mean;
      saved.rstd = rstd;
    }
    return y;
  }

  std::array<Tensor, 3> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    const Tensor& x = saved.x.get();
    const Tensor& gamma = saved.gamma.get();
    dy = dy.contiguous();
    std::array<Tensor, 3> gradients;
    if (needs[0]) gradients[0] = dy.sole_owner() ? dy : needs.make(0, x.shape(), x.dtype());
    for (const std::size_t input : {std::size_t{1}, std::size_t{2}})
      if (needs[input]) gradients[input] = needs.make(input, gamma.shape(), gamma.dtype());
    const auto& [dx, d_gamma, d_beta] = gradients;
    if (x.size() == 0) {
      if (d_gamma.defined()) d_gamma.fill_(0);
      if (d_beta.defined()) d_beta.fill_(0);
      return gradients;
    }
    const kernels::GroupNormGradient g{dy, gamma, saved.mean, saved.rstd, dx, d_gamma, d_beta};
    run_on(x.device(), [&](auto& stream) { kernels::group_norm_grad(stream, sizes_of(x), x, g); });
    return gradients;
  }
};

}  // namespace

Tensor group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, std::int64_t groups, double eps) {
  const char* const op = "group_norm";
  check_norm_rows(op, x, eps);
  HEARTH_CHECK(ShapeError, x.rank() >= 2, op, ": x ", x.shape(), " must be [N, ..., C]");
  HEARTH_CHECK(ShapeError, groups >= 1, op, ": ", groups, " groups; there must be at least 1");
  HEARTH_CHECK(ShapeError, x.dim(-1) % groups == 0, op, ": ", x.dim(-1), " channels do not divide into ", groups,
               " groups (x ", x.shape(), ")");
  check_norm_parameter(op, "gamma", gamma, x);
  check_norm_parameter(op, "beta", beta, x);
  return record(GroupNorm{groups, eps}, x, gamma, beta);
}

}  // namespace hearth
