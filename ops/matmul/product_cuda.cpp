// SPDX-License-Identifier: Apache-2.0
// The candidates of a matrix product on the device.
#include "hearth/ops/matmul/product.h"

namespace hearth::kernels {
namespace {

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
  return {op, {{"portable", portable_declines, run_portable}}, {"onednn"}};
}

}  // namespace hearth::kernels
