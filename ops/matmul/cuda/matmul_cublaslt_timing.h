// SPDX-License-Identifier: Apache-2.0
// How long the algorithms of a product take on this device. For matmul_cublaslt.cpp only; empty where the library's
// header is absent.
#pragma once

#if __has_include(<cublasLt.h>)
#include "ops/dispatch/plan_timing.h"
#include "ops/matmul/cuda/matmul_cublaslt_plan.h"

namespace hearth::cuda::blas {

/// The fastest of these algorithms, as fastest_plan() finds it.
Fastest fastest_algorithm(Device device, const Plan& plan, const std::vector<Algorithm>& algorithms);

}  // namespace hearth::cuda::blas

#endif
