// SPDX-License-Identifier: Apache-2.0
// UTF-8 as Unicode defines it (chapter 3.9): overlong forms, surrogates and codes beyond U+10FFFF are none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hearth::utf8 {

/// One character of a text.
struct Character {
  char32_t code = 0;
  std::size_t bytes = 0;  ///< of its UTF-8 form; 0 for bytes that are not UTF-8
};

/// The character at `at`, which lies inside the text.
Character character_at(std::string_view text, std::size_t at);

/// Appends the UTF-8 form of a code point.
void append(std::string& text, char32_t code);

/// Where the first byte is that is not UTF-8; npos if all of the text is.
std::size_t find_fault(std::string_view text, std::size_t from = 0);

/// Whether a byte of UTF-8 is the first of its character.
inline bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u; }

}  // namespace hearth::utf8
