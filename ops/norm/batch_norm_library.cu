// SPDX-License-Identifier: Apache-2.0
// What a library's batch normalisation leaves, in the form that the own gradient reads.
#include "ops/norm/batch_norm.cuh"
#include "ops/norm/folded_rows.h"
#include "ops/norm/library.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

constexpr int block = 256;

// A thread a channel. The running statistics move as behind the own kernels.
__global__ void adopt_statistics(const float* mean, const float* inv_std, std::int64_t channels, double values,
                                 Coefficients<float> to) {
  const std::int64_t c = global_thread();
  if (c >= channels) return;
  const double inverse = inv_std[c], variance = 1.0 / (inverse * inverse) - to.eps;
  store_statistics(to, channels, c, static_cast<double>(mean[c]), variance < 0 ? 0.0 : variance, values);
}

// A thread a byte of the mask: the bits of y > 0.
template <class T>
__global__ void mask_of_result(const T* y, std::int64_t rows, std::int64_t lanes, std::int64_t bytes,
                               std::uint8_t* mask) {
  for (std::int64_t at = global_thread(); at < rows * bytes; at += global_threads()) {
    const std::int64_t row = at / bytes, lane = at % bytes * 8;
    unsigned bits = 0;
    for (int k = 0; k < 8 && lane + k < lanes; ++k) bits |= (widen(y[row * lanes + lane + k]) > 0 ? 1u : 0u) << k;
    mask[at] = static_cast<std::uint8_t>(bits);
  }
}

}  // namespace

void adopt_batch_statistics(cuda::Stream& stream, const Tensor& mean, const Tensor& inv_std, std::int64_t values,
                            const Tensor& gamma, const Tensor& beta, const BatchNormOptions& options,
                            const Tensor& running_mean, const Tensor& running_var, const Tensor& coefficients,
                            const Tensor& rstd) {
  const std::int64_t channels = mean.dim(0);
  launch(stream, "batch_norm_adopt", {blocks_for(channels, block), block}, adopt_statistics,
         static_cast<const float*>(mean.data<float>()), static_cast<const float*>(inv_std.data<float>()), channels,
         static_cast<double>(values),
         coefficients_of<float>(gamma, beta, options, running_mean, running_var, coefficients, rstd));
}

void relu_mask(cuda::Stream& stream, const Tensor& y, const Tensor& mask) {
  const FoldedRows folded(y);
  if (y.size() == 0) return;
  visit_dtype("batch_norm", y.dtype(), Floats{}, [&]<class T>() {
    launch(stream, "batch_norm_mask", {blocks_for(folded.rows * folded.mask_bytes(), block, 1 << 16), block},
           mask_of_result<T>, static_cast<const T*>(y.data<T>()), folded.rows, folded.lanes, folded.mask_bytes(),
           mask.data<std::uint8_t>());
  });
}

}  // namespace hearth::kernels
