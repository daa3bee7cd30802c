// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/layer_norm.h"

#include <array>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/norm/merge_layer_norm.h"
#include "ops/norm/parameter.h"

namespace hearth {
namespace {

/// Of the rows of x, or of the rows that merge_layer_norm() makes of four neighbours each.
template <bool merges>
struct LayerNorm {
  static constexpr OpInfo info{.name = merges ? "merge_layer_norm" : "layer_norm", .autocast = Autocast::as_is};
  double eps;
  DType y_type;

  struct Saved {
    SavedTensor x, gamma;
    Tensor mean, rstd;
  };

  static Shape shape_of_result(const Tensor& x, const Tensor& gamma) {
    if (!merges) return x.shape();
    return {x.dim(0), (x.dim(1) + 1) / 2, (x.dim(2) + 1) / 2, gamma.dim(0)};
  }

  Tensor forward(Saved& saved, const Tensor& x_view, const Tensor& gamma_view, const Tensor& beta_view) const {
    const Tensor x = x_view.contiguous(), gamma = gamma_view.contiguous(), beta = beta_view.contiguous();
    const Tensor y = Tensor::empty(shape_of_result(x, gamma), y_type, x.device());
    const std::int64_t cols = y.dim(-1), rows = cols == 0 ? 0 : y.size() / cols;
    const Tensor mean = Tensor::empty({rows}, gamma.dtype(), x.device()), rstd = Tensor::empty_like(mean);
    run_on(x.device(), [&](auto& stream) {
      const kernels::Normalized o{gamma, beta, eps, y, mean, rstd};
      if constexpr (merges)
        kernels::merge_layer_norm(stream, x, o);
      else
        kernels::layer_norm(stream, x, o);
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
    const bool in_place = !merges && dy.dtype() == x.dtype() && dy.sole_owner();
    const Tensor dx = in_place ? dy : needs[0] ? needs.make(0, x.shape(), x.dtype()) : Tensor::empty_like(x);
    std::array<Tensor, 3> gradients;
    if (needs[0]) gradients[0] = dx;
    for (const std::size_t input : {std::size_t{1}, std::size_t{2}})
      if (needs[input]) gradients[input] = needs.make(input, gamma.shape(), gamma.dtype());
    run_on(x.device(), [&](auto& stream) {
      const kernels::NormGradient g{dy, gamma, saved.mean, saved.rstd, gradients[1], gradients[2]};
      if constexpr (merges)
        kernels::merge_layer_norm_grad(stream, x, g, dx);
      else
        kernels::layer_norm_grad(stream, x, g, dx);
    });
    return gradients;
  }
};

template <bool merges>
Tensor checked(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, bool low_precision) {
  const char* const op = LayerNorm<merges>::info.name;
  check_norm_rows(op, x, eps);
  HEARTH_CHECK(ShapeError, !merges || x.rank() == 4, op, ": x ", x.shape(), " is not [N, H, W, C]");
  const std::int64_t columns = merges ? checked_mul(4, x.dim(3), op) : x.dim(-1);
  check_norm_parameter(op, "gamma", gamma, x, columns);
  check_norm_parameter(op, "beta", beta, x, columns);
  return record(LayerNorm<merges>{eps, norm_result_dtype(x, low_precision)}, x, gamma, beta);
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, bool low_precision) {
  return checked<false>(x, gamma, beta, eps, low_precision);
}

Tensor merge_layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, bool low_precision) {
  return checked<true>(x, gamma, beta, eps, low_precision);
}

}  // namespace hearth
