// SPDX-License-Identifier: Apache-2.0
// What tokenizers need of Unicode: classes of characters, lower case, and letters without their accents.
// Properties of characters come from utf8proc, in the version of Unicode that it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/io/utf8.h"

namespace hearth::data::unicode {

/// Classes that exclude each other.
enum class Kind : unsigned char {
  letter,       ///< general category L
  number,       ///< N
  space,        ///< the property White_Space, whatever the category
  punctuation,  ///< P
  mark,         ///< Mn: nonspacing marks
  control,      ///< Cc, Cf, Cs and Co, but for white space
  other,
};
/// The class of a code point.
Kind kind_of(char32_t code);

/// Whether Python's str.split() splits there, which sacreBLEU uses: white space and four control characters.
inline bool splits_words(char32_t code) { return kind_of(code) == Kind::space || (code >= 0x1c && code <= 0x1f); }

using utf8::append;
using utf8::Character;
using utf8::character_at;
/// As character_at. DataError naming `source`, the line and the byte if the text is not UTF-8 there.
Character checked_character_at(std::string_view text, std::size_t at, std::string_view source);
/// DataError naming `source`, the line and the byte unless all of the text is UTF-8.
void require_utf8(std::string_view text, std::string_view source);
/// Characters of a text that is UTF-8: bytes that begin one.
std::int64_t count_characters(std::string_view text);

/// Appends the lower case of a character; two characters for U+0130.
void append_lower(std::string& text, char32_t code);
/// Appends what canonical decomposition leaves of a character without its nonspacing marks: nothing for a mark.
void append_without_accents(std::string& text, char32_t code);
/// Whether BERT sets a character apart as a word of its own: the CJK blocks of ideographs.
bool is_cjk_ideograph(char32_t code);

}  // namespace hearth::data::unicode
