// SPDX-License-Identifier: Apache-2.0
#include "tests/reference_libraries/cublaslt/arithmetic.h"

#include <algorithm>
#include <cmath>

#include "core/half.h"

namespace hearth::reference_blas {
namespace {

double read(cudaDataType_t type, const void* data, std::int64_t at) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<const double*>(data)[at];
    case CUDA_R_16F:
      return static_cast<double>(static_cast<float>(static_cast<const f16*>(data)[at]));
    case CUDA_R_16BF:
      return static_cast<double>(static_cast<float>(static_cast<const bf16*>(data)[at]));
    default:
      return static_cast<double>(static_cast<const float*>(data)[at]);
  }
}

void write(cudaDataType_t type, void* data, std::int64_t at, double value) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(data)[at] = value;
      break;
    case CUDA_R_16F:
      static_cast<f16*>(data)[at] = f16(static_cast<float>(value));
      break;
    case CUDA_R_16BF:
      static_cast<bf16*>(data)[at] = bf16(static_cast<float>(value));
      break;
    default:
      static_cast<float*>(data)[at] = static_cast<float>(value);
  }
}

/// As memory of this type would hold it.
double rounded(cudaDataType_t type, double value) {
  double room = 0;
  write(type, &room, 0, value);
  return read(type, &room, 0);
}

/// Element (row, column) of op(matrix) of item i.
double element(const Matrix& matrix, bool transposed, std::int64_t i, std::int64_t row, std::int64_t column) {
  const std::int64_t at = transposed ? row * matrix.pitch + column : column * matrix.pitch + row;
  return read(matrix.type, matrix.data, i * matrix.stride + at);
}

/// To the nearest of 10 bits of mantissa, the even one of two.
double as_tf32(double value) {
  int exponent;
  const double fraction = std::frexp(value, &exponent);
  return std::isfinite(value) ? std::ldexp(std::nearbyint(std::ldexp(fraction, 11)), exponent - 11) : value;
}

double operand(const Product& p, const Matrix& matrix, bool transposed, std::int64_t i, std::int64_t row,
               std::int64_t column) {
  const double value = element(matrix, transposed, i, row, column);
  return p.tf32 ? as_tf32(value) : value;
}

/// One element of alpha op(A) op(B), of as many separate sums as there are parts.
template <class Sum>
Sum sum_of(const Product& p, std::int64_t i, std::int64_t row, std::int64_t column) {
  Sum total = 0;
  const std::int64_t share = (p.k + p.parts - 1) / p.parts;
  for (std::int64_t begin = 0; begin < p.k; begin += share) {
    Sum part = 0;
    for (std::int64_t k = begin; k < std::min(p.k, begin + share); ++k)
      part += static_cast<Sum>(operand(p, p.a, p.transpose_a, i, row, k)) *
              static_cast<Sum>(operand(p, p.b, p.transpose_b, i, k, column));
    total += p.narrow_parts ? static_cast<Sum>(rounded(p.d.type, static_cast<double>(part))) : part;
  }
  return static_cast<Sum>(p.alpha) * total;
}

template <class Sum>
Sum gelu(Sum x) {
  return Sum(0.5) * x * (Sum(1) + std::tanh(Sum(0.79788456080286535588) * (x + Sum(0.044715) * x * x * x)));
}

template <class Sum>
Sum gelu_slope(Sum x) {
  const Sum factor = Sum(0.79788456080286535588), inner = factor * (x + Sum(0.044715) * x * x * x);
  const Sum t = std::tanh(inner);
  return Sum(0.5) * (Sum(1) + t) + Sum(0.5) * x * (Sum(1) - t * t) * factor * (Sum(1) + Sum(3 * 0.044715) * x * x);
}

template <class Sum>
Sum after(const Product& p, std::int64_t row, std::int64_t column, Sum value) {
  if (uses_vector(p.epilogue)) value += static_cast<Sum>(read(p.d.type, p.vector, row));
  if (p.epilogue == CUBLASLT_EPILOGUE_DGELU)
    return value * gelu_slope(static_cast<Sum>(read(p.d.type, p.aux, column * p.aux_pitch + row)));
  if (uses_aux(p.epilogue)) write(p.d.type, p.aux, column * p.aux_pitch + row, static_cast<double>(value));
  if ((p.epilogue & CUBLASLT_EPILOGUE_GELU) != 0) return gelu(value);
  if ((p.epilogue & CUBLASLT_EPILOGUE_RELU) != 0) return value < Sum(0) ? Sum(0) : value;
  return value;
}

template <class Sum>
void multiply_as(const Product& p) {
  for (std::int64_t i = 0; i < p.batch; ++i)
    for (std::int64_t column = 0; column < p.n; ++column)
      for (std::int64_t row = 0; row < p.m; ++row) {
        Sum value = sum_of<Sum>(p, i, row, column);
        const std::int64_t at = i * p.c.stride + column * p.c.pitch + row;
        // What C holds does not matter where beta is zero, not even if it is not a number.
        if (p.beta != 0) value += static_cast<Sum>(p.beta) * static_cast<Sum>(read(p.c.type, p.c.data, at));
        value = after(p, row, column, value);
        write(p.d.type, const_cast<void*>(p.d.data), i * p.d.stride + column * p.d.pitch + row,
              static_cast<double>(value));
      }
}

}  // namespace

bool uses_vector(std::uint32_t epilogue) { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
bool uses_aux(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
         epilogue == CUBLASLT_EPILOGUE_DGELU;
}

void multiply(const Product& product) {
  if (product.doubles) return multiply_as<double>(product);
  multiply_as<float>(product);
}

}  // namespace hearth::reference_blas
