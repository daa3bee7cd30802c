// SPDX-License-Identifier: Apache-2.0
// The candidates of attention and of window_attention on the CPU, forward and gradient under one name.
#include <compare>
#include <vector>

#include "core/cpu/amx.h"
#include "core/profiler.h"
#include "ops/attention/cpu/kernels_cpu.h"
#include "ops/dispatch/candidates.h"

namespace hearth::kernels {
namespace {

/// What the choice depends on.
struct CpuProblem {
  DType dtype;
  bool gradient = false;
  std::int64_t queries = 0;  ///< of a sample; 0 for windows
  bool drops = false;
  auto operator<=>(const CpuProblem&) const = default;
};

std::ostream& operator<<(std::ostream& out, const CpuProblem& p) {
  out << (p.gradient ? "gradient" : "forward") << " of " << p.dtype;
  if (p.queries > 0) out << ", " << p.queries << " queries";
  return out << (p.drops ? ", dropout" : "");
}

std::string rows_unsupported(const CpuProblem& p) { return p.drops ? "dropout is drawn for blocks of queries" : ""; }

std::string rows_slower(const CpuProblem& p) {
  constexpr std::int64_t fewest = 4;
  return p.queries < fewest ? "" : join_text(p.queries, " queries, which are worth blocks from ", fewest, " on");
}

std::string avx512_bf16_unsupported(const CpuProblem& p) {
  return p.dtype == DType::bf16 ? cpu::amx::bf16_vectors_unsupported() : join_text("heads are ", p.dtype, ", not bf16");
}

std::string portable_takes_all(const CpuProblem&) { return ""; }

template <class Run>
std::vector<Candidate<CpuProblem, Run>> cpu_list(Run* avx512_bf16, Run* portable) {
  return {{"avx512_bf16", avx512_bf16_unsupported, avx512_bf16}, {"portable", portable_takes_all, portable}};
}

using AttentionRun = void(cpu::Stream&, const AttentionArguments&, const Tensor& y, const Tensor& lse);
using AttentionGradRun = void(cpu::Stream&, const AttentionArguments&, const Tensor& y, const Tensor& lse,
                              const Tensor& dy, const AttentionGradients&);
using WindowRun = void(cpu::Stream&, const WindowAttentionArguments&, const Tensor& y);
using WindowGradRun = void(cpu::Stream&, const WindowAttentionArguments&, const Tensor& dy,
                           const WindowAttentionGradients&);

std::vector<Candidate<CpuProblem, AttentionRun>> attention_list() {
  auto list = cpu_list<AttentionRun>(attention_avx512_bf16, attention_portable);
  list.insert(list.begin(), {"rows", rows_unsupported, attention_rows, nullptr, rows_slower});
  return list;
}

}  // namespace

void attention(cpu::Stream& stream, const AttentionArguments& a, const Tensor& y, const Tensor& lse) {
  static Candidates<CpuProblem, AttentionRun> candidates("attention", attention_list());
  candidates.run({y.dtype(), false, a.queries(), a.dropout > 0}, [&](AttentionRun* run) {
    profiler::add_flops(a.flops(2));
    run(stream, a, y, lse);
  });
}

void attention_grad(cpu::Stream& stream, const AttentionArguments& a, const Tensor& y, const Tensor& lse,
                    const Tensor& dy, const AttentionGradients& gradients) {
  static Candidates<CpuProblem, AttentionGradRun> candidates(
      "attention", cpu_list<AttentionGradRun>(attention_grad_avx512_bf16, attention_grad_portable));
  candidates.run({y.dtype(), true, a.queries(), a.dropout > 0}, [&](AttentionGradRun* run) {
    profiler::add_flops(a.flops(5));
    run(stream, a, y, lse, dy, gradients);
  });
}

void window_attention(cpu::Stream& stream, const WindowAttentionArguments& a, const Tensor& y) {
  static Candidates<CpuProblem, WindowRun> candidates(
      "window_attention", cpu_list<WindowRun>(window_attention_avx512_bf16, window_attention_portable));
  candidates.run({.dtype = y.dtype()}, [&](WindowRun* run) {
    profiler::add_flops(a.flops(2));
    run(stream, a, y);
  });
}

void window_attention_grad(cpu::Stream& stream, const WindowAttentionArguments& a, const Tensor& dy,
                           const WindowAttentionGradients& gradients) {
  static Candidates<CpuProblem, WindowGradRun> candidates(
      "window_attention", cpu_list<WindowGradRun>(window_attention_grad_avx512_bf16, window_attention_grad_portable));
  candidates.run({.dtype = dy.dtype(), .gradient = true}, [&](WindowGradRun* run) {
    profiler::add_flops(a.flops(5));
    run(stream, a, dy, gradients);
  });
}

}  // namespace hearth::kernels
