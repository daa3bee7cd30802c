// SPDX-License-Identifier: Apache-2.0
// The SGD update, for a device.
#include "optim/sgd.cuh"

namespace hearth::kernels {
namespace {

struct NoTrust {
  __device__ double operator()(const PlanTables&, std::int64_t, const SgdCoefficients&) const { return 1.0; }
};

}  // namespace

void sgd_update(cuda::Stream& stream, const Tensor& values, const Tensor& grads, const Tensor& moment,
                const Copies& copies, const optim::UpdatePlan& plan, const Staged<SgdCoefficients>& coefficients) {
  visit_dtype("sgd", values.dtype(), WideFloats{},
              [&]<class T>() { launch_sgd<T>(stream, values, grads, moment, copies, plan, coefficients, NoTrust{}); });
}

}  // namespace hearth::kernels
