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
  decltype(cublasLtCreate)* create = file.find("cublasLtCreate");
  decltype(cublasLtGetVersion)* version = file.find("cublasLtGetVersion");
  decltype(cublasLtGetStatusString)* text = file.find("cublasLtGetStatusString");
  decltype(cublasLtMatmulDescCreate)* desc_create = file.find("cublasLtMatmulDescCreate");
  decltype(cublasLtMatmulDescDestroy)* desc_destroy = file.find("cublasLtMatmulDescDestroy");
  decltype(cublasLtMatmulDescSetAttribute)* desc_set = file.find("cublasLtMatmulDescSetAttribute");
  decltype(cublasLtMatrixLayoutCreate)* layout_create = file.find("cublasLtMatrixLayoutCreate");
  decltype(cublasLtMatrixLayoutDestroy)* layout_destroy = file.find("cublasLtMatrixLayoutDestroy");
  decltype(cublasLtMatrixLayoutSetAttribute)* layout_set = file.find("cublasLtMatrixLayoutSetAttribute");
  decltype(cublasLtMatmulPreferenceCreate)* preference_create = file.find("cublasLtMatmulPreferenceCreate");
  decltype(cublasLtMatmulPreferenceDestroy)* preference_destroy = file.find("cublasLtMatmulPreferenceDestroy");
  decltype(cublasLtMatmulPreferenceSetAttribute)* preference_set = file.find("cublasLtMatmulPreferenceSetAttribute");
  decltype(cublasLtMatmulAlgoGetHeuristic)* heuristic = file.find("cublasLtMatmulAlgoGetHeuristic");
  decltype(cublasLtMatmul)* matmul = file.find("cublasLtMatmul");
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
