// SPDX-License-Identifier: Apache-2.0
// The candidates of batch normalisation in training on the device. The own kernels come first: cuDNN compiles its
// engines when it is asked, and none of them takes the statistics that a convolution left.
#include "core/profiler.h"
#include "ops/candidates.h"
#include "ops/norm/batch_norm_cudnn.h"
#include "ops/norm/library.h"

namespace hearth::kernels {
namespace {

using cuda::dnn::declines;
using Problem = cuda::dnn::BatchNorm;
using GradProblem = cuda::dnn::BatchNormGrad;
/// What a choice depends on.
struct Key : Problem {
  int device = 0;  ///< its index
  auto operator<=>(const Key&) const = default;
};
using Run = void(const Problem& problem, const BatchNormTraining& o);
/// Whether the library makes the gradient.
using ChooseGrad = bool();

std::string own_declines(const Key&) { return ""; }

void run_own(const Problem& problem, const BatchNormTraining& o) {
  cuda::Stream& stream = cuda::stream_of(o.x.device());
  if (o.moments != nullptr && o.moments->parts.defined())
    batch_norm_coefficients(stream, *o.moments, o.x.size() / o.x.dim(-1), o.gamma, o.beta, o.options, o.running_mean,
                            o.running_var, o.coefficients, o.rstd);
  else
    batch_norm_coefficients(stream, o.x, o.gamma, o.beta, o.options, o.running_mean, o.running_var, o.coefficients,
                            o.rstd);
  batch_norm(stream, o.x, o.coefficients, o.residual, problem.relu, o.y, o.mask);
}

Device device_of(const Key& key) { return {DeviceType::cuda, key.device}; }

std::string library_declines(const Key& key) { return declines(device_of(key), static_cast<const Problem&>(key)); }

GradProblem gradient_of(const Problem& p) { return {p.n, p.h, p.w, p.c, p.dtype, p.relu}; }

/// `forward` leaves what the gradient reads.
std::string library_grad_declines(const Key& forward) {
  std::string reason = declines(device_of(forward), gradient_of(forward));
  return reason.empty() ? library_declines(forward) : reason;
}

/// The gradient reads what its own forward pass left, so the choice is made then.
bool library_makes_gradient(const Key& forward) {
  static Candidates<Key, ChooseGrad> candidates(
      "batch_norm_grad", {{"cudnn", library_grad_declines, [] { return true; }, cuda::dnn::why_absent},
                          {"own", own_declines, [] { return false; }}});
  return candidates.choose(forward).run();
}

Tensor aligned(const Tensor& tensor) {
  return !tensor.defined() || reinterpret_cast<std::uintptr_t>(tensor.bytes()) % 16 == 0 ? tensor : tensor.clone();
}

void* memory_of(const Tensor& tensor) { return tensor.defined() ? tensor.bytes() : nullptr; }

void run_library(const Problem& of_op, const BatchNormTraining& o) {
  cuda::Stream& stream = cuda::stream_of(o.x.device());
  Problem problem = of_op;
  problem.bits = problem.relu;
  const bool keeps = o.for_gradient != nullptr && library_makes_gradient({problem, o.x.device().index});
  problem.bits = problem.bits && keeps;
  const Tensor x = aligned(o.x), residual = aligned(o.residual), gamma = aligned(o.gamma), beta = aligned(o.beta);
  LibraryNorm left{Tensor::empty({problem.c}, DType::f32, x.device()),
                   Tensor::empty({problem.c}, DType::f32, x.device()),
                   problem.bits ? Tensor::empty({x.size() / 8}, DType::u8, x.device()) : Tensor()};
  cuda::dnn::batch_norm(stream, problem,
                        {.x = x.bytes(),
                         .residual = memory_of(residual),
                         .gamma = gamma.bytes(),
                         .beta = beta.bytes(),
                         .y = o.y.bytes(),
                         .mean = left.mean.bytes(),
                         .inv_std = left.inv_std.bytes(),
                         .bits = memory_of(left.bits),
                         .eps = static_cast<float>(o.options.eps)});
  adopt_batch_statistics(stream, left.mean, left.inv_std, x.size() / problem.c, gamma, beta, o.options, o.running_mean,
                         o.running_var, o.coefficients, o.rstd);
  if (keeps)
    *o.for_gradient = std::move(left);
  else if (o.mask.defined())
    relu_mask(stream, o.y, o.mask);
}

/// Images as they are; anything else as single pixels.
template <class P>
P problem_of(const Tensor& x) {
  P problem;
  problem.c = x.dim(-1);
  problem.n = problem.c == 0 ? 0 : x.size() / problem.c;
  if (x.rank() == 4) {
    problem.n = x.dim(0);
    problem.h = x.dim(1);
    problem.w = x.dim(2);
  }
  problem.dtype = x.dtype();
  return problem;
}

}  // namespace

void batch_norm_training(cuda::Stream&, const BatchNormTraining& o) {
  static Candidates<Key, Run> candidates(
      "batch_norm", {{"own", own_declines, run_own}, {"cudnn", library_declines, run_library, cuda::dnn::why_absent}});
  auto problem = problem_of<Key>(o.x);
  problem.device = o.x.device().index;
  if (problem.c == 0) return;
  problem.residual = o.residual.defined();
  problem.relu = o.options.activation == Activation::relu;
  const auto choice = candidates.choose(problem);
  const profiler::Scope scope(choice.label);
  choice.run(problem, o);
}

void batch_norm_library_grad(cuda::Stream& stream, const LibraryNorm& kept, const Tensor& x, const Tensor& dy,
                             const Tensor& gamma, const Tensor& dx, const Tensor& d_residual, const Tensor& d_gamma,
                             const Tensor& d_beta) {
  const profiler::Scope scope("batch_norm_grad:cudnn");
  auto problem = problem_of<GradProblem>(x);
  problem.relu = kept.bits.defined();
  const Tensor x_in = aligned(x), dy_in = aligned(dy), gamma_in = aligned(gamma);
  const auto room = [](const Tensor& result) {
    return !result.defined() || reinterpret_cast<std::uintptr_t>(result.bytes()) % 16 == 0 ? result
                                                                                           : Tensor::empty_like(result);
  };
  const Tensor dx_out = room(dx), g_out = room(d_residual), d_gamma_out = room(d_gamma), d_beta_out = room(d_beta);
  cuda::dnn::batch_norm_grad(stream, problem,
                             {.x = x_in.bytes(),
                              .dy = dy_in.bytes(),
                              .bits = memory_of(kept.bits),
                              .gamma = gamma_in.bytes(),
                              .mean = kept.mean.bytes(),
                              .inv_std = kept.inv_std.bytes(),
                              .g = memory_of(g_out),
                              .dx = dx_out.bytes(),
                              .d_gamma = d_gamma_out.bytes(),
                              .d_beta = d_beta_out.bytes()});
  const auto give_back = [](const Tensor& made, const Tensor& wanted) {
    if (wanted.defined() && !made.same_storage(wanted)) wanted.copy_from(made);
  };
  give_back(dx_out, dx);
  give_back(g_out, d_residual);
  give_back(d_gamma_out, d_gamma);
  give_back(d_beta_out, d_beta);
}

}  // namespace hearth::kernels
