// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/batch_norm_pool.h"

#include <array>
#include <limits>
#include <type_traits>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/norm/batch_norm_moments.h"
#include "ops/norm/parameter.h"

namespace hearth {
namespace {

struct BatchNormPool {
  static constexpr OpInfo info{.name = "batch_norm_pool", .autocast = Autocast::as_is};
  BatchNormOptions options;
  Tensor running_mean, running_var;
  kernels::PoolShape shape;
  const ChannelMoments* moments = nullptr;  ///< for forward, and gone afterwards

  struct Saved {
    SavedTensor x;
    Tensor coefficients, rstd, taps;
  };

  /// On a device the moments that a convolution left spare the pass over x.
  template <class Stream>
  void find_coefficients(Stream& stream, const Tensor& x, const kernels::ChannelNorm& norm) const {
    if constexpr (std::is_same_v<Stream, cuda::Stream>) {
      if (moments != nullptr && moments->parts.defined())
        return kernels::batch_norm_coefficients(stream, *moments, x.size() / shape.c, norm);
    }
    kernels::batch_norm_coefficients(stream, x, norm);
  }

  Tensor forward(Saved& saved, const Tensor& x_view, const Tensor& gamma, const Tensor& beta) const {
    const Tensor x = x_view.contiguous();
    const Tensor coefficients = Tensor::empty({4, shape.c}, gamma.dtype(), x.device());
    const Tensor rstd = Tensor::empty({shape.c}, DType::f64, x.device());
    const Tensor y = Tensor::empty({shape.n, shape.p, shape.q, shape.c}, x.dtype(), x.device());
    Tensor taps;
    if (is_recording()) taps = Tensor::empty(y.shape(), DType::u8, x.device());
    const Tensor g = gamma.contiguous(), b = beta.contiguous();
    const kernels::ChannelNorm norm{g, b, options, running_mean, running_var, coefficients, rstd};
    run_on(x.device(), [&](auto& stream) {
      find_coefficients(stream, x, norm);
      kernels::batch_norm_pool(stream, shape, x, coefficients, y, taps);
    });
    for (const Tensor* const running : {&running_mean, &running_var})
      if (running->defined()) running->storage()->bump_version();
    if (is_recording()) {
      saved.x = x;
      saved.coefficients = coefficients;
      saved.rstd = rstd;
      saved.taps = taps;
    }
    return y;
  }

  std::array<Tensor, 3> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    const Tensor& x = saved.x.get();
    dy = dy.contiguous();
    const DType wide = saved.coefficients.dtype();
    std::array<Tensor, 3> gradients;
    for (const std::size_t input : {std::size_t{1}, std::size_t{2}})
      if (needs[input]) gradients[input] = needs.make(input, {shape.c}, wide);
    const Tensor corrections = Tensor::empty({2, shape.c}, wide, x.device());
    // Nobody reads x after this.
    if (needs[0]) gradients[0] = x.sole_owner() ? x : needs.make(0, x.shape(), x.dtype());
    run_on(x.device(), [&](auto& stream) {
      kernels::batch_norm_pool_grad_sums(stream, shape, x, saved.coefficients, saved.taps, dy, saved.rstd, gradients[1],
                                         gradients[2], corrections);
      if (needs[0])
        kernels::batch_norm_pool_grad(stream, shape, x, saved.coefficients, saved.taps, dy, corrections, gradients[0]);
    });
    return gradients;
  }
};

}  // namespace

std::string detail::why_no_batch_norm_pool(const Tensor& x, const BatchNormOptions& options,
                                           const MaxPool2dOptions& pool) {
  if (!x.defined() || x.rank() != 4 || x.size() == 0 || !is_floating(x.dtype()))
    return "it takes images [N, H, W, C] that are there";
  if (!options.training) return "the norm is in evaluation";
  if (options.group != nullptr) return "the norm takes its statistics of all ranks";
  if (options.activation != Activation::relu) return "it has a ReLU between norm and pooling";
  const std::int64_t pack = x.device().is_cuda() ? 8 : 32;
  if (x.dim(3) % pack != 0 || (x.is_contiguous() && reinterpret_cast<std::uintptr_t>(x.bytes()) % 16 != 0))
    return join_text("channels do not come in whole packs of ", pack);
  const kernels::PoolShape shape = max_pool2d_shape(x, pool);
  if (shape.kernel_h * shape.kernel_w >= kernels::shut_tap) return "a window has 255 pixels or more";
  for (const std::int64_t count : {x.size(), x.dim(1) + shape.kernel_h + shape.stride_h,
                                   x.dim(2) + shape.kernel_w + shape.stride_w, shape.n * shape.p * shape.q * shape.c})
    if (count > std::numeric_limits<std::int32_t>::max()) return "images have 2^31 elements or more";
  return "";
}

Tensor detail::batch_norm_pool(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                               const BatchNormOptions& options, const Tensor& running_mean, const Tensor& running_var,
                               const MaxPool2dOptions& pool, const ChannelMoments* moments) {
  check_batch_norm(x, gamma, beta, options, running_mean, running_var, {}, moments);
  const std::string reason = why_no_batch_norm_pool(x, options, pool);
  HEARTH_CHECK(UsageError, reason.empty(), "batch_norm_pool: ", reason, " (x ", describe(x), "); use the two ops");
  return record(BatchNormPool{options, running_mean, running_var, max_pool2d_shape(x, pool), moments}, x, gamma, beta);
}

}  // namespace hearth
