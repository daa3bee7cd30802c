// SPDX-License-Identifier: Apache-2.0
#include "core/io/printable.h"

#include <ostream>

#include "core/io/utf8.h"

namespace hearth {
namespace {

/// Bytes of the control character at the front of a text in UTF-8, 0 if there is none.
std::size_t control_length(std::string_view text) {
  const auto [code, bytes] = utf8::character_at(text, 0);
  return code < 0x20 || (code >= 0x7f && code < 0xa0) ? bytes : 0;
}

/// Short enough to need no memory of its own.
std::string escape_of(std::string_view control) {
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
  const auto last = static_cast<unsigned char>(control.back());
  return (control.size() == 1 ? "\\x" : "\\u00") + std::string{digits[last >> 4], digits[last & 15]};
}

/// Hands the text to add(std::string_view), piece by piece.
template <class F>
void each_piece(std::string_view text, LineBreaks breaks, const F& add) {
  while (!text.empty()) {
    const std::size_t length = control_length(text);
    if (length == 0 || (text[0] == '\n' && breaks == LineBreaks::kept))
      add(text.substr(0, 1));
    else
      add(escape_of(text.substr(0, length)));
    text.remove_prefix(length == 0 ? 1 : length);
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
    if (control_length(text.substr(at)) > 0) return true;
  return false;
}

}  // namespace hearth
