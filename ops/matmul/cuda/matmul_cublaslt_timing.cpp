// SPDX-License-Identifier: Apache-2.0
#if __has_include(<cublasLt.h>)
#include "ops/matmul/cuda/matmul_cublaslt_timing.h"

#include <algorithm>

#include "core/cuda/runtime.h"
#include "ops/dispatch/plan_timing_cuda.h"

namespace hearth::cuda::blas {
namespace {

/// Bytes of `batch` stored matrices, rounded up to whole lines.
std::size_t bytes_of(DType dtype, std::int64_t width, std::int64_t height, std::int64_t pitch, std::int64_t batch,
                     std::int64_t stride) {
  const std::int64_t one = (height - 1) * (pitch > 0 ? pitch : width) + width;
  const std::int64_t elements = (batch - 1) * (stride >= 0 ? stride : width * height) + one;
  return (static_cast<std::size_t>(elements) * size_of(dtype) + 255) / 256 * 256;
}

/// Where the parts of one set of operands lie, in bytes from its beginning.
struct SetOfOperands {
  std::size_t a, b, bias, c, pre, slope, end;

  explicit SetOfOperands(const MatmulProblem& p) {
    std::size_t at = 0;
    const auto take = [&](bool needed, std::size_t bytes) {
      const std::size_t begin = at;
      at += needed ? bytes : 0;
      return begin;
    };
    a = take(true,
             bytes_of(p.a, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.lda, p.batch, p.batch_stride_a));
    b = take(true,
             bytes_of(p.b, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.ldb, p.batch, p.batch_stride_b));
    c = take(true, bytes_of(p.c, p.n, p.m, p.ldc, p.batch, p.batch_stride_c));
    bias = take(p.has_bias, bytes_of(p.c, p.n, 1, 0, 1, 0));
    pre = take(p.keeps_pre, bytes_of(p.c, p.n, p.m, 0, 1, 0));
    slope = take(p.slope != Activation::none, bytes_of(p.c, p.n, p.m, 0, 1, 0));
    end = at;
  }

  Operands at(std::byte* base, const MatmulProblem& problem) const {
    return {.a = base + a,
            .b = base + b,
            .bias = problem.has_bias ? base + bias : nullptr,
            .c = base + c,
            .pre = problem.keeps_pre ? base + pre : nullptr,
            .slope_at = problem.slope != Activation::none ? base + slope : nullptr};
  }
};

}  // namespace

Fastest fastest_algorithm(Device device, const Plan& plan, const std::vector<Algorithm>& algorithms) {
  const MatmulProblem& p = plan.problem;
  const SetOfOperands set(p);
  TimedWork work{.operands = set.end};
  work.flops = 2.0 * static_cast<double>(p.batch) * static_cast<double>(p.m) * static_cast<double>(p.n) *
               static_cast<double>(p.k);
  for (const Algorithm& algorithm : algorithms) work.workspace = std::max(work.workspace, algorithm.workspace);
  return fastest_plan(device, algorithms.size(), work, [&](const std::vector<std::byte*>& sets, std::byte* workspace) {
    return [&, sets, workspace](std::size_t way, std::size_t which) {
      return enqueue_product(plan, algorithms[way], set.at(sets[which], p),
                             algorithms[way].workspace == 0 ? nullptr : workspace,
                             stream_of(device).raw()) == CUBLAS_STATUS_SUCCESS;
    };
  });
}

}  // namespace hearth::cuda::blas
#endif
