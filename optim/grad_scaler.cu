// SPDX-License-Identifier: Apache-2.0
// The found-inf check of a scaled update by one thread, and what follows from it for the running statistics.
#include "core/cuda/elementwise.h"
#include "optim/found_inf.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

__global__ void found_inf_check_of_one(FoundInfCheck check) { decide(check); }

template <class T>
__global__ void seed_of_one(const double* scale, double weight, const double* factor, T* dy) {
  *dy = cast_down<T>(static_cast<acc_t<T>>(weight * *scale * (factor == nullptr ? 1.0 : *factor)));
}

/// A thread an element: traffic is small beside that of a step.
__global__ void keep_or_restore_elements(const bool* skip, float* values, float* backup, std::int64_t n) {
  const float* const from = *skip ? backup : values;
  float* const to = *skip ? values : backup;
  for (std::int64_t i = global_thread(); i < n; i += global_threads()) to[i] = from[i];
}

}  // namespace

void check_found_inf(cuda::Stream& stream, const FoundInfCheck& check) {
  launch(stream, "loss_scale", {1, 1, 0, 64}, found_inf_check_of_one, check);
}

void scale_seed(cuda::Stream& stream, const double* scale, double weight, const double* factor, const Tensor& dy) {
  visit_dtype("loss scale", dy.dtype(), Floats{}, [&]<class T>() {
    launch(stream, "scale_seed", {1, 1, 0, bytes_of(dy)}, seed_of_one<T>, scale, weight, factor, dy.data<T>());
  });
}

void keep_or_restore(cuda::Stream& stream, const bool* skip, const Tensor& values, const Tensor& backup) {
  launch(stream, "keep_or_restore",
         {blocks_for(values.size(), element_block), element_block, 0, bytes_of(values, backup)},
         keep_or_restore_elements, skip, values.data<float>(), backup.data<float>(), values.size());
}

}  // namespace hearth::kernels
