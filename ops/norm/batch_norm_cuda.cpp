// SPDX-License-Identifier: Apache-2.0
// The candidates of batch normalisation in training on the device. The own kernels come first: cuDNN compiles its
// engines when it is asked, and none of them takes the statistics that a convolution left.
#include "hearth/core/cuda/dnn_norm.h"
#include "hearth/core/profiler.h"
#include "hearth/ops/candidates.h"
#include "hearth/ops/norm/library.h"

namespace hearth::kernels {
namespace {

using Problem = cuda::dnn::BatchNorm;
using Run = void(const Problem& problem, const BatchNormTraining& o);

std::string own_declines(const Problem&) { return ""; }

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

std::string library_declines(const Problem& problem) { return cuda::dnn::declines(Device{DeviceType::cuda}, problem); }

Tensor aligned(const Tensor& tensor) {
  return !tensor.defined() || reinterpret_cast<std::uintptr_t>(tensor.bytes()) % 16 == 0 ? tensor : tensor.clone();
}

void run_library(const Problem& problem, const BatchNormTraining& o) {
  cuda::Stream& stream = cuda::stream_of(o.x.device());
  const Tensor x = aligned(o.x), residual = aligned(o.residual), gamma = aligned(o.gamma), beta = aligned(o.beta);
  const Tensor mean = Tensor::empty({problem.c}, DType::f32, x.device()), inv_std = Tensor::empty_like(mean);
  cuda::dnn::batch_norm(stream, problem,
                        {.x = x.bytes(),
                         .residual = residual.defined() ? residual.bytes() : nullptr,
                         .gamma = gamma.bytes(),
                         .beta = beta.bytes(),
                         .y = o.y.bytes(),
                         .mean = mean.bytes(),
                         .inv_std = inv_std.bytes(),
                         .eps = static_cast<float>(o.options.eps)});
  adopt_batch_statistics(stream, mean, inv_std, x.size() / problem.c, gamma, beta, o.options, o.running_mean,
                         o.running_var, o.coefficients, o.rstd);
  if (o.mask.defined()) relu_mask(stream, o.y, o.mask);
}

/// Images as they are; anything else as single pixels.
Problem problem_of(const BatchNormTraining& o) {
  Problem problem;
  problem.c = o.x.dim(-1);
  problem.n = problem.c == 0 ? 0 : o.x.size() / problem.c;
  if (o.x.rank() == 4) {
    problem.n = o.x.dim(0);
    problem.h = o.x.dim(1);
    problem.w = o.x.dim(2);
  }
  problem.dtype = o.x.dtype();
  problem.residual = o.residual.defined();
  problem.relu = o.options.activation == Activation::relu;
  return problem;
}

}  // namespace

void batch_norm_training(cuda::Stream&, const BatchNormTraining& o) {
  static Candidates<Problem, Run> candidates(
      "batch_norm", {{"own", own_declines, run_own}, {"cudnn", library_declines, run_library, cuda::dnn::why_absent}});
  const Problem problem = problem_of(o);
  if (problem.c == 0) return;
  const auto choice = candidates.choose(problem);
  const profiler::Scope scope(choice.label);
  choice.run(problem, o);
}

}  // namespace hearth::kernels
