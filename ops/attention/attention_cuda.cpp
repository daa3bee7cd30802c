// SPDX-License-Identifier: Apache-2.0
// The candidates of attention on the device, forward and gradient under one name.
#include <compare>

#include "hearth/core/profiler.h"
#include "hearth/ops/attention/kernels.h"
#include "hearth/ops/candidates.h"

namespace hearth::kernels {
namespace {

/// What the choice depends on.
struct Problem {
  DType dtype = DType::f32;
  std::int64_t width = 0;
  bool aligned = false;  ///< every row of every operand begins at a multiple of 16 bytes

  auto operator<=>(const Problem&) const = default;
};

bool rows_are_aligned(const Tensor& x) {
  const auto unit = static_cast<std::int64_t>(16 / size_of(x.dtype()));
  for (int axis = 0; axis < 3; ++axis)
    if (x.shape()[axis] > 1 && x.strides()[static_cast<std::size_t>(axis)] % unit != 0) return false;
  return reinterpret_cast<std::uintptr_t>(x.bytes()) % 16 == 0;
}

std::string mma_declines(const Problem& p) {
  if (size_of(p.dtype) != 2) return join_text("heads are ", p.dtype, "; tensor cores take f16 and bf16 here");
  if (p.width % 8 != 0) return join_text("heads of ", p.width, " channels, not a multiple of 8");
  if (p.width > most_mma_width) return join_text("heads of ", p.width, " channels, more than ", most_mma_width);
  if (!p.aligned) return "rows of q, k, v, y or their gradients do not begin at multiples of 16 bytes";
  return "";
}

std::string portable_declines(const Problem&) { return ""; }

template <class Run>
using List = Candidates<Problem, Run>;
using Forward = void(cuda::Stream&, const AttentionArguments&, const Tensor& y, const Tensor& lse);
using Gradient = void(cuda::Stream&, const AttentionArguments&, const AttentionSaved&, const AttentionGradients&);

}  // namespace

void attention(cuda::Stream& stream, const AttentionArguments& a, const Tensor& y, const Tensor& lse) {
  static List<Forward> candidates(
      "attention", {{"mma", mma_declines, attention_mma}, {"portable", portable_declines, attention_portable}});
  Problem problem{a.q.dtype(), a.width(), true};
  for (const Tensor* const x : {&a.q, &a.k, &a.v, &y}) problem.aligned = problem.aligned && rows_are_aligned(*x);
  const auto choice = candidates.choose(problem);
  const profiler::Scope scope(choice.label);
  choice.run(stream, a, y, lse);
}

void attention_grad(cuda::Stream& stream, const AttentionArguments& a, const Tensor& y, const Tensor& lse,
                    const Tensor& dy, const AttentionGradients& gradients) {
  static List<Gradient> candidates("attention", {{"mma", mma_declines, attention_grad_mma},
                                                 {"portable", portable_declines, attention_grad_portable}});
  Problem problem{a.q.dtype(), a.width(), true};
  for (const Tensor* const x : {&a.q, &a.k, &a.v, &y, &dy, &gradients.dq, &gradients.dk, &gradients.dv})
    problem.aligned = problem.aligned && rows_are_aligned(*x);
  const auto choice = candidates.choose(problem);
  const profiler::Scope scope(choice.label);
  choice.run(stream, a, {y, lse, dy}, gradients);
}

}  // namespace hearth::kernels
