// SPDX-License-Identifier: Apache-2.0
// The matrix product below matmul and linear: C = activation(op(A) op(B) + bias), by a library or by native kernels.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"
#include "ops/activation.h"
#include "ops/dispatch/candidates.h"
#include "ops/epilogue/epilogue.h"
#include "ops/matmul/problem.h"

namespace hearth::kernels {

/// What a product reads and writes.
struct ProductOperands {
  Tensor a = {}, b = {};
  Tensor bias = {};  ///< [n] or undefined
  Tensor c = {};
  Tensor pre = {};       ///< like c, or undefined: what goes into the activation; not for ReLU, whose slope c tells
  Tensor slope_at = {};  ///< like c: where problem.slope is taken, as in activate_grad
  Tensor a_sums = {};    ///< [m], or undefined: the sums of op(A)'s rows over k; for a transposed A and one matrix only
};

using ProductRun = void(const MatmulProblem& problem, const ProductOperands& operands);
using ProductCandidates = Candidates<MatmulProblem, ProductRun>;

/// The implementations of a product on a type of device, for an op of this name.
ProductCandidates product_candidates(cpu::Stream&, const char* op);
ProductCandidates product_candidates(cuda::Stream&, const char* op);

/// Those of linear(), and of what computes as it does.
template <class Stream>
ProductCandidates& linear_candidates(Stream& stream) {
  static ProductCandidates list = product_candidates(stream, "linear");
  return list;
}

/// The product below for sizes that are not 0, by `candidates`' choice. Reports 2 batch m n k operations.
void run_product(cpu::Stream&, ProductCandidates& candidates, const MatmulProblem& problem,
                 const ProductOperands& operands);
void run_product(cuda::Stream&, ProductCandidates& candidates, const MatmulProblem& problem,
                 const ProductOperands& operands);

/// C = activation(op(A) op(B) + bias), densely stored; `problem` says sizes, transpositions, whether B is one for all,
/// accumulate (C is f32 or f64 then), the activation and the slope (on devices only), the operands say the rest. Where
/// the product and its activation are one kernel, the activation is taken of the sums before they are rounded to C's
/// type.
template <class Stream>
void product(Stream& stream, ProductCandidates& candidates, const MatmulProblem& problem,
             const ProductOperands& operands) {
  const Tensor& c = operands.c;
  if (c.size() > 0 && problem.k > 0) return run_product(stream, candidates, problem, operands);
  if (operands.a_sums.defined()) sum_rows(stream, operands.a, operands.a_sums);
  if (c.size() == 0 || problem.accumulate) return;
  const Tensor& sums = operands.pre.defined() ? operands.pre : c;
  if (operands.bias.defined())
    fill_rows(stream, operands.bias, sums);
  else
    sums.fill_(0);
  if (problem.activation != Activation::none) activate(stream, problem.activation, sums, c);
}

/// The portable kernel of the device: f32, f64 and 16-bit types, each alone; or 16-bit a with f32 b or f32 c. An
/// activation where c has a's type. Does not sum a.
void product_tiles(cuda::Stream&, const MatmulProblem& problem, const ProductOperands& operands);

/// The tensor-core kernel of the device: a and b both f16 or both bf16 at addresses that are multiples of 16, each with
/// a stored row length that is a multiple of 8; c of their type or f32. An activation where c has their type. Does not
/// sum a.
void product_mma(cuda::Stream&, const MatmulProblem& problem, const ProductOperands& operands);

}  // namespace hearth::kernels
