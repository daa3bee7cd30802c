// SPDX-License-Identifier: Apache-2.0
// The candidates of window_attention on the device, forward and gradient under one name.
#include <compare>
#include <vector>

#include "core/cuda/memory.h"
#include "core/profiler.h"
#include "ops/attention/window_kernels.h"
#include "ops/dispatch/candidates.h"

namespace hearth::kernels {
namespace {

/// What the choice depends on.
struct WindowProblem {
  DType dtype;
  std::int64_t width, window;
  std::size_t shared = 0;  ///< memory that a block may have
  bool aligned = true;     ///< every operand begins at a multiple of 16 bytes
  bool gradient = false;
  auto operator<=>(const WindowProblem&) const = default;
};

std::ostream& operator<<(std::ostream& out, const WindowProblem& p) {
  return out << (p.gradient ? "gradient" : "forward") << " of " << p.dtype << ", windows of " << p.window
             << ", heads of " << p.width << (p.aligned ? "" : ", operands not aligned to 16 bytes");
}

/// By what both passes need: what is computed can be differentiated.
std::string window_memory_unsupported(const WindowProblem& p, std::size_t bytes) {
  if (bytes <= p.shared) return "";
  return join_text("windows of ", p.window, " with heads of ", p.width, " channels, ", p.dtype, ", take ", bytes,
                   " bytes of shared memory a block, and this device has ", p.shared,
                   "; use smaller windows, more heads, or another type");
}

std::string window_mma_unsupported(const WindowProblem& p) {
  if (size_of(p.dtype) != 2) return join_text("heads are ", p.dtype, "; tensor cores take f16 and bf16 here");
  if (p.width % 8 != 0) return join_text("heads of ", p.width, " channels, not a multiple of 8");
  if (!p.aligned) return "qkv, y or their gradients do not begin at multiples of 16 bytes";
  return window_memory_unsupported(p, window_attention_mma_shared(p.window, p.width));
}

std::string window_portable_unsupported(const WindowProblem& p) {
  return window_memory_unsupported(p, window_attention_portable_shared(p.dtype, p.window, p.width));
}

WindowProblem window_problem(const WindowAttentionArguments& a, std::initializer_list<const Tensor*> others) {
  WindowProblem problem{a.qkv.dtype(), a.head_width(), a.grid.window, cuda::max_shared_memory(a.qkv.device())};
  const auto aligned = [](const Tensor& x) { return reinterpret_cast<std::uintptr_t>(x.bytes()) % 16 == 0; };
  problem.aligned = aligned(a.qkv);
  for (const Tensor* const x : others) problem.aligned = problem.aligned && aligned(*x);
  return problem;
}

template <class Run>
std::vector<Candidate<WindowProblem, Run>> window_candidates(Run* mma, Run* portable) {
  return {{"mma", window_mma_unsupported, mma}, {"portable", window_portable_unsupported, portable}};
}

using WindowForward = void(cuda::Stream&, const WindowAttentionArguments&, const Tensor& y);
using WindowGradient = void(cuda::Stream&, const WindowAttentionArguments&, const Tensor& dy,
                            const WindowAttentionGradients&);

}  // namespace

void window_attention(cuda::Stream& stream, const WindowAttentionArguments& a, const Tensor& y) {
  static Candidates<WindowProblem, WindowForward> candidates(
      "window_attention", window_candidates<WindowForward>(window_attention_mma, window_attention_portable));
  candidates.run(window_problem(a, {&y}), [&](WindowForward* run) {
    profiler::add_flops(a.flops(2));
    run(stream, a, y);
  });
}

void window_attention_grad(cuda::Stream& stream, const WindowAttentionArguments& a, const Tensor& dy,
                           const WindowAttentionGradients& gradients) {
  static Candidates<WindowProblem, WindowGradient> candidates(
      "window_attention", window_candidates<WindowGradient>(window_attention_grad_mma, window_attention_grad_portable));
  WindowProblem problem = window_problem(a, {&dy, &gradients.dqkv});
  problem.gradient = true;
  candidates.run(problem, [&](WindowGradient* run) {
    profiler::add_flops(a.flops(5));
    run(stream, a, dy, gradients);
  });
}

}  // namespace hearth::kernels
