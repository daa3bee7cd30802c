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
__global__ void add_one_loss(double* sum, const T* loss, double weight, const double* row_weight) {
  const double whole = row_weight == nullptr ? weight : __dmul_rn(weight, *row_weight);
  // Named, because a fused multiply-add would round once where the CPU rounds twice.
  *sum = __dadd_rn(*sum, __dmul_rn(whole, static_cast<double>(upcast(*loss))));
}

__global__ void __launch_bounds__(one_block)
    count_other_labels(const std::int64_t* labels, std::int64_t n, std::int64_t ignored, double* count) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += one_block) sum += labels[i] != ignored ? 1 : 0;
  sum = block_reduce<Sum>(sum, 0.0);
  if (threadIdx.x == 0) *count = sum;
}

/// Counts are whole numbers, so that the order of their sum does not show; of weights of classes it may, in the last
/// bit.
__global__ void __launch_bounds__(one_block) divide_counts(const double* counts, double* weights, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += one_block) sum += counts[i];
  sum = block_reduce<Sum>(sum, 0.0);
  for (std::int64_t i = threadIdx.x; i < n; i += one_block) weights[i] = sum > 0 ? counts[i] / sum : 0;
}

}  // namespace

void add_loss(cuda::Stream& stream, const Tensor& sum, const Tensor& loss, double weight, const Tensor& row_weight) {
  visit_dtype("add_loss", loss.dtype(), Floats{}, [&]<class T>() {
    launch(stream, "add_loss", {1, 1, 0, bytes_of(sum, loss, row_weight)}, add_one_loss<T>, sum.data<double>(),
           loss.data<T>(), weight, row_weight.defined() ? row_weight.data<double>() : nullptr);
  });
}

void count_labels(cuda::Stream& stream, const Tensor& labels, std::int64_t ignored, double* count) {
  launch(stream, "count_labels", {1, one_block, 0, bytes_of(labels)}, count_other_labels, labels.data<std::int64_t>(),
         labels.size(), ignored, count);
}

void divide_by_sum(cuda::Stream& stream, const Tensor& counts, const Tensor& weights) {
  launch(stream, "label_weights", {1, one_block, 0, bytes_of(counts, weights)}, divide_counts, counts.data<double>(),
         weights.data<double>(), counts.size());
}

}  // namespace hearth::kernels
