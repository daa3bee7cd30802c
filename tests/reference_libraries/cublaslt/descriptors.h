// SPDX-License-Identifier: Apache-2.0
// The descriptors of the reference cuBLASLt: attributes as cublasLt.h documents them, with their defaults.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

namespace hearth::reference_blas {

/// Attributes by number, each of the size that the header gives. Setting one of another size is an error, as is one
/// that this library does not know.
class Attributes {
 public:
  template <class T>
  void declare(int name, T value) {
    auto& bytes = values_[name];
    bytes.resize(sizeof(T));
    std::memcpy(bytes.data(), &value, sizeof(T));
  }
  cublasStatus_t set(int name, const void* value, std::size_t bytes) {
    const auto found = values_.find(name);
    if (value == nullptr || found == values_.end() || found->second.size() != bytes) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(found->second.data(), value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  template <class T>
  T get(int name) const {
    T value;
    std::memcpy(&value, values_.at(name).data(), sizeof(T));
    return value;
  }

 private:
  std::map<int, std::vector<unsigned char>> values_;
};

struct Layout {
  Attributes attributes;
  cudaDataType_t type() const {
    return static_cast<cudaDataType_t>(attributes.get<std::uint32_t>(CUBLASLT_MATRIX_LAYOUT_TYPE));
  }
  std::int64_t rows() const {
    return static_cast<std::int64_t>(attributes.get<std::uint64_t>(CUBLASLT_MATRIX_LAYOUT_ROWS));
  }
  std::int64_t columns() const {
    return static_cast<std::int64_t>(attributes.get<std::uint64_t>(CUBLASLT_MATRIX_LAYOUT_COLS));
  }
  std::int64_t pitch() const { return attributes.get<std::int64_t>(CUBLASLT_MATRIX_LAYOUT_LD); }
  std::int32_t batch() const { return attributes.get<std::int32_t>(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT); }
  std::int64_t stride() const { return attributes.get<std::int64_t>(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET); }
};

struct Description {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  Attributes attributes;
  bool transposed(cublasLtMatmulDescAttributes_t name) const {
    return attributes.get<std::int32_t>(name) == CUBLAS_OP_T;
  }
  std::uint32_t epilogue() const { return attributes.get<std::uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE); }
  void* vector() const { return attributes.get<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER); }
  void* aux() const { return attributes.get<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER); }
  std::int64_t aux_pitch() const { return attributes.get<std::int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD); }
};

struct Preference {
  Attributes attributes;
};

inline std::size_t size_of(cudaDataType_t type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

}  // namespace hearth::reference_blas
