// SPDX-License-Identifier: Apache-2.0
// The functions of cuBLASLt that are used, and the descriptors of one product. For blas*.cpp only; empty where the
// library's header is absent.
#pragma once

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "ops/cublaslt/cublaslt.h"

namespace hearth::cuda::blas {

/// What is used of the library.
struct Functions {
  Library file{"cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12"}};
  decltype(cublasLtCreate)* create = nullptr;
  decltype(cublasLtGetVersion)* version = nullptr;
  decltype(cublasLtGetStatusString)* text = nullptr;
  decltype(cublasLtMatmulDescCreate)* desc_create = nullptr;
  decltype(cublasLtMatmulDescDestroy)* desc_destroy = nullptr;
  decltype(cublasLtMatmulDescSetAttribute)* desc_set = nullptr;
  decltype(cublasLtMatrixLayoutCreate)* layout_create = nullptr;
  decltype(cublasLtMatrixLayoutDestroy)* layout_destroy = nullptr;
  decltype(cublasLtMatrixLayoutSetAttribute)* layout_set = nullptr;
  decltype(cublasLtMatmulPreferenceCreate)* preference_create = nullptr;
  decltype(cublasLtMatmulPreferenceDestroy)* preference_destroy = nullptr;
  decltype(cublasLtMatmulPreferenceSetAttribute)* preference_set = nullptr;
  decltype(cublasLtMatmulAlgoGetHeuristic)* heuristic = nullptr;
  decltype(cublasLtMatmul)* matmul = nullptr;

  Functions();
};

/// Opened at the first call, never closed.
Functions& lt();
/// Throws DeviceError with the library's words unless the call succeeded.
void check(cublasStatus_t status, const char* call);

/// A descriptor that is destroyed with its owner.
template <class T>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, cublasStatus_t (*)(T)>;

/// A way to do the product.
struct Algorithm {
  cublasLtMatmulAlgo_t blob{};
  std::size_t workspace = 0;
};

/// One product as the library sees it, with the algorithm it is done by.
struct Plan {
  Problem problem;
  cublasLtHandle_t handle = nullptr;
  Owned<cublasLtMatmulDesc_t> desc{nullptr, nullptr};
  Owned<cublasLtMatrixLayout_t> left{nullptr, nullptr}, right{nullptr, nullptr}, result{nullptr, nullptr};
  Algorithm algorithm;
  std::string declines;
  PlanInfo info;
};

/// The plan's descriptors, without an algorithm.
Plan describe_product(const Problem& problem, cublasLtHandle_t handle);
/// What the heuristic offers for them, best first; empty, with plan.declines set, if there is nothing.
std::vector<Algorithm> offered_algorithms(Plan& plan);
/// Queues the product.
cublasStatus_t enqueue_product(const Plan& plan, const Algorithm& algorithm, const Operands& operands, void* workspace,
                               cudaStream_t stream);

}  // namespace hearth::cuda::blas

#endif
