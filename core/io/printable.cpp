// SPDX-License-Identifier: Apache-2.0
#include "core/io/printable.h"

#include <ostream>

#include "core/io/utf8.h"

namespace hearth {
namespace {

bool is_control(char32_t code) { return code < 0x20 || (code >= 0x7f && code < 0xa0); }

/// Whether it changes the direction in which text around it is shown.
bool is_directional(char32_t code) {
  return code == 0x61c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

/// Short enough to need no memory of its own.
std::string escape_of(std::string_view control, char32_t code) {
  constexpr std::string_view digits = "0123456789abcdef";
  switch (control[0]) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  std::string text = control.size() == 1 ? "\\x" : "\\u";
  for (int bits = control.size() == 1 ? 8 : 16; (bits -= 4) >= 0;) text += digits[code >> bits & 15];
  return text;
}

/// Hands the text to add(std::string_view), piece by piece.
template <class F>
void each_piece(std::string_view text, LineBreaks breaks, const F& add) {
  while (!text.empty()) {
    const auto [code, bytes] = utf8::character_at(text, 0);
    const bool is_kept = bytes == 0 || (!is_control(code) && !is_directional(code));
    const std::size_t length = is_kept ? 1 : bytes;
    if (is_kept || (text[0] == '\n' && breaks == LineBreaks::kept))
      add(text.substr(0, length));
    else
      add(escape_of(text.substr(0, length), code));
    text.remove_prefix(length);
  }
}

}  // namespace

std::string printable(std::string_view text, LineBreaks breaks) {
  std::string result;
  result.reserve(text.size());
  each_piece(text, breaks, [&](std::string_view piece) { result += piece; });
  return result;
}

std::ostream& write_printable(std::ostream& out, std::string_view text, LineBreaks breaks) {
  each_piece(text, breaks, [&](std::string_view piece) { out << piece; });
  return out;
}

bool has_control_characters(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at)
    if (const auto [code, bytes] = utf8::character_at(text, at); bytes > 0 && is_control(code)) return true;
  return false;
}

}  // namespace hearth
