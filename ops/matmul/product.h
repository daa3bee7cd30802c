// SPDX-License-Identifier: Apache-2.0
// The matrix product below matmul and linear: C = op(A) op(B) [+ bias], by a library or by own kernels.
#pragma once

#include "hearth/core/cpu/dnn.h"
#include "hearth/core/cpu/stream.h"
#include "hearth/core/cuda/stream.h"
#include "hearth/core/tensor.h"
#include "hearth/ops/candidates.h"
#include "hearth/ops/epilogue/epilogue.h"

namespace hearth::kernels {

/// The key of an implementation, on any device.
using ProductProblem = cpu::dnn::Matmul;
using ProductRun = void(const ProductProblem& problem, const Tensor& a, const Tensor& b, const Tensor& bias,
                        const Tensor& c);
using ProductCandidates = Candidates<ProductProblem, ProductRun>;

/// The implementations of a product on a type of device, for an op of this name.
ProductCandidates product_candidates(cpu::Stream&, const char* op);
ProductCandidates product_candidates(cuda::Stream&, const char* op);

/// Sizes and layout of one product; types and flags are taken from the tensors.
struct ProductLayout {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool share_b = false;     ///< one B for the whole batch
  bool accumulate = false;  ///< add to C, which is f32 or f64 then
};

/// The product below for sizes that are not 0, by `candidates`' choice. Reports 2 batch m n k operations.
void run_product(ProductCandidates& candidates, const ProductLayout& layout, const Tensor& a, const Tensor& b,
                 const Tensor& bias, const Tensor& c);

/// C = op(A) op(B) + bias, densely stored. Types: all f64; or any mix of f32 and one 16-bit type, summed in f32. `bias`
/// is [n] or undefined.
template <class Stream>
void product(Stream& stream, ProductCandidates& candidates, const ProductLayout& layout, const Tensor& a,
             const Tensor& b, const Tensor& bias, const Tensor& c) {
  if (c.size() == 0) return;
  if (layout.k > 0) return run_product(candidates, layout, a, b, bias, c);
  if (layout.accumulate) return;
  if (bias.defined())
    fill_rows(stream, bias, c);
  else
    c.fill_(0);
}

/// The portable kernel of the device: f32, f64 and 16-bit types, each alone; or 16-bit a with f32 b or f32 c.
void product_tiles(cuda::Stream&, const ProductProblem& problem, const Tensor& a, const Tensor& b, const Tensor& bias,
                   const Tensor& c);

/// The tensor-core kernel of the device: a and b both f16 or both bf16 at addresses that are multiples of 16, each with
/// a stored row length that is a multiple of 8; c of their type or f32.
void product_mma(cuda::Stream&, const ProductProblem& problem, const Tensor& a, const Tensor& b, const Tensor& bias,
                 const Tensor& c);

}  // namespace hearth::kernels
