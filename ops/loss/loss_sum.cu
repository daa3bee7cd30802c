// SPDX-License-Identifier: Apache-2.0
// One thread for a loss; one block for the labels of a part, and for the shares of all parts.
#include "core/cuda/elementwise.h"
#include "ops/loss/loss_sum.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

constexpr int one_block = 256;

/// share null: 1.
template <class T>
__global__ void add_one_loss(double* sum, const T* loss, double weight, const double* share) {
  const double whole = share == nullptr ? weight : __dmul_rn(weight, *share);
  // Named, because a fused multiply-add would round once where the CPU rounds twice.
  *sum = __dadd_rn(*sum, __dmul_rn(whole, static_cast<double>(widen(*loss))));
}

__global__ void __launch_bounds__(one_block)
    count_other_labels(const std::int64_t* labels, std::int64_t n, std::int64_t ignored, double* count) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += one_block) sum += labels[i] != ignored ? 1 : 0;
  sum = block_reduce<Sum>(sum, 0.0);
  if (threadIdx.x == 0) *count = sum;
}

/// Counts are whole numbers, so that the order of their sum does not show.
__global__ void __launch_bounds__(one_block) divide_counts(const double* counts, double* shares, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += one_block) sum += counts[i];
  sum = block_reduce<Sum>(sum, 0.0);
  for (std::int64_t i = threadIdx.x; i < n; i += one_block) shares[i] = sum > 0 ? counts[i] / sum : 0;
}

}  // namespace

void add_loss(cuda::Stream& stream, const Tensor& sum, const Tensor& loss, double weight, const Tensor& share) {
  visit_dtype("add_loss", loss.dtype(), Floats{}, [&]<class T>() {
    launch(stream, "add_loss", {1, 1}, add_one_loss<T>, sum.data<double>(), loss.data<T>(), weight,
           share.defined() ? share.data<double>() : nullptr);
  });
}

void count_labels(cuda::Stream& stream, const Tensor& labels, std::int64_t ignored, double* count) {
  launch(stream, "count_labels", {1, one_block}, count_other_labels, labels.data<std::int64_t>(), labels.size(),
         ignored, count);
}

void divide_by_sum(cuda::Stream& stream, const Tensor& counts, const Tensor& shares) {
  launch(stream, "label_shares", {1, one_block}, divide_counts, counts.data<double>(), shares.data<double>(),
         counts.size());
}

}  // namespace hearth::kernels
