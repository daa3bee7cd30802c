// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention.
#pragma once

#include <cstdint>
#include <optional>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/random.h"
#include "core/tensor.h"

namespace hearth {

struct AttentionOptions {
  /// Query i sees the keys up to number query_offset + i only.
  bool causal = false;
  /// Keys before the first query: the length of the cache when a model decodes token by token. Only with `causal`.
  std::int64_t query_offset = 0;
  /// Multiplies q k; 1 / sqrt(D) if absent.
  std::optional<double> scale = {};
  /// Probability of dropping a weight after the softmax, 0 <= dropout < 1; 0 outside of training. The choice is that of
  /// dropout() on weights [N, H, Tq, Tk]; nothing but the key is kept.
  double dropout = 0.0;
  /// [H or 1, Tq, Tk], of q's type or f32, added to the scaled products of every sample; has a gradient. -infinity
  /// hides a key. Absent: nothing is added.
  Tensor bias = {};
  /// i32 [N]: sample n has key_lengths[n] keys, the rest is padding. Numbers beyond [0, Tk] count as the nearest of
  /// it. Absent: all Tk. They may lie on the device and change between replays of a captured step.
  Tensor key_lengths = {};
  /// i32 [N, T, 2], of a sequence that attends to itself (Tq = Tk = T, no query_offset), cut into segments: of each
  /// position the first one of its segment and the one behind the last. Queries see the keys of their own segment only,
  /// at a cost that is about the sum of the squares of the segments' lengths. Segments follow each other; which keys
  /// are seen where they do not is undefined. On the device as key_lengths. Absent: one segment.
  Tensor segments = {};
};

/// The largest head that attention takes.
inline constexpr std::int64_t max_head_width = 256;

/// y[n, i, h] = sum_j softmax_j(scale q[n, i, h] . k[n, j, h] + bias[h, i, j]) v[n, j, h].
///
/// q [N, Tq, H, D], k and v [N, Tk, H, D], of one floating type, 1 <= D <= 256; any strides, and none are copied whose
/// last axis is dense; heads may share keys and values by expand(). y is [N, Tq, H, D], contiguous. A query that sees
/// no key gives zeros and takes part in no gradient. Sums in f32 or wider; under autocast q, k and v are cast down.
/// Saved for the gradient: q, k, v, y, and one number a query and head (f32; f64 beside f64); no array of Tq x Tk is
/// made in memory, except by a library in a workspace of bounded size (docs/kernels.md). ShapeError, DTypeError,
/// DeviceError, UsageError. Source: Vaswani et al., "Attention Is All You Need" (NeurIPS 2017); computed block by block
/// as in Dao et al., "FlashAttention" (NeurIPS 2022).
HEARTH_API Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {});

/// Attention of a sequence to itself: qkv [N, T, 3 C] holds q, k and v of all heads side by side, each [H, D] with
/// C = H D, as one projection makes them; it is read where it lies, and so is its gradient written. y is [N, T, C].
HEARTH_API Tensor self_attention(const Tensor& qkv, std::int64_t heads, const AttentionOptions& options = {});

/// Attention of q [N, Tq, C] to another sequence, whose keys and values kv [N, Tk, 2 C] lie side by side.
/// y is [N, Tq, C].
HEARTH_API Tensor cross_attention(const Tensor& q, const Tensor& kv, std::int64_t heads,
                                  const AttentionOptions& options = {});

namespace kernels {

/// What both passes are given. q [N, Tq, H, D], k and v [N, Tk, H, D]: views whose last axis is dense.
struct AttentionArguments {
  Tensor q, k, v;
  Tensor bias;         ///< absent, or contiguous [H or 1, Tq, Tk] in the type that sums are kept in
  Tensor key_lengths;  ///< absent, or contiguous i32 [N]
  Tensor segments{};   ///< absent, or contiguous i32 [N, T, 2]
  bool causal = false;
  std::int64_t query_offset = 0;
  double scale = 1.0;
  double dropout = 0.0;
  RandomKey key = {};

  std::int64_t batch() const { return q.shape()[0]; }
  std::int64_t queries() const { return q.shape()[1]; }
  std::int64_t keys() const { return k.shape()[1]; }
  std::int64_t heads() const { return q.shape()[2]; }
  std::int64_t width() const { return q.shape()[3]; }
  /// Operations of `products` of Tq x Tk x D a head, half of them where half the keys are hidden. The lengths of
  /// segments lie on the device, so they count as one.
  double flops(int products) const;
};

/// Where the gradients go: views like q, k and v whose last axis is dense; dbias contiguous like the bias, or absent.
struct AttentionGradients {
  Tensor dq, dk, dv, dbias;
};

/// y: a view like q. lse [N, H, Tq], contiguous, in the type of sums: the logarithm of the sum of exponentials of each
/// row; +infinity for a row without keys. Both passes report their operations.
void attention(cpu::Stream&, const AttentionArguments& arguments, const Tensor& y, const Tensor& lse);
void attention(cuda::Stream&, const AttentionArguments& arguments, const Tensor& y, const Tensor& lse);
/// dy: a view like q.
void attention_grad(cpu::Stream&, const AttentionArguments& arguments, const Tensor& y, const Tensor& lse,
                    const Tensor& dy, const AttentionGradients& gradients);
void attention_grad(cuda::Stream&, const AttentionArguments& arguments, const Tensor& y, const Tensor& lse,
                    const Tensor& dy, const AttentionGradients& gradients);

}  // namespace kernels
}  // namespace hearth
