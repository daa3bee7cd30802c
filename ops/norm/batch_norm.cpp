// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/batch_norm.h"

#include <array>
#include <type_traits>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/norm/batch_norm_moments.h"
#include "ops/norm/folded_rows.h"
#include "ops/norm/parameter.h"
#include "ops/norm/synced_statistics.h"

namespace hearth {
namespace {

using kernels::ReluGate;

struct BatchNorm {
  static constexpr OpInfo info{.name = "batch_norm", .autocast = Autocast::as_is};
  BatchNormOptions options;
  Tensor running_mean;
  Tensor running_var;
  const ChannelMoments* moments = nullptr;  ///< for forward, and gone afterwards

  struct Saved {
    SavedTensor x;
    Tensor coefficients;  // [4, C]: see kernels::batch_norm_coefficients
    Tensor rstd;
    Tensor mask;
    ReluGate gate = ReluGate::none;
    double values = 0;  // a channel, of all ranks
  };

  bool is_synced() const { return options.training && options.group != nullptr; }

  /// On a device the moments that a convolution left spare the pass over x.
  template <class Stream>
  void find_coefficients(Stream& stream, const Tensor& x, const kernels::ChannelNorm& o) const {
    if constexpr (std::is_same_v<Stream, cuda::Stream>) {
      if (options.training && moments != nullptr && moments->parts.defined() && x.size() > 0)
        return kernels::batch_norm_coefficients(stream, *moments, x.size() / x.dim(-1), o);
    }
    kernels::batch_norm_coefficients(stream, x, o);
  }

  Tensor forward(Saved& saved, const Tensor& x_view, const Tensor& gamma, const Tensor& beta,
                 const Tensor& residual_view) const {
    const Tensor x = x_view.contiguous();
    const Tensor residual = residual_view.defined() ? residual_view.contiguous() : residual_view;
    const bool relu = options.activation == Activation::relu;
    const std::int64_t channels = x.dim(-1);
    const Tensor coefficients = Tensor::empty({4, channels}, gamma.dtype(), x.device());
    const Tensor rstd = Tensor::empty({channels}, DType::f64, x.device());
    const Tensor y = Tensor::empty_like(x);
    Tensor mask;
    if (relu && residual.defined() && is_recording()) {
      // Without a residual the sign follows from x, which is read anyway.
      const kernels::FoldedRows folded(x);
      mask = Tensor::empty({folded.rows, folded.mask_bytes()}, DType::u8, x.device());
    }
    const Tensor g = gamma.contiguous(), b = beta.contiguous();
    const kernels::ChannelNorm norm{g, b, options, running_mean, running_var, coefficients, rstd};
    if (is_synced()) saved.values = kernels::synced_coefficients(*options.group, x, norm);
    run_on(x.device(), [&](auto& stream) {
      if (!is_synced()) find_coefficients(stream, x, norm);
      kernels::batch_norm(stream, x, coefficients, residual, relu, y, mask);
    });
    if (options.training && running_mean.defined()) {
      running_mean.storage()->bump_version();
      running_var.storage()->bump_version();
    }
    if (is_recording()) {
      saved.x = x;
      saved.coefficients = coefficients;
      saved.rstd = rstd;
      saved.mask = mask;
      saved.gate = !relu ? ReluGate::none : residual.defined() ? ReluGate::from_mask : ReluGate::from_input;
    }
    return y;
  }

