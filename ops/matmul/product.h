// SPDX-License-Identifier: Apache-2.0
// The matrix product below matmul and linear: C = op(A) op(B) [+ bias], by the library or by the own GEMM.
#pragma once

#include "hearth/core/cpu/dnn.h"
#include "hearth/core/cpu/stream.h"
#include "hearth/core/tensor.h"
#include "hearth/ops/candidates.h"

namespace hearth::kernels {

using ProductProblem = cpu::dnn::Matmul;
using ProductRun = void(const ProductProblem& problem, const Tensor& a, const Tensor& b, const Tensor& bias,
                        const Tensor& c);
using ProductCandidates = Candidates<ProductProblem, ProductRun>;

/// The implementations of a product, for an op of this name.
std::vector<Candidate<ProductProblem, ProductRun>> product_candidates();

/// Sizes and layout of one product; types and flags are taken from the tensors.
struct ProductLayout {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool share_b = false;     ///< one B for the whole batch
  bool accumulate = false;  ///< add to C, which is f32 or f64 then
};

/// C = op(A) op(B) + bias, densely stored, by `candidates`' choice. Types: all f64; or any mix of f32 and one 16-bit
/// type, summed in f32. `bias` is [n] or undefined. Reports 2 batch m n k operations.
void product(cpu::Stream&, ProductCandidates& candidates, const ProductLayout& layout, const Tensor& a, const Tensor& b,
             const Tensor& bias, const Tensor& c);

}  // namespace hearth::kernels
