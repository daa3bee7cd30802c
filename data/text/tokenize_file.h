// SPDX-License-Identifier: Apache-2.0
// Text tokenised piece by piece: sequences in memory, and files that do not fit into it.
#pragma once

#include <cstddef>
#include <string>

#include "data/text/text_options.h"
#include "data/text/token_writer.h"

namespace hearth::data {

/// The most bytes of a document that are tokenised at once; SentencePiece's sums lose their digits in longer ones.
inline constexpr std::size_t text_block = std::size_t{1} << 16;

/// Tokenises sequences, by all threads: longer ones than `block` bytes in pieces, as tokenize_file() has them. Each has
/// the tokenizer's end behind it, if there is one.
HEARTH_API TokensPointer tokenize(const Tokenizer& tokenizer, Corpus sequences, const std::string& source,
                                  Documents documents = Documents::lines, std::size_t block = text_block);

/// Tokenises the documents of a file into `to`: the ids of tokenize(), by all threads. About `block` bytes of the text
/// are in memory for each thread, or as many as lie between two places where the text may be cut: at a blank or the end
/// of a line where the tokenizer gives the same ids on both sides. A gzip file is inflated in memory. Errors as of
/// read_corpus().
void tokenize_file(const Tokenizer& tokenizer, const std::string& path, Documents documents, TokenWriter& to,
                   std::size_t block = text_block);

/// The last place of `text`, not its beginning, where it may be cut so that the ids of both parts are those of the
/// whole; 0 where there is none among the last blanks. `at_lines`: the ends of lines count as blanks.
std::size_t safe_cut(const Tokenizer& tokenizer, std::string_view text, bool at_lines);

}  // namespace hearth::data
