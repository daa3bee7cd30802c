// SPDX-License-Identifier: Apache-2.0
// One thread.
#include "hearth/core/cuda/kernel.h"
#include "hearth/ops/loss/loss_sum.h"

namespace hearth::kernels {
namespace {

template <class T>
__global__ void add_one_loss(double* sum, const T* loss, double weight) {
  // Named, because a fused multiply-add would round once where the CPU rounds twice.
  *sum = __dadd_rn(*sum, __dmul_rn(weight, static_cast<double>(cuda::widen(*loss))));
}

}  // namespace

void add_loss(cuda::Stream& stream, const Tensor& sum, const Tensor& loss, double weight) {
  visit_dtype("add_loss", loss.dtype(), Floats{}, [&]<class T>() {
    cuda::launch(stream, "add_loss", {1, 1}, add_one_loss<T>, sum.data<double>(), loss.data<T>(), weight);
  });
}

}  // namespace hearth::kernels
