// SPDX-License-Identifier: Apache-2.0
// The candidates of a matrix product on the device.
#include "ops/cublaslt/library.h"
#include "ops/matmul/cuda/matmul_cublaslt.h"
#include "ops/matmul/product.h"

namespace hearth::kernels {
namespace {

using cuda::blas::min_alignment;

bool is_aligned(const Tensor& tensor) { return reinterpret_cast<std::uintptr_t>(tensor.bytes()) % min_alignment == 0; }

/// `tensor` in this type at an address that a library and the tensor cores take.
Tensor aligned(const Tensor& tensor, DType dtype) {
  if (!tensor.defined()) return tensor;
  if (tensor.dtype() != dtype) return tensor.to(dtype);
  return is_aligned(tensor) ? tensor : tensor.clone();
}

/// Where a result is written that is to be in `tensor`: there, or beside it where its address does not serve.
Tensor aligned_place(const Tensor& tensor, bool keeps_values) {
  if (!tensor.defined() || is_aligned(tensor)) return tensor;
  return keeps_values ? tensor.clone() : Tensor::empty_like(tensor);
}
void put_back(const Tensor& place, const Tensor& tensor) {
  if (tensor.defined() && !place.same_storage(tensor)) tensor.copy_from(place);
}

/// The problem with an f32 b beside a 16-bit a rounded to its type, as the CPU's library does.
MatmulProblem in_type_of_a(MatmulProblem problem) {
  if (size_of(problem.a) == 2 && problem.b == DType::f32) problem.b = problem.a;
  return problem;
}

/// The product without what follows it.
MatmulProblem plain(MatmulProblem problem) {
  problem.activation = problem.slope = Activation::none;
  problem.keeps_pre = problem.sums_a = false;
  return problem;
}

std::string cublaslt_unsupported(const MatmulProblem& problem) {
  return cuda::blas::unsupported(in_type_of_a(problem));
}

void run_library(const MatmulProblem& problem, const ProductOperands& operands) {
  const MatmulProblem p = in_type_of_a(problem);
  const Tensor a = aligned(operands.a, p.a), b = aligned(operands.b, p.b), bias = aligned(operands.bias, p.c);
  const Tensor c = aligned_place(operands.c, problem.accumulate), pre = aligned_place(operands.pre, false);
  const Tensor slope_at = p.slope == Activation::none ? Tensor() : aligned(operands.slope_at, p.c);
  const auto at = [](const Tensor& tensor) { return tensor.defined() ? tensor.bytes() : nullptr; };
  cuda::blas::matmul(cuda::stream_of(c.device()), p, {at(a), at(b), at(bias), at(c), at(pre), at(slope_at)});
  put_back(c, operands.c);
  put_back(pre, operands.pre);
}

/// The product by the library where the bias too is added by a kernel of its own.
MatmulProblem without_bias(MatmulProblem problem) {
  problem.has_bias = false;
  return problem;
}

std::string unfused_unsupported(const MatmulProblem& problem) {
  std::string reason = cublaslt_unsupported(plain(problem));
  return reason.empty() || !problem.has_bias ? reason : cublaslt_unsupported(without_bias(plain(problem)));
}

void multiply_by_slope(cuda::Stream& stream, const MatmulProblem& problem, const ProductOperands& o) {
  if (problem.slope != Activation::none) activate_grad(stream, problem.slope, o.slope_at, o.c, o.c, {});
}

/// What follows the product is done by native kernels, the bias by the library's if it can.
void run_unfused(const MatmulProblem& problem, const ProductOperands& operands) {
  cuda::Stream& stream = cuda::stream_of(operands.c.device());
  if (problem.sums_a) sum_rows(stream, operands.a, operands.a_sums);
  ProductOperands product{
      .a = operands.a, .b = operands.b, .bias = operands.bias, .c = problem.keeps_pre ? operands.pre : operands.c};
  const MatmulProblem with_bias = plain(problem);
  // Added last, the bias of an accumulating product is the same bias.
  const bool adds_bias = problem.has_bias && !cublaslt_unsupported(with_bias).empty();
  if (adds_bias) product.bias = Tensor();
  run_library(adds_bias ? without_bias(with_bias) : with_bias, product);
  if (adds_bias) add_bias(stream, operands.bias, product.c.as_shape({problem.batch * problem.m, problem.n}));
  if (problem.activation != Activation::none) activate(stream, problem.activation, product.c, operands.c);
  multiply_by_slope(stream, problem, operands);
}

std::string mma_unsupported(const MatmulProblem& p) {
  if (size_of(p.a) != 2) return join_text("a is ", p.a, "; tensor cores take f16 and bf16 here");
  if (p.b != p.a && p.b != DType::f32) return join_text("b is ", p.b, " beside a of ", p.a);
  if (p.c != p.a && p.c != DType::f32) return join_text("c is ", p.c, " beside a of ", p.a);
  const std::int64_t row_a = p.transpose_a ? p.m : p.k, row_b = p.transpose_b ? p.k : p.n;
  if (row_a % 8 != 0) return join_text("stored rows of a have ", row_a, " elements, not a multiple of 8");
  if (row_b % 8 != 0) return join_text("stored rows of b have ", row_b, " elements, not a multiple of 8");
  return "";
}

/// Whether the native kernels can take the activation on; they do for results of the operands' type.
bool activates(const MatmulProblem& problem) {
  return problem.activation == Activation::none || problem.c == problem.a;
}

/// `run` with what it does not do itself done by kernels of their own: the sums of a, a slope, and an activation that
/// the product cannot take on.
template <class Run>
void with_followers(const MatmulProblem& problem, const ProductOperands& operands, bool takes_activation, Run&& run) {
  cuda::Stream& stream = cuda::stream_of(operands.c.device());
  if (problem.sums_a) sum_rows(stream, operands.a, operands.a_sums);
  if (takes_activation) {
    run(stream, problem, operands);
    return multiply_by_slope(stream, problem, operands);
  }
  ProductOperands product = operands;
  if (problem.keeps_pre) product.c = operands.pre;
  run(stream, plain(problem), product);
  activate(stream, problem.activation, product.c, operands.c);
}

/// f32 operands beside 16-bit ones are rounded to their type, as the CPU's library does.
void run_mma(const MatmulProblem& problem, const ProductOperands& operands) {
  with_followers(problem, operands, activates(problem), [](auto& stream, const auto& p, ProductOperands o) {
    o.a = aligned(o.a, p.a);
    o.b = aligned(o.b, p.a);
    product_mma(stream, p, o);
  });
}

std::string portable_unsupported(const MatmulProblem&) { return ""; }

/// Whether the portable kernel reads and writes these types as they are.
bool is_direct(const MatmulProblem& p) {
  if (p.a == p.b && p.b == p.c) return true;
  if (size_of(p.a) != 2) return false;
  return (p.b == p.a && p.c == DType::f32) || (p.b == DType::f32 && p.c == p.a);
}

void run_wide(cuda::Stream& stream, const MatmulProblem& problem, const ProductOperands& o) {
  MatmulProblem wide = problem;
  wide.a = wide.b = wide.c = DType::f32;
  const Tensor into = o.c.dtype() == DType::f32 ? o.c : Tensor::empty(o.c.shape(), DType::f32, o.c.device());
  product_tiles(stream, wide,
                {.a = o.a.to(DType::f32),
                 .b = o.b.to(DType::f32),
                 .bias = o.bias.defined() ? o.bias.to(DType::f32) : o.bias,
                 .c = into});
  if (!into.same_storage(o.c)) o.c.copy_from(into);
}

void run_portable(const MatmulProblem& problem, const ProductOperands& operands) {
  const bool direct = is_direct(problem);
  const bool takes_activation = problem.activation == Activation::none || (direct && activates(problem));
  with_followers(problem, operands, takes_activation, [&](auto& stream, const auto& p, const ProductOperands& o) {
    if (direct)
      product_tiles(stream, p, o);
    else
      run_wide(stream, p, o);
  });
}

}  // namespace

ProductCandidates product_candidates(cuda::Stream&, const char* op) {
  return {op,
          {{"cublaslt", cublaslt_unsupported, run_library, cuda::blas::why_absent},
           {"cublaslt_unfused", unfused_unsupported, run_unfused, cuda::blas::why_absent},
           {"mma", mma_unsupported, run_mma},
           {"portable", portable_unsupported, run_portable}}};
}

}  // namespace hearth::kernels
