// SPDX-License-Identifier: Apache-2.0
// Sequences that a model writes id by id: what generate() and beam_search() ask of it. A model that derives from
// TextModel keeps what it knows of the ids so far; any other is run from the first id on each time:
//
//   const auto decoder = models::make_decoder(model, {.sequences = 2, .capacity = 256});
//   const Tensor logits = decoder->append(prompts);  // [2, vocabulary]: of the id after the last
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/tensor.h"
#include "models/nn/module.h"

namespace hearth::models {

struct DecoderOptions {
  std::int64_t sequences = 1;
  /// Ids that a text may have; 0, or more than the model can see at once: as many as that.
  std::int64_t capacity = 0;
  /// What the sequences answer, ids [M, S] with `sequences` a multiple of M: text i answers row i / (sequences / M).
  /// Undefined for models of one input.
  Tensor source = {};
};

/// Sequences of one length that grow together. Nothing is recorded for gradients.
class HEARTH_API TextDecoder {
 public:
  virtual ~TextDecoder() = default;
  /// Puts ids [sequences(), T], i32 or i64 on any device, behind the sequences. The logits [sequences(), vocabulary] of
  /// the id after the last. ShapeError for another number of sequences, no ids, or more than the capacity.
  virtual Tensor append(const Tensor& ids) = 0;
  /// From here on text i is what text from[i] was; those not named are dropped. Where sequences answer sources, those
  /// of one source stay beside each other and as many as they were. IndexError; ShapeError for none, or more than the
  /// decoder was made for.
  virtual void select(std::span<const std::int64_t> from) = 0;
  /// Forgets all ids, but not what the sequences answer.
  virtual void clear() = 0;

  std::int64_t sequences() const { return sequences_; }
  std::int64_t length() const { return length_; }
  std::int64_t capacity() const { return capacity_; }

 protected:
  /// ShapeError for sequences or a capacity below 1, and for sources that do not divide the sequences; `name` begins
  /// its message.
  TextDecoder(const char* name, const DecoderOptions& options, std::int64_t capacity);
  void check_appended(const Tensor& ids) const;
  void check_selected(std::span<const std::int64_t> from) const;

  const char* name_;
  std::int64_t sequences_;
  std::int64_t length_ = 0;

 private:
  std::int64_t max_sequences_;
  std::int64_t capacity_;
};

/// What a model derives from, beside nn::Module, to write with its own decoder.
class HEARTH_API TextModel {
 public:
  /// The model outlives the decoder, and its weights do not change meanwhile. UsageError while it is in training, and
  /// for a source that it does not take or lacks.
  virtual std::unique_ptr<TextDecoder> make_decoder(const DecoderOptions& options) = 0;

 protected:
  ~TextModel() = default;
};

/// The model's own decoder; of one that is no TextModel, a decoder that calls it with all ids for each new one and
/// needs to be told the room.
HEARTH_API std::unique_ptr<TextDecoder> make_decoder(nn::Module& model, const DecoderOptions& options);

}  // namespace hearth::models
