// SPDX-License-Identifier: Apache-2.0
// The candidates of attention on the device, forward and gradient under one name.
#include <algorithm>
#include <compare>
#include <vector>

#include "core/profiler.h"
#include "ops/attention/kernels.h"
#include "ops/dispatch/candidates.h"

namespace hearth::kernels {
namespace {

/// What the choice depends on.
struct Problem {
  cuda::dnn::AttentionGrad shape;  ///< of a forward pass: `forward` alone
  bool gradient = false;
  bool aligned = false;  ///< every row of every operand begins at a multiple of 16 bytes
  bool drops = false;
  bool cached = false;  ///< there are keys before the first query
  bool alike = true;    ///< dy lies like y
  bool shares = false;  ///< heads, rows or samples are one by expand()
  bool segments = false;
  bool large = false;  ///< an element of a head may lie 2^31 elements from its first
  int device = 0;      ///< its index

  DType dtype() const { return shape.forward.dtype; }
  std::int64_t width() const { return shape.forward.width; }
  auto operator<=>(const Problem&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Problem& p) {
  const cuda::dnn::Attention& a = p.shape.forward;
  out << (p.gradient ? "gradient" : "forward") << " of " << a.dtype << ", " << a.batch << " samples, " << a.heads
      << " heads of " << a.width << ", " << a.queries << " queries, " << a.keys << " keys";
  if (a.bias_heads > 0) out << ", bias for " << a.bias_heads << " heads";
  return out << (a.causal ? ", causal" : "") << (a.lengths ? ", lengths" : "") << (p.segments ? ", segments" : "")
             << (p.drops ? ", dropout" : "") << (p.cached ? ", keys before the queries" : "")
             << (p.aligned ? "" : ", rows not aligned to 16 bytes");
}

bool rows_are_aligned(const Tensor& x) {
  const auto unit = static_cast<std::int64_t>(16 / size_of(x.dtype()));
  for (int axis = 0; axis < 3; ++axis)
    if (x.shape()[axis] > 1 && x.strides()[static_cast<std::size_t>(axis)] % unit != 0) return false;
  return reinterpret_cast<std::uintptr_t>(x.bytes()) % 16 == 0;
}

/// Whether indices within a head need more than 32 bits, with a block's rows behind its end.
bool rows_are_far(const Tensor& x) {
  constexpr std::int64_t most = 0x7fffffff, block = 256;
  return x.shape()[1] > most - block || x.strides()[1] > most / (x.shape()[1] + block);
}

/// Empty if kernels of 16-byte accesses to f16 and bf16 heads of a multiple of 8 channels, `most` at most, take it.
std::string low_precision_unsupported(const Problem& p, std::int64_t most) {
  if (size_of(p.dtype()) != 2) return join_text("heads are ", p.dtype(), "; tensor cores take f16 and bf16 here");
  if (p.width() % 8 != 0) return join_text("heads of ", p.width(), " channels, not a multiple of 8");
  if (p.width() > most) return join_text("heads of ", p.width(), " channels, more than ", most);
  if (!p.aligned) return "rows of q, k, v, y or their gradients do not begin at multiples of 16 bytes";
  return "";
}

std::string mma_unsupported(const Problem& p) {
  if (p.large) return "a head's rows, or its queries times keys, are too far apart for indices of 32 bits";
  if (p.segments && p.shape.forward.bias_heads > 0) return "a bias beside segments";
  return low_precision_unsupported(p, max_mma_width);
}

std::string library_unsupported(const Problem& p) {
  if (std::string reason = low_precision_unsupported(p, max_head_width); !reason.empty()) return reason;
  if (p.drops) return "dropout draws by Hearth's own counters, and cuDNN by its own";
  if (p.segments) return "the sequences are cut into segments";
  if (p.cached) return "there are keys before the first query";
  if (p.shares) return "heads, rows or samples are shared by expand()";
  if (!p.alike) return "dy does not lie like y";
  const Device device{DeviceType::cuda, p.device};
  return p.gradient ? cuda::dnn::unsupported(device, p.shape) : cuda::dnn::unsupported(device, p.shape.forward);
}

/// cuDNN compiles an engine for each size, about a second, so it comes first only for such as stay: whole tiles, as
/// fixed lengths are, and neither the steps of decoding nor sentences of any length.
std::string library_unsupported_unasked(const Problem& p) {
  const cuda::dnn::Attention& a = p.shape.forward;
  constexpr std::int64_t tile = 64, least = 128;
  if (a.queries % tile != 0 || a.keys % tile != 0 || a.queries < least || a.keys < least)
    return join_text(a.queries, " queries and ", a.keys, " keys are not multiples of ", tile, " of at least ", least,
                     "; cuDNN, which compiles for each size, takes others only where it is forced (HEARTH_PICK)");
  return library_unsupported(p);
}

std::string portable_unsupported(const Problem&) { return ""; }

Problem problem_of(const AttentionArguments& a, const Tensor& y) {
  Problem problem;
  problem.shape.forward = library_problem(a, y);
  problem.device = y.device().index;
  problem.drops = a.dropout > 0;
  problem.cached = a.query_offset > 0;
  problem.segments = a.segments.defined();
  problem.aligned = true;
  for (const Tensor* const x : {&a.q, &a.k, &a.v, &y}) {
    problem.aligned = problem.aligned && rows_are_aligned(*x);
    problem.large = problem.large || rows_are_far(*x);
  }
  // Of the bias, and of the draws.
  problem.large = problem.large || (a.queries() + 256) > 0x7fffffff / (a.keys() + 256);
  for (const Tensor* const x : {&a.q, &a.k, &a.v})
    for (std::size_t axis = 0; axis < 4; ++axis)
      problem.shares = problem.shares || (x->shape()[static_cast<int>(axis)] > 1 && x->strides()[axis] == 0);
  return problem;
}

/// Every kernel has at most a block for 16 rows of a head.
void check_grid(const AttentionArguments& a) {
  constexpr std::int64_t most = 0x7fffffff;
  const std::int64_t tiles = (std::max(a.queries(), a.keys()) + 15) / 16;
  HEARTH_CHECK(ShapeError, tiles == 0 || a.batch() * a.heads() <= most / tiles, "attention: ", a.batch(),
               " samples of ", a.heads(), " heads with up to ", std::max(a.queries(), a.keys()),
               " rows are more than one launch takes; use a smaller batch");
}

/// With the library in front for sizes that stay, and behind the last, which takes everything, where it is forced.
template <class Run>
std::vector<Candidate<Problem, Run>> list_of(Run* library, Run* mma, Run* portable) {
  return {{"cudnn", library_unsupported_unasked, library, cuda::dnn::why_absent},
          {"mma", mma_unsupported, mma},
          {"portable", portable_unsupported, portable},
          {"cudnn", library_unsupported, library, cuda::dnn::why_absent}};
}

using Forward = void(cuda::Stream&, const AttentionArguments&, const Tensor& y, const Tensor& lse);
using Gradient = void(cuda::Stream&, const AttentionArguments&, const AttentionSaved&, const AttentionGradients&);

}  // namespace

void attention(cuda::Stream& stream, const AttentionArguments& a, const Tensor& y, const Tensor& lse) {
  check_grid(a);
  static Candidates<Problem, Forward> candidates(
      "attention", list_of<Forward>(attention_library, attention_mma, attention_portable));
  candidates.run(problem_of(a, y), [&](Forward* run) {
    profiler::add_flops(a.flops(2));
    run(stream, a, y, lse);
  });
}

void attention_grad(cuda::Stream& stream, const AttentionArguments& a, const Tensor& y, const Tensor& lse,
                    const Tensor& dy, const AttentionGradients& gradients) {
  check_grid(a);
  static Candidates<Problem, Gradient> candidates(
      "attention", list_of<Gradient>(attention_grad_library, attention_grad_mma, attention_grad_portable));
  Problem problem = problem_of(a, y);
  problem.shape = library_problem(a, y, gradients);
  problem.gradient = true;
  problem.alike = library_problem(a, dy).y == problem.shape.forward.y;
  for (const Tensor* const x : {&dy, &gradients.dq, &gradients.dk, &gradients.dv}) {
    problem.aligned = problem.aligned && rows_are_aligned(*x);
    problem.large = problem.large || rows_are_far(*x);
  }
  candidates.run(problem, [&](Gradient* run) {
    profiler::add_flops(a.flops(5));
    run(stream, a, {y, lse, dy}, gradients);
  });
}

}  // namespace hearth::kernels
