// SPDX-License-Identifier: Apache-2.0
#if __has_include(<cublasLt.h>)
#include "ops/matmul/matmul_cublaslt_timing.h"

#include <algorithm>
#include <limits>

#include "core/cuda/counters.h"
#include "core/cuda/error.h"
#include "core/cuda/memory.h"
#include "core/cuda/runtime.h"

namespace hearth::cuda::blas {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr std::size_t max_sets = 64;

/// Bytes of `batch` stored matrices, rounded up to whole lines.
std::size_t bytes_of(DType dtype, std::int64_t width, std::int64_t height, std::int64_t pitch, std::int64_t batch,
                     std::int64_t stride) {
  const std::int64_t one = (height - 1) * (pitch > 0 ? pitch : width) + width;
  const std::int64_t elements = (batch - 1) * (stride >= 0 ? stride : width * height) + one;
  return (static_cast<std::size_t>(elements) * size_of(dtype) + 255) / 256 * 256;
}

/// Where the parts of one set of operands lie, in bytes from its beginning.
struct SetOfOperands {
  std::size_t a, b, bias, c, pre, sums, end;

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
    sums = take(p.sums_a, bytes_of(p.c, p.m, 1, 0, 1, 0));
    end = at;
  }

  Operands at(std::byte* base, const MatmulProblem& problem) const {
    return {base + a,
            base + b,
            problem.has_bias ? base + bias : nullptr,
            base + c,
            problem.keeps_pre ? base + pre : nullptr,
            problem.sums_a ? base + sums : nullptr};
  }
};

/// Device memory straight from the driver, so that the pool's statistics stay those of the run. Null if there is none.
class Block {
 public:
  explicit Block(std::size_t bytes) {
    void* raw = nullptr;
    if (cudaMalloc(&raw, bytes) != cudaSuccess) {
      (void)cudaGetLastError();
      return;
    }
    ++live_counters().allocations;
    begin_ = static_cast<std::byte*>(raw);
  }
  ~Block() { cudaFree(begin_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  std::byte* begin() const { return begin_; }

 private:
  std::byte* begin_ = nullptr;
};

class Event {
 public:
  Event() { HEARTH_TRY(cudaEventCreate(&raw_)); }
  ~Event() { cudaEventDestroy(raw_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t raw() const { return raw_; }

 private:
  cudaEvent_t raw_ = nullptr;
};

}  // namespace

Fastest fastest_algorithm(Device device, const Plan& plan, const std::vector<Algorithm>& algorithms) {
  const Stream& stream = stream_of(device);
  const auto cache = static_cast<std::size_t>(state_of(device).properties.l2CacheSize);
  const SetOfOperands set(plan.problem);
  std::size_t workspace = 0;
  for (const Algorithm& algorithm : algorithms) workspace = std::max(workspace, algorithm.workspace);
  std::size_t sets = std::clamp<std::size_t>((3 * cache + set.end - 1) / set.end, 2, max_sets);
  // Half of what is free is left to whoever else asks meanwhile.
  const auto room = static_cast<std::size_t>(free_memory(device)) / 2;
  if (room <= workspace || room - workspace < set.end) return {0, never};
  sets = std::min(sets, (room - workspace) / set.end);
  const Block memory(workspace + sets * set.end);
  if (memory.begin() == nullptr) return {0, never};
  // Small numbers in every type: 0x3c3c is 1.06 as f16 and 0.011 as bf16.
  HEARTH_TRY(cudaMemsetAsync(memory.begin(), 0x3c, workspace + sets * set.end, stream.raw()));
  stream.wait();
  const Event start, stop;
  // Short products are timed several at once, as the clock of events is coarse.
  const MatmulProblem& p = plan.problem;
  const double work = 2.0 * static_cast<double>(p.batch) * static_cast<double>(p.m) * static_cast<double>(p.n) *
                      static_cast<double>(p.k);
  const std::size_t at_once = work < 1e10 ? 4 : 1;
  std::byte* const operands = memory.begin() + workspace;
  const Fastest fastest = fastest_of(algorithms.size(), [&](std::size_t way, std::size_t round) {
    HEARTH_TRY(cudaEventRecord(start.raw(), stream.raw()));
    for (std::size_t i = 0; i < at_once; ++i) {
      const std::size_t which = (round * at_once + i) % sets;
      const cublasStatus_t status =
          enqueue_product(plan, algorithms[way], set.at(operands + which * set.end, plan.problem),
                          algorithms[way].workspace == 0 ? nullptr : memory.begin(), stream.raw());
      if (status != CUBLAS_STATUS_SUCCESS) return never;
      ++live_counters().library_calls;
    }
    HEARTH_TRY(cudaEventRecord(stop.raw(), stream.raw()));
    ++live_counters().waits;
    HEARTH_TRY(cudaEventSynchronize(stop.raw()));
    float milliseconds = 0;
    HEARTH_TRY(cudaEventElapsedTime(&milliseconds, start.raw(), stop.raw()));
    return 1e3 * static_cast<double>(milliseconds) / static_cast<double>(at_once);
  });
  stream.wait();
  return fastest;
}

}  // namespace hearth::cuda::blas
#endif
