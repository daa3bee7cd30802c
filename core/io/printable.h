// SPDX-License-Identifier: Apache-2.0
// Text from outside (names, paths, keys) as it may stand in a message.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace hearth {

enum class LineBreaks : std::uint8_t { escaped, kept };

/// The text with control characters written as escapes (\n, \t, \x1b, \u009b, \u202e), so that a message stays on its
/// line, moves no cursor and reads in the order in which it is written: also those of Unicode for text in two
/// directions.
std::string printable(std::string_view text, LineBreaks breaks = LineBreaks::escaped);

/// Writes the same, without asking for memory.
std::ostream& write_printable(std::ostream& out, std::string_view text, LineBreaks breaks = LineBreaks::escaped);

/// Whether the text has control characters: U+0000 to U+001F and U+007F to U+009F.
bool has_control_characters(std::string_view text);

}  // namespace hearth
