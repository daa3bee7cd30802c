// SPDX-License-Identifier: Apache-2.0
// How a text is cut before a vocabulary is applied.
#pragma once

#include <string_view>
#include <vector>

namespace hearth::data {

/// The pieces of a text in GPT-2's way, which together are the text:
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), as published with its code.
/// DataError, naming the byte, for a text that is not UTF-8.
void split_gpt2(std::string_view text, std::vector<std::string_view>& pieces);

/// The words of a text between white space; with `punctuation` every punctuation character is a word of its own.
/// DataError, naming the byte, for a text that is not UTF-8.
void split_words(std::string_view text, bool punctuation, std::vector<std::string_view>& words);

/// Whether BERT and `words` set a character apart: ASCII's signs, and Unicode's category P.
bool is_punctuation(char32_t code);

/// GPT-2's way to write a byte as a character that can be printed; and back, -1 for characters that stand for none.
char32_t printable_of_byte(unsigned char byte);
int byte_of_printable(char32_t code);

}  // namespace hearth::data
