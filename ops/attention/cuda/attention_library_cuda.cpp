// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN: the problem in its words, and what Hearth promises beyond it, before and behind its call. What it
// keeps of each row is what the native kernels keep, so that either makes the gradient of the other's result.
#include <algorithm>

#include "ops/attention/kernels.h"
#include "ops/dispatch/repeatable.h"

namespace hearth::kernels {
namespace {

/// Steps of an axis of one are those of a dense tensor: what lies there does not make another problem.
cuda::dnn::HeadSteps steps_of(const Tensor& x) {
  const Shape& shape = x.shape();
  const Strides& strides = x.strides();
  cuda::dnn::HeadSteps steps;
  steps.head = shape[2] > 1 ? strides[2] : shape[3];
  steps.token = shape[1] > 1 ? strides[1] : std::max(steps.head * shape[2], shape[3]);
  steps.sample = shape[0] > 1 ? strides[0] : std::max(steps.token * shape[1], steps.head * shape[2]);
  return steps;
}

/// The bias where the library can read it.
Tensor aligned_bias(const AttentionArguments& a) {
  return !a.bias.defined() || reinterpret_cast<std::uintptr_t>(a.bias.bytes()) % 16 == 0 ? a.bias : a.bias.clone();
}

/// The numbers of queries and keys while a call is made; absent where there are no lengths.
class Counts {
 public:
  Counts(cuda::Stream& stream, const AttentionArguments& a) {
    if (!a.key_lengths.defined()) return;
    // Rows of whole 16 bytes.
    all_ = Tensor::empty({2, (a.batch() + 3) / 4 * 4}, DType::i32, a.q.device());
    attention_counts(stream, a, all_);
  }
  void* queries() const { return all_.defined() ? all_.bytes() : nullptr; }
  void* keys() const { return all_.defined() ? all_.data<std::int32_t>() + all_.dim(1) : nullptr; }

 private:
  Tensor all_;
};

cuda::dnn::AttentionMemory memory_of(const AttentionArguments& a, const Tensor& bias, const Counts& counts,
                                     const Tensor& y, const Tensor& lse) {
  return {.q = a.q.bytes(),
          .k = a.k.bytes(),
          .v = a.v.bytes(),
          .bias = bias.defined() ? bias.bytes() : nullptr,
          .query_lengths = counts.queries(),
          .key_lengths = counts.keys(),
          .y = y.bytes(),
          .lse = lse.bytes(),
          .scale = static_cast<float>(a.scale)};
}

}  // namespace

cuda::dnn::Attention library_problem(const AttentionArguments& a, const Tensor& y) {
  return {.batch = a.batch(),
          .heads = a.heads(),
          .queries = a.queries(),
          .keys = a.keys(),
          .width = a.width(),
          .dtype = a.q.dtype(),
          .causal = a.causal,
          .lengths = a.key_lengths.defined(),
          .repeatable = repeatable(),
          .bias_heads = a.bias.defined() ? a.bias.dim(0) : 0,
          .q = steps_of(a.q),
          .k = steps_of(a.k),
          .v = steps_of(a.v),
          .y = steps_of(y)};
}

cuda::dnn::AttentionGrad library_problem(const AttentionArguments& a, const Tensor& y, const AttentionGradients& into) {
  return {library_problem(a, y), steps_of(into.dq), steps_of(into.dk), steps_of(into.dv)};
}

void attention_library(cuda::Stream& stream, const AttentionArguments& a, const Tensor& y, const Tensor& lse) {
  const Counts counts(stream, a);
  const Tensor bias = aligned_bias(a);
  cuda::dnn::attention(stream, library_problem(a, y), memory_of(a, bias, counts, y, lse));
  if (a.key_lengths.defined() || a.bias.defined()) attention_settle(stream, a, y, lse);
}

void attention_grad_library(cuda::Stream& stream, const AttentionArguments& a, const AttentionSaved& saved,
                            const AttentionGradients& gradients) {
  const Counts counts(stream, a);
  const Tensor bias = aligned_bias(a);
  const Tensor delta = Tensor::empty({a.batch(), a.heads(), a.queries()}, DType::f32, a.q.device());
  cuda::dnn::attention_grad(stream, library_problem(a, saved.y, gradients),
                            {.forward = memory_of(a, bias, counts, saved.y, saved.lse),
                             .dy = saved.dy.bytes(),
                             .delta = delta.bytes(),
                             .dq = gradients.dq.bytes(),
                             .dk = gradients.dk.bytes(),
                             .dv = gradients.dv.bytes()});
  if (a.key_lengths.defined()) attention_settle_grad(stream, a, gradients);
  if (!gradients.dbias.defined()) return;
  attention_row_products(stream, a, saved, delta);
  attention_bias_grad(stream, a, saved, delta, gradients.dbias);
}

}  // namespace hearth::kernels