  std::array<Tensor, 4> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    const Tensor& x = saved.x.get();
    dy = dy.contiguous();
    const kernels::BatchNormSaved given{x, saved.coefficients, saved.gate, saved.mask};
    const std::int64_t channels = x.dim(-1);
    const DType wide = norm_parameter_dtype(x.dtype());
    std::array<Tensor, 4> gradients;
    for (const std::size_t input : {std::size_t{1}, std::size_t{2}})
      if (needs[input]) gradients[input] = needs.make(input, {channels}, wide);
    Tensor corrections;
    if (needs[0] && options.training) corrections = Tensor::empty({2, channels}, wide, x.device());
    if (needs[1] || needs[2] || corrections.defined()) {
      Tensor d_gamma = gradients[1], d_beta = gradients[2];
      const bool synced = is_synced() && corrections.defined();
      for (Tensor* const sum : {&d_gamma, &d_beta})
        if (synced && !sum->defined()) *sum = Tensor::empty({channels}, wide, x.device());
      run_on(x.device(), [&](auto& stream) {
        kernels::batch_norm_grad_sums(stream, given, dy, saved.rstd, d_gamma, d_beta, corrections);
      });
      if (synced)
        kernels::synced_corrections(*options.group, saved.values, saved.coefficients, saved.rstd, d_gamma, d_beta,
                                    corrections);
    }
    if (!needs[0] && !needs[3]) return gradients;
    // dy becomes one of the results where nobody else reads it.
    const bool reuse = dy.sole_owner();
    Tensor d_residual;
    if (needs[3] && saved.gate != ReluGate::none) {
      d_residual = reuse ? dy : needs.make(3, x.shape(), x.dtype());
      gradients[3] = d_residual;
    } else if (needs[3]) {
      gradients[3] = dy;
    }
    if (!needs[0] && !d_residual.defined()) return gradients;
    const bool write_over = reuse && !gradients[3].defined();
    // Nobody reads x after this either.
    const Tensor dx = write_over       ? dy
                      : x.sole_owner() ? x
                      : needs[0]       ? needs.make(0, x.shape(), x.dtype())
                                       : Tensor::empty_like(x);
    run_on(x.device(), [&](auto& stream) { kernels::batch_norm_grad(stream, given, dy, corrections, dx, d_residual); });
    if (needs[0]) gradients[0] = dx;
    return gradients;
  }
};

void check_arguments(const Tensor& x, const Tensor& gamma, const Tensor& beta, const BatchNormOptions& options,
                     const Tensor& running_mean, const Tensor& running_var, const Tensor& residual) {
  require_floating("batch_norm", "x", x);
  HEARTH_CHECK(ShapeError, x.rank() >= 2, "batch_norm: x ", x.shape(),
               " needs at least two axes, the last one being the channels");
  check_norm_parameter("batch_norm", "gamma", gamma, x);
  check_norm_parameter("batch_norm", "beta", beta, x);
  HEARTH_CHECK(UsageError, running_mean.defined() == running_var.defined(),
               "batch_norm: running_mean and running_var must both be given or both be absent");
  HEARTH_CHECK(UsageError, options.training || running_mean.defined(),
               "batch_norm: evaluation needs running_mean and running_var");
  if (running_mean.defined()) {
    check_norm_parameter("batch_norm", "running_mean", running_mean, x);
    check_norm_parameter("batch_norm", "running_var", running_var, x);
    HEARTH_CHECK(UsageError, running_mean.is_contiguous() && running_var.is_contiguous(),
                 "batch_norm: the running statistics must be contiguous, because they are written in place");
  }
  check_norm_eps("batch_norm", options.eps);
  HEARTH_CHECK(UsageError, options.momentum >= 0.0 && options.momentum <= 1.0, "batch_norm: momentum is ",
               options.momentum, "; it must lie in [0, 1]");
  HEARTH_CHECK(UsageError, options.activation == Activation::none || options.activation == Activation::relu,
               "batch_norm: activation ", name_of(options.activation), " cannot be fused; use none or relu");
  HEARTH_CHECK(ShapeError, !options.training || options.group != nullptr || x.dim(-1) == 0 || x.size() / x.dim(-1) >= 2,
               "batch_norm: x ", x.shape(), " has ", x.dim(-1) == 0 ? 0 : x.size() / x.dim(-1),
               " values a channel; training needs at least 2, or the variance is undefined");
  if (!residual.defined()) return;
  HEARTH_CHECK(ShapeError, residual.shape() == x.shape(), "batch_norm: residual ", residual.shape(),
               " must have the shape of x ", x.shape());
  HEARTH_CHECK(DTypeError, residual.dtype() == x.dtype(), "batch_norm: residual is ", residual.dtype(), " but x is ",
               x.dtype(), "; cast one of them");
}

void check_moments(const Tensor& x, const ChannelMoments& moments) {
  const Tensor& parts = moments.parts;
  const std::int64_t channels = x.dim(-1), rows = channels == 0 ? 0 : x.size() / channels;
  const bool fits = parts.rank() == 3 && parts.dim(0) == 2 && parts.dim(1) == channels && parts.dtype() == DType::f64 &&
                    parts.is_contiguous() && parts.device() == x.device();
  HEARTH_CHECK(UsageError,
               fits && moments.run_rows >= 1 && (rows + moments.run_rows - 1) / moments.run_rows == parts.dim(2),
               "batch_norm: the moments ", describe(parts), " of runs of ", moments.run_rows,
               " rows are not those of x ", describe(x), "; pass the ones that conv2d made together with x");
}

}  // namespace

void detail::check_batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const BatchNormOptions& options,
                              const Tensor& running_mean, const Tensor& running_var, const Tensor& residual,
                              const ChannelMoments* moments) {
  check_arguments(x, gamma, beta, options, running_mean, running_var, residual);
  if (moments != nullptr && moments->parts.defined()) check_moments(x, *moments);
}

Tensor detail::batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const BatchNormOptions& options,
                          const Tensor& running_mean, const Tensor& running_var, const Tensor& residual,
                          const ChannelMoments* moments) {
  // Under autocast the two branches of a residual block may arrive in different types.
  const bool convert = autocast_dtype() && x.defined() && residual.defined() && residual.dtype() != x.dtype() &&
                       is_floating(x.dtype()) && is_floating(residual.dtype());
  const Tensor matched = convert ? detail::cast(residual, x.dtype()) : residual;
  check_batch_norm(x, gamma, beta, options, running_mean, running_var, matched, moments);
  return record(BatchNorm{options, running_mean, running_var, moments}, x, gamma, beta, matched);
}

Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const BatchNormOptions& options,
                  const Tensor& running_mean, const Tensor& running_var, const Tensor& residual) {
  return detail::batch_norm(x, gamma, beta, options, running_mean, running_var, residual, nullptr);
}

}  // namespace hearth
