// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the reference cuBLASLt, column-major as the library's documentation writes it.
#pragma once

#include <cublasLt.h>

#include <cstdint>

namespace hearth::reference_blas {

/// A stored matrix: element (row, column) of item i at data[i * stride + column * pitch + row].
struct Matrix {
  const void* data = nullptr;
  cudaDataType_t type = CUDA_R_32F;
  std::int64_t pitch = 0, stride = 0;
};

/// D = epilogue(alpha op(A) op(B) + beta C), op(A) [m, k], op(B) [k, n].
struct Product {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  Matrix a, b, c, d;
  double alpha = 1, beta = 0;
  bool doubles = false;       ///< sums in f64, else in f32
  bool tf32 = false;          ///< operands are rounded to 10 bits of mantissa
  int parts = 1;              ///< of k, each summed by itself
  bool narrow_parts = false;  ///< and rounded to the type of D
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* vector = nullptr;  ///< the bias, [m]
  void* aux = nullptr;     ///< what goes into GELU, written or (DGELU) read, with its own pitch
  std::int64_t aux_pitch = 0;
};

/// Whether an epilogue reads or writes the vector, and the auxiliary matrix.
bool uses_vector(std::uint32_t epilogue);
bool uses_aux(std::uint32_t epilogue);

void multiply(const Product& product);

}  // namespace hearth::reference_blas
