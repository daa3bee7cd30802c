// SPDX-License-Identifier: Apache-2.0
// What a residual block has of its norms: coefficients from the sums that a library leaves and in the form that it
// takes, and the sums of the gradient, joined from the parts that a convolution's data gradient left of them.
// Reference: batch_norm_sums_cpu.cpp.
#include "ops/norm/batch_norm.cuh"
#include "ops/norm/channel_moments.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

constexpr int join_block = 128;
constexpr std::int64_t many_runs = 1024;  // of a channel: a block's work

// A group of threads a channel; null outputs are not wanted.
template <class P, class Group>
__global__ void batch_norm_grad_join(Group group, const double* parts, std::int64_t channels, std::int64_t runs,
                                     double values, const P* table, const double* rstd, P* d_gamma, P* d_beta,
                                     P* corrections) {
  const std::int64_t c = group.first_row();
  if (c >= channels) return;
  double sum = 0, product = 0;
  for (std::int64_t run = group.index(); run < runs; run += group.threads()) {
    sum += parts[c * runs + run];
    product += parts[(channels + c) * runs + run];
  }
  sum = group.template reduce<Sum>(sum, 0.0);
  product = group.template reduce<Sum>(product, 0.0);
  if (group.index() != 0) return;
  const double rest = table[3 * channels + c];
  product -= rest * sum;
  if (d_gamma != nullptr) d_gamma[c] = static_cast<P>(product * rstd[c]);
  if (d_beta != nullptr) d_beta[c] = static_cast<P>(sum);
  const double b = product * rstd[c] * rstd[c] / values;
  corrections[c] = static_cast<P>(sum / values - b * rest);
  corrections[channels + c] = static_cast<P>(b);
}

// A thread a channel. `folded` [2, channels]: scale, and shift - mean scale.
template <class P>
__global__ void batch_norm_from_sums(const float* sums, std::int64_t channels, double values, Coefficients<P> to,
                                     f16* folded) {
  const std::int64_t c = global_thread();
  if (c >= channels) return;
  if (sums != nullptr) {
    const double mean = static_cast<double>(sums[c]) / values;
    const double variance = static_cast<double>(sums[channels + c]) / values - mean * mean;
    store_statistics(to, channels, c, mean, variance < 0 ? 0.0 : variance, values);
  }
  const P mean = to.table[c], scale = to.table[channels + c];
  folded[c] = cast_down<f16>(static_cast<float>(scale));
  folded[channels + c] = cast_down<f16>(static_cast<float>(to.table[2 * channels + c] - mean * scale));
}

}  // namespace

void batch_norm_folded(Stream& stream, const Tensor& sums, std::int64_t values, const ChannelNorm& o,
                       const Tensor& folded) {
  const std::int64_t channels = folded.dim(1);
  visit_dtype("batch_norm", o.gamma.dtype(), FullFloats{}, [&]<class P>() {
    launch(stream, "batch_norm_from_sums",
           {blocks_for(channels, join_block), join_block, 0, bytes_of(sums, o.gamma, o.beta, folded)},
           batch_norm_from_sums<P>, static_cast<const float*>(data_or_null<float>(sums)), channels,
           static_cast<double>(values), coefficients_of<P>(o), folded.data<f16>());
  });
}

void batch_norm_grad_sums(Stream& stream, const ChannelMoments& sums, std::int64_t values, const Tensor& coefficients,
                          const Tensor& rstd, const Tensor& d_gamma, const Tensor& d_beta, const Tensor& corrections) {
  const std::int64_t channels = coefficients.dim(1), runs = sums.parts.dim(2);
  visit_dtype("batch_norm", coefficients.dtype(), FullFloats{}, [&]<class P>() {
    const auto run = [&](const LaunchShape& shape, auto group) {
      launch(stream, "batch_norm_grad_join",
             shape.moving(bytes_of(sums.parts, coefficients, rstd, d_gamma, d_beta, corrections)),
             batch_norm_grad_join<P, decltype(group)>, group, static_cast<const double*>(sums.parts.data<double>()),
             channels, runs, static_cast<double>(values), static_cast<const P*>(coefficients.data<P>()),
             static_cast<const double*>(rstd.data<double>()), data_or_null<P>(d_gamma), data_or_null<P>(d_beta),
             corrections.data<P>());
    };
    if (runs > many_runs)
      run({blocks_for(channels, 1), join_block}, BlockGroup{});
    else
      run({blocks_for(channels * warp_size, join_block), join_block}, LaneGroup{warp_size});
  });
}

}  // namespace hearth::kernels
