// SPDX-License-Identifier: Apache-2.0
#include "data/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "core/error.h"

namespace hearth::data::unicode {
namespace {

Kind kind_by_category(char32_t code) {
  // The control characters that have the property White_Space.
  if ((code >= 0x09 && code <= 0x0D) || code == 0x85) return Kind::space;
  const char* const category = utf8proc_category_string(static_cast<utf8proc_int32_t>(code));
  switch (category[0]) {
    case 'L':
      return Kind::letter;
    case 'N':
      return Kind::number;
    case 'Z':
      return Kind::space;
    case 'P':
      return Kind::punctuation;
    case 'M':
      return category[1] == 'n' ? Kind::mark : Kind::other;
    case 'C':
      // What is not assigned is no control character: sequences of a later Unicode keep it.
      return category[1] == 'n' ? Kind::other : Kind::control;
    default:
      return Kind::other;
  }
}

}  // namespace

Kind kind_of(char32_t code) {
  // Nearly every character of most sequences: the library takes four times as long.
  static const auto first_kinds = [] {
    std::array<Kind, 0x250> kinds{};
    for (std::size_t i = 0; i < kinds.size(); ++i) kinds[i] = kind_by_category(static_cast<char32_t>(i));
    return kinds;
  }();
  return code < first_kinds.size() ? first_kinds[code] : kind_by_category(code);
}

Character checked_character_at(std::string_view text, std::size_t at, std::string_view source) {
  const Character found = character_at(text, at);
  HEARTH_CHECK(DataError, found.bytes > 0, source, ":",
               1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'), ": byte ", at,
               " of the text is not UTF-8; convert it first, as with iconv");
  return found;
}

void require_utf8(std::string_view text, std::string_view source) {
  for (std::size_t at = 0; at < text.size();) at += checked_character_at(text, at, source).bytes;
}

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), utf8::begins_character);
}

void append_lower(std::string& text, char32_t code) {
  if (code == 0x130) {
    text += "i\xcc\x87";
    return;
  }
  append(text, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
}

void append_without_accents(std::string& text, char32_t code) {
  if (code < 0xC0) return append(text, code);
  // The longest canonical decompositions have four characters, as that of U+1F82.
  std::array<utf8proc_int32_t, 4> parts{};
  const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(),
                                                         parts.size(), UTF8PROC_DECOMPOSE, nullptr);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    const auto part = static_cast<char32_t>(parts[static_cast<std::size_t>(i)]);
    if (kind_of(part) != Kind::mark) append(text, part);
  }
}

bool is_cjk_ideograph(char32_t code) {
  struct Block {
    char32_t first, last;
  };
  constexpr Block blocks[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
                              {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(blocks), std::end(blocks),
                     [code](const Block& block) { return code >= block.first && code <= block.last; });
}

}  // namespace hearth::data::unicode
