// SPDX-License-Identifier: Apache-2.0
// One product as cuBLASLt describes it. For matmul_cublaslt*.cpp only; empty where the library's header is absent.
#pragma once

#if __has_include(<cublasLt.h>)
#include <string>
#include <vector>

#include "ops/cublaslt/functions.h"
#include "ops/matmul/cuda/matmul_cublaslt.h"

namespace hearth::cuda::blas {

/// A way to do the product.
struct Algorithm {
  cublasLtMatmulAlgo_t blob{};
  std::size_t workspace = 0;
};

/// One product as the library sees it, with the algorithm it is done by.
struct Plan {
  MatmulProblem problem;
  cublasLtHandle_t handle = nullptr;
  Owned<cublasLtMatmulDesc_t> desc{nullptr, nullptr};
  Owned<cublasLtMatrixLayout_t> left{nullptr, nullptr}, right{nullptr, nullptr}, result{nullptr, nullptr};
  Algorithm algorithm;
  std::string unsupported;
  PlanInfo info;
};

/// The plan's descriptors, without an algorithm.
Plan describe_product(const MatmulProblem& problem, cublasLtHandle_t handle);
/// What the heuristic offers for them, best first; empty, with plan.unsupported set, if there is nothing.
std::vector<Algorithm> offered_algorithms(Plan& plan);
/// Queues the product.
cublasStatus_t enqueue_product(const Plan& plan, const Algorithm& algorithm, const Operands& operands, void* workspace,
                               cudaStream_t stream);

}  // namespace hearth::cuda::blas

#endif
