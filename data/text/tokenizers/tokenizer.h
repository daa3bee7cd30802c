// SPDX-License-Identifier: Apache-2.0
// Sequences as numbers. A tokenizer cuts a text into pieces of a fixed vocabulary and joins them again; it is never
// changed after it was made, and several threads may use it at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/export.h"
#include "core/io/json_text.h"

namespace hearth::data {

/// Ids with a meaning of their own; -1 where a vocabulary has none.
struct SpecialIds {
  std::int32_t pad = -1;      ///< fills a batch's rows up
  std::int32_t unknown = -1;  ///< stands for what the vocabulary lacks
  std::int32_t begin = -1;    ///< before a text ([CLS] in BERT's vocabularies)
  std::int32_t end = -1;      ///< after a text ([SEP] in BERT's vocabularies)
  std::int32_t mask = -1;     ///< in place of a piece to be guessed
  bool operator==(const SpecialIds&) const = default;
};

class HEARTH_API Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Ids are 0..size()-1.
  virtual std::int64_t size() const = 0;
  virtual const SpecialIds& special() const = 0;
  /// The ids of a text. Special tokens that stand written in it are recognised, but for SentencePiece, to which "</s>"
  /// is four characters like others unless the model defines it as a symbol of the user; none is added. A pure
  /// function. DataError, naming the byte, for a text that is not UTF-8, or for a piece that the vocabulary lacks where
  /// it has no id for unknown ones.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// The text of ids, special tokens left out. Gives an encoded text back where nothing was lost: always with bytes,
  /// and with characters that are all known. IndexError for an id outside the vocabulary, naming it and its position.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// How a piece is written in the vocabulary. IndexError outside it.
  virtual const std::string& piece(std::int32_t id) const = 0;
  /// The id of a piece as the vocabulary writes it.
  virtual std::optional<std::int32_t> id_of(std::string_view piece) const = 0;
  /// Everything that encode() depends on, as a tokenizer.json. read_tokenizer() gives an equal tokenizer.
  virtual Json to_json() const = 0;

  /// Names the vocabulary and all else that decides about ids: SHA-256 of to_json().
  std::string digest() const;
};

using TokenizerPointer = std::shared_ptr<const Tokenizer>;

/// Sequences that a vocabulary is made from.
using Corpus = std::span<const std::string_view>;

}  // namespace hearth::data
