// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN 9 and its gradient, each a graph of products and a softmax that one engine runs
// (docs/decisions/0015-cudnn-attention.md). cuDNN compiles the engine when a plan is made. f16 and bf16, sums in f32.
#pragma once

#include <cstdint>
#include <string>

#include "core/cuda/stream.h"
#include "core/dtype.h"
#include "ops/cudnn/library.h"

namespace hearth::cuda::dnn {

/// Elements from one sample, token and head of a tensor [N, T, H, D] to the next; channels lie side by side.
struct HeadSteps {
  std::int64_t sample = 0, token = 0, head = 0;

  auto operator<=>(const HeadSteps&) const = default;
};

/// The key of a forward plan.
struct Attention {
  std::int64_t batch = 1, heads = 1, queries = 1, keys = 1, width = 8;
  DType dtype = DType::bf16;
  bool causal = false;          ///< query i sees the keys up to number i only
  bool lengths = false;         ///< each sample has a number of queries and of keys, at least one of each
  bool repeatable = true;       ///< the same bits each time
  std::int64_t bias_heads = 0;  ///< f32 [bias_heads, queries, keys] is added to the scores; 0 for none, 1 or `heads`
  HeadSteps q, k, v, y;

  auto operator<=>(const Attention&) const = default;
};

/// The key of a gradient's plan.
struct AttentionGrad {
  Attention forward;  ///< dy lies like y
  HeadSteps dq, dk, dv;

  auto operator<=>(const AttentionGrad&) const = default;
};

/// Memory aligned to 16. lse [N, H, Tq], f32: the logarithm of each row's sum of exponentials. Forward writes y and
/// lse; a row that the bias hides wholly is left as NaN or -infinity in lse, and as anything in y.
struct AttentionMemory {
  void *q, *k, *v;
  void* bias;                         ///< or null
  void *query_lengths, *key_lengths;  ///< i32 [N]; or null
  void *y, *lse;
  float scale;
};

/// The same; +infinity in lse marks a row that has no part in the gradient. Keys behind a sample's length may be left
/// unwritten in dk and dv.
struct AttentionGradMemory {
  AttentionMemory forward;
  void* dy;
  void* delta;  ///< room for f32 [N, H, Tq]
  void *dq, *dk, *dv;
};

/// Empty if cuDNN does it on this device; else the reason why not. The first question for a problem compiles its plan,
/// which is refused (DeviceError) while a step is recorded.
std::string unsupported(Device device, const Attention& problem);
std::string unsupported(Device device, const AttentionGrad& problem);
/// UsageError where `unsupported` gives a reason; DeviceError if the library is absent, or with its own words.
void attention(Stream& stream, const Attention& problem, const AttentionMemory& memory);
/// In how many calls, each of an equal share of the batch, so that the engine's workspace does not become large.
std::int64_t calls_of(const AttentionGrad& problem);
void attention_grad(Stream& stream, const AttentionGrad& problem, const AttentionGradMemory& memory);

}  // namespace hearth::cuda::dnn
