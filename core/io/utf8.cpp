// SPDX-License-Identifier: Apache-2.0
#include "core/io/utf8.h"

namespace hearth::utf8 {

Character character_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {first, 1};
  if (first < 0xC2 || first > 0xF4) return {};
  const std::size_t bytes = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (text.size() - at < bytes) return {};
  char32_t code = first & (0xFFu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if (begins_character(text[at + i])) return {};
    code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3Fu);
  }
  constexpr char32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < smallest[bytes] || is_surrogate || code > 0x10FFFF) return {};
  return {code, bytes};
}

void append(std::string& text, char32_t code) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80u | (code >> shift & 0x3Fu)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0u | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0u | code >> 12);
    tail(6), tail(0);
  } else {
    text += static_cast<char>(0xF0u | code >> 18);
    tail(12), tail(6), tail(0);
  }
}

std::size_t find_fault(std::string_view text, std::size_t from) {
  while (from < text.size()) {
    const std::size_t bytes = character_at(text, from).bytes;
    if (bytes == 0) return from;
    from += bytes;
  }
  return std::string_view::npos;
}

}  // namespace hearth::utf8
