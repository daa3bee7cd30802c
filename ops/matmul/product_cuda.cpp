// SPDX-License-Identifier: Apache-2.0
// The candidates of a matrix product on the device.
#include "hearth/core/cuda/blas.h"
#include "hearth/ops/matmul/product.h"

namespace hearth::kernels {
namespace {

/// `tensor` in this type at an address that is a multiple of 16.
Tensor aligned(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() != dtype) return tensor.to(dtype);
  return reinterpret_cast<std::uintptr_t>(tensor.bytes()) % 16 == 0 ? tensor : tensor.clone();
}

/// The problem with an f32 b beside a 16-bit a rounded to its type, as the CPU's library does.
ProductProblem in_type_of_a(ProductProblem problem) {
  if (size_of(problem.a) == 2 && problem.b == DType::f32) problem.b = problem.a;
  return problem;
}

std::string library_declines(const ProductProblem& problem) {
  return cuda::blas::declines(Device{DeviceType::cuda}, in_type_of_a(problem));
}

void run_library(const ProductProblem& problem, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& c) {
  const ProductProblem p = in_type_of_a(problem);
  const Tensor left = a.dtype() == p.a ? a : a.to(p.a), right = b.dtype() == p.b ? b : b.to(p.b);
  const Tensor row = bias.defined() && bias.dtype() != p.c ? bias.to(p.c) : bias;
  cuda::blas::matmul(cuda::stream_of(c.device()), p, left.bytes(), right.bytes(), row.defined() ? row.bytes() : nullptr,
                     c.bytes());
}

std::string mma_declines(const ProductProblem& p) {
  if (size_of(p.a) != 2) return join_text("a is ", p.a, "; tensor cores take f16 and bf16 here");
  if (p.b != p.a && p.b != DType::f32) return join_text("b is ", p.b, " beside a of ", p.a);
  if (p.c != p.a && p.c != DType::f32) return join_text("c is ", p.c, " beside a of ", p.a);
  const std::int64_t row_a = p.transpose_a ? p.m : p.k, row_b = p.transpose_b ? p.k : p.n;
  if (row_a % 8 != 0) return join_text("stored rows of a have ", row_a, " elements, not a multiple of 8");
  if (row_b % 8 != 0) return join_text("stored rows of b have ", row_b, " elements, not a multiple of 8");
  return "";
}

/// f32 operands beside 16-bit ones are rounded to their type, as the CPU's library does.
void run_mma(const ProductProblem& problem, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& c) {
  product_mma(cuda::stream_of(c.device()), problem, aligned(a, problem.a), aligned(b, problem.a), bias, c);
}

std::string portable_declines(const ProductProblem&) { return ""; }

/// Whether the portable kernel reads and writes these types as they are.
bool is_direct(const ProductProblem& p) {
  if (p.a == p.b && p.b == p.c) return true;
  if (size_of(p.a) != 2) return false;
  return (p.b == p.a && p.c == DType::f32) || (p.b == DType::f32 && p.c == p.a);
}

void run_portable(const ProductProblem& problem, const Tensor& a, const Tensor& b, const Tensor& bias,
                  const Tensor& c) {
  cuda::Stream& stream = cuda::stream_of(c.device());
  if (is_direct(problem)) return product_tiles(stream, problem, a, b, bias, c);
  ProductProblem wide = problem;
  wide.a = wide.b = wide.c = DType::f32;
  const Tensor into = c.dtype() == DType::f32 ? c : Tensor::empty(c.shape(), DType::f32, c.device());
  const Tensor row = bias.defined() ? bias.to(DType::f32) : bias;
  product_tiles(stream, wide, a.to(DType::f32), b.to(DType::f32), row, into);
  if (!into.same_storage(c)) c.copy_from(into);
}

}  // namespace

ProductCandidates product_candidates(cuda::Stream&, const char* op) {
  return {op,
          {{"cublaslt", library_declines, run_library, cuda::blas::why_absent},
           {"mma", mma_declines, run_mma},
           {"portable", portable_declines, run_portable}},
          {"onednn"}};
}

}  // namespace hearth::kernels
