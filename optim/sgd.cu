// SPDX-License-Identifier: Apache-2.0
// The SGD update, for a device.
#include "optim/sgd.cuh"

namespace hearth::kernels {
namespace {

struct NoTrust {
  __device__ double operator()(const PlanTables&, std::int64_t, const SgdCoefficients&) const { return 1.0; }
};

}  // namespace

void sgd_update(cuda::Stream& stream, const UpdateBuffers& on, const Tensor& moment,
                const Staged<SgdCoefficients>& coefficients) {
  visit_dtype("sgd", on.values.dtype(), FullFloats{},
              [&]<class T>() { launch_sgd<T>(stream, on, moment, coefficients, NoTrust{}); });
}

}  // namespace hearth::kernels
