// SPDX-License-Identifier: Apache-2.0
// What a residual block has of its norms beside a library's convolutions: coefficients from the sums that it leaves and
// in the form that it takes.
// Reference: batch_norm_sums_cpu.cpp.
#include "ops/norm/batch_norm.cuh"
#include "ops/norm/channel_moments.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

constexpr int join_block = 128;

// A thread a channel. `folded` [2, channels]: scale, and shift - mean scale.
template <class P>
__global__ void batch_norm_from_sums(const float* sums, std::int64_t channels, double values, Coefficients<P> to,
                                     f16* folded) {
  const std::int64_t c = global_thread();
  if (c >= channels) return;
  if (sums != nullptr) {
    const double mean = static_cast<double>(sums[c]) / values;
    const double variance = static_cast<double>(sums[channels + c]) / values - mean * mean;
    store_statistics(to, ChannelTerms<P>(to, c), channels, c, mean, variance < 0 ? 0.0 : variance, values);
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

}  // namespace hearth::kernels
