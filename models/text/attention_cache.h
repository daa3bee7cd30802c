// SPDX-License-Identifier: Apache-2.0
// What attention layers keep of the ids before, so that a model that writes computes each id once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "models/text/decoder.h"

namespace hearth::models {

/// Keys and values of one layer. The memory for all ids is taken with the first of them and written in place. Time is
/// the first axis: what a selection moves is then one piece, whatever the capacity is.
class HEARTH_API AttentionCache {
 public:
  AttentionCache(std::int64_t sequences, std::int64_t capacity) : sequences_(sequences), capacity_(capacity) {}

  /// The causal self_attention() of qkv [N, T, 3 C] to themselves and to the `length` ids before them, y [N, T, C].
  /// Keeps the keys and values. `scale` is AttentionOptions::scale.
  Tensor attend(const Tensor& qkv, std::int64_t heads, std::int64_t length, std::optional<double> scale = {});
  /// Text i becomes text from[i] (i64 on the device) of `sequences`. `spare`, undefined at first, is memory that this
  /// cache exchanges with its own.
  void select(const Tensor& from, std::int64_t sequences, std::int64_t length, Tensor& spare);

 private:
  Tensor part(std::int64_t first, std::int64_t length, std::int64_t sequences) const;

  std::int64_t sequences_;
  std::int64_t capacity_;
  Tensor kept_;  ///< [room, sequences, 2 C], of which fewer sequences use the beginning
};

/// A decoder of layers with caches; what is left to a model is how ids become logits.
class HEARTH_API CachedDecoder : public TextDecoder {
 public:
  Tensor append(const Tensor& ids) final;
  void select(std::span<const std::int64_t> from) final;
  void clear() final { length_ = 0; }

 protected:
  /// UsageError if the model is in training.
  CachedDecoder(const char* name, nn::Module& model, const DecoderOptions& options, std::int64_t context,
                std::size_t layers, Device device);

  /// The logits [N, vocabulary] after ids [N, T], which stand behind length() others.
  virtual Tensor logits(const Tensor& ids) = 0;
  /// As select(), of what sequences answer; sequences() are still those before.
  virtual void select_sources(std::span<const std::int64_t>) {}

  std::vector<AttentionCache> caches_;
  Device device_;

 private:
  Tensor spare_;  ///< of all layers in turn
};

}  // namespace hearth::models
