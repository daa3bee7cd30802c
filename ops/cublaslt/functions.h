// SPDX-License-Identifier: Apache-2.0
// The functions of cuBLASLt that are used, and owners of its descriptors. For sources of the CUDA backend only; empty
// where the library's header is absent.
#pragma once

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

#include <memory>
#include <type_traits>

#include "core/device.h"
#include "ops/cublaslt/library.h"

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

/// The library's handle on a device, made when first asked for.
cublasLtHandle_t handle_of(Device device);

}  // namespace hearth::cuda::blas

#endif
