// SPDX-License-Identifier: Apache-2.0
// How long the algorithms of a product take on this device. For matmul_cublaslt.cpp only; empty where the library's
// header is absent.
#pragma once

#if __has_include(<cublasLt.h>)
#include "ops/matmul/matmul_cublaslt_plan.h"
#include "ops/plan_timing.h"

namespace hearth::cuda::blas {

/// The fastest of these algorithms, on memory of its own that the device's caches do not hold: as many sets of operands
/// as three times the second-level cache takes, used in turn. An infinite time if the device has too little memory for
/// that. Waits for the device.
Fastest fastest_algorithm(Device device, const Plan& plan, const std::vector<Algorithm>& algorithms);

}  // namespace hearth::cuda::blas

#endif
