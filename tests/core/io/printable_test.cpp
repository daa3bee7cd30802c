// SPDX-License-Identifier: Apache-2.0
#include "core/io/printable.h"

#include <gtest/gtest.h>

namespace {

using hearth::has_control_characters;
using hearth::LineBreaks;
using hearth::printable;

TEST(Printable, LeavesTextAlone) {
  for (const std::string text : {"", "runs/a b-c_1.json", "\xc3\xa9t\xc3\xa9 \xe6\xbc\xa2", "\xc2\xa0", "\\n"}) {
    EXPECT_EQ(printable(text), text);
    EXPECT_FALSE(has_control_characters(text)) << text;
  }
}

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(printable("a\nb\r\tc"), "a\\nb\\r\\tc");
  EXPECT_EQ(printable("\x1b[31mred\x7f"), "\\x1b[31mred\\x7f");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m")
      << "an escape sequence in one character";
  EXPECT_EQ(printable("a\nb\x1b", LineBreaks::kept), "a\nb\\x1b");
  // What would show gpj.exe as exe.jpg.
  EXPECT_EQ(printable("a\u202egpj.exe\u2069\u200f\u061c"), "a\\u202egpj.exe\\u2069\\u200f\\u061c");
  EXPECT_EQ(printable("\xff\x80"), "\xff\x80") << "no UTF-8";
  EXPECT_FALSE(has_control_characters("\u202e"));
  for (const std::string text : {"a\n", "\x1b", "\x7f", "\xc2\x80"}) EXPECT_TRUE(has_control_characters(text));
}

}  // namespace
