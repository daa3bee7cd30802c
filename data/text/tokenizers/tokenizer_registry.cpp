// SPDX-License-Identifier: Apache-2.0
// The tokenizers of the library: their fields, and what makes them.
#include "data/text/tokenizers/tokenizer_registry.h"

#include "core/error.h"
#include "data/source/source_bytes.h"
#include "data/text/tokenizers/bpe.h"
#include "data/text/tokenizers/sentencepiece.h"
#include "data/text/tokenizers/special.h"
#include "data/text/tokenizers/tokenizer_files.h"
#include "data/text/tokenizers/word_level.h"
#include "data/text/tokenizers/wordpiece.h"

namespace hearth::data {
namespace {

constexpr const char* path_doc = "A tokenizer's file instead of one made from the training text.";

struct CharacterFields {
  std::string path;
  std::int64_t most = 0;
  std::int64_t min_count = 1;
};
template <class T>
void describe_counted(Fields<T>& f) {
  f.text("path", &CharacterFields::path, path_doc);
  f.integer("most", &CharacterFields::most, {.min = 0, .max = 1 << 24},
            "Largest number of pieces, special tokens included; 0 for no limit.");
  f.integer("min_count", &CharacterFields::min_count, {.min = 1}, "Rarer ones are unknown.");
}
void describe(Fields<CharacterFields>& f) { describe_counted(f); }

struct WordFields : CharacterFields {
  bool lower_case = false;
  bool punctuation = false;
};
void describe(Fields<WordFields>& f) {
  describe_counted(f);
  f.boolean("lower_case", &WordFields::lower_case, "Letters become small.");
  f.boolean("punctuation", &WordFields::punctuation, "Every punctuation character is a word of its own.");
}

struct BpeFields {
  std::string path;
  std::int64_t vocabulary = 8192;
  std::int64_t min_count = 2;
};
void describe(Fields<BpeFields>& f) {
  f.text("path", &BpeFields::path, path_doc);
  f.integer("vocabulary", &BpeFields::vocabulary, {.min = 261, .max = 1 << 24},
            "Pieces to learn, the 256 bytes and 5 special tokens included.");
  f.integer("min_count", &BpeFields::min_count, {.min = 1}, "Rarer pairs are not joined.");
}

struct WordPieceFields {
  std::string path;
  std::optional<bool> lower_case;
};
void describe(Fields<WordPieceFields>& f) {
  f.text("path", &WordPieceFields::path, "tokenizer.json or vocab.txt.").required();
  f.boolean("lower_case", &WordPieceFields::lower_case,
            "For a vocab.txt, which does not say: small letters without accents. null: as do_lower_case in a "
            "tokenizer_config.json beside it says, or true.");
}

struct SentencePieceFields {
  std::string path;
};
void describe(Fields<SentencePieceFields>& f) {
  f.text("path", &SentencePieceFields::path, "A .model file.").required();
}

template <class Kind>
TokenizerPointer read_kind(const std::string& path, const char* name, std::optional<bool> lower_case = {}) {
  TokenizerPointer found = read_tokenizer(path, lower_case);
  HEARTH_CHECK(DataError, dynamic_cast<const Kind*>(found.get()) != nullptr, path, ": not a tokenizer of the type ",
               name, "; say another \"type\"");
  return found;
}

TokenizerPointer make_bpe(const BpeFields& fields, Corpus sequences) {
  if (!fields.path.empty()) return read_kind<BytePairTokenizer>(fields.path, "bpe");
  BpeModel model = train_bpe(sequences, fields.vocabulary, fields.min_count, own_special_tokens());
  return std::make_shared<BytePairTokenizer>(Vocabulary(std::move(model.pieces), "bpe"), model.merges,
                                             own_added_tokens(), BpeOptions{}, "bpe");
}

void add_own(Tokenizers& registry) {
  registry.add<CharacterFields>("characters", "Every character is a piece.",
                                [](const CharacterFields& f, Corpus sequences) -> TokenizerPointer {
                                  if (!f.path.empty()) return read_kind<CharacterTokenizer>(f.path, "characters");
                                  return CharacterTokenizer::train(sequences, {f.most, f.min_count});
                                });
  registry.add<WordFields>(
      "words", "Words between white space.", [](const WordFields& f, Corpus sequences) -> TokenizerPointer {
        if (!f.path.empty()) return read_kind<WordTokenizer>(f.path, "words");
        return WordTokenizer::train(sequences, {f.most, f.min_count}, {f.lower_case, f.punctuation});
      });
  registry.add<BpeFields>("bpe", "Byte-level byte pair encoding, as of GPT-2.", make_bpe);
  registry.add<WordPieceFields>("wordpiece", "WordPiece, as of BERT.",
                                [](const WordPieceFields& f, Corpus) -> TokenizerPointer {
                                  return read_kind<WordPieceTokenizer>(f.path, "wordpiece", f.lower_case);
                                });
  registry.add<SentencePieceFields>("sentencepiece", "A SentencePiece model, by the library that defines them.",
                                    [](const SentencePieceFields& f, Corpus) {
                                      return sentencepiece_tokenizer(read_source_text(f.path, tokenizer_limit), f.path);
                                    });
}

}  // namespace

Tokenizers& tokenizers() {
  static Tokenizers registry("tokenizer", "How sequences become numbers.", add_own);
  return registry;
}

}  // namespace hearth::data
