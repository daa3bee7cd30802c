// SPDX-License-Identifier: Apache-2.0
// The candidates of a matrix product on the CPU.
#include "core/cpu/parallel.h"
#include "ops/matmul/gemm.h"
#include "ops/matmul/product.h"

namespace hearth::kernels {
namespace {

/// The problem with f16, which the library does not take, as f32.
ProductProblem without_f16(ProductProblem problem) {
  for (DType* type : {&problem.a, &problem.b, &problem.c})
    if (*type == DType::f16) *type = DType::f32;
  return problem;
}

bool is_half(const Tensor& tensor) { return tensor.dtype() == DType::f16; }

std::string library_declines(const ProductProblem& problem) {
  if (problem.a == DType::f64) return "f64 is not among the library's types";
  return cpu::dnn::declines(without_f16(problem));
}

void run_library(const ProductProblem& problem, const ProductOperands& operands) {
  const auto& [a, b, bias, c, pre, a_sums] = operands;
  const Tensor left = is_half(a) ? a.to(DType::f32) : a;
  const Tensor right = is_half(b) ? b.to(DType::f32) : b;
  const Tensor into = is_half(c) ? Tensor::empty(c.shape(), DType::f32, c.device()) : c;
  const Tensor row = bias.defined() && bias.dtype() != DType::f32 ? bias.to(DType::f32) : bias;
  cpu::dnn::matmul(without_f16(problem), left.bytes(), right.bytes(), row.defined() ? row.data<float>() : nullptr,
                   into.bytes());
  if (is_half(c)) c.copy_from(into);
}

template <class T>
void multiply(const ProductProblem& problem, const T* a, const T* b, T* c) {
  const std::int64_t step_a = problem.m * problem.k;
  const std::int64_t step_b = problem.batch_stride_b == 0 ? 0 : problem.k * problem.n;
  const std::int64_t step_c = problem.m * problem.n;
  const auto one = [&](std::int64_t i) {
    cpu::gemm<T>(problem.transpose_a, problem.transpose_b, problem.m, problem.n, problem.k, a + i * step_a,
                 problem.transpose_a ? problem.m : problem.k, b + i * step_b,
                 problem.transpose_b ? problem.k : problem.n, problem.accumulate, c + i * step_c, problem.n);
  };
  // Many small products are spread over the team; a few large ones are each done by the whole team.
  if (problem.batch >= 4 && step_c <= 512 * 512)
    cpu::parallel_chunks(problem.batch, one);
  else
    for (std::int64_t i = 0; i < problem.batch; ++i) one(i);
}

std::string portable_declines(const ProductProblem&) { return ""; }

void run_portable(const ProductProblem& problem, const ProductOperands& operands) {
  const auto& [a, b, bias, c, pre, a_sums] = operands;
  const DType type = problem.a == DType::f64 ? DType::f64 : DType::f32;
  const Tensor left = a.dtype() == type ? a : a.to(type);
  const Tensor right = b.dtype() == type ? b : b.to(type);
  const Tensor into = c.dtype() == type ? c : Tensor::empty(c.shape(), type, c.device());
  visit_dtype("matmul", type, WideFloats{},
              [&]<class T>() { multiply<T>(problem, left.data<T>(), right.data<T>(), into.data<T>()); });
  if (bias.defined()) add_bias(cpu::stream_of(c.device()), bias, into.as_shape({problem.batch * problem.m, problem.n}));
  if (!into.same_storage(c)) c.copy_from(into);
}

}  // namespace

ProductCandidates product_candidates(cpu::Stream&, const char* op) {
  return {op,
          {{"onednn", library_declines, run_library}, {"portable", portable_declines, run_portable}},
          {"cublaslt", "cublaslt_unfused", "mma"}};
}

}  // namespace hearth::kernels
