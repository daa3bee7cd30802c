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

#include "core/config/config.h"
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

/// Most bytes of a tokenizer's file.
inline constexpr ReadLimit tokenizer_limit{std::uint64_t{64} << 20, "tokenizers"};

/// Sequences that a vocabulary is made from.
using Corpus = std::span<const std::string_view>;

/// What a tokenizer is made from: its node's fields and the training text.
using Tokenizers = Registry<TokenizerPointer(Corpus)>;
/// "characters", "words", "bpe", "wordpiece", "sentencepiece", and what the program adds.
HEARTH_API Tokenizers& tokenizers();

/// Reads a tokenizer by its file: tokenizer.json (as HuggingFace's tokenizers write it, or Tokenizer::to_json),
/// vocab.txt (WordPiece), vocab.json with merges.txt beside it (byte-level BPE), or a SentencePiece .model; or the
/// folder that holds one of them (a model as tokenizer.model). FileError or DataError, naming the file and what in it
/// is not supported. `lower_case` is for a vocab.txt.
HEARTH_API TokenizerPointer read_tokenizer(const std::string& path, std::optional<bool> lower_case = {});
/// WordPiece from a list of pieces, one a line, as BERT's vocab.txt. What that does not tell is as a
/// tokenizer_config.json beside it says ("do_lower_case", "strip_accents", "tokenize_chinese_chars"), or as BERT's
/// tokenizer has it: small letters without accents. `lower_case` overrules the first.
HEARTH_API TokenizerPointer read_vocab_txt(const std::string& path, std::optional<bool> lower_case = {});
/// From the text of a tokenizer.json; `name` is for messages.
HEARTH_API TokenizerPointer parse_tokenizer(const Json& document, const std::string& name);
/// Writes tokenizer.json.
HEARTH_API void write_tokenizer(const Tokenizer& tokenizer, const std::string& path);

}  // namespace hearth::data
