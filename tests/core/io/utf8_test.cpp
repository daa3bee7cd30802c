// SPDX-License-Identifier: Apache-2.0
#include "core/io/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace {

namespace utf8 = hearth::utf8;

TEST(Utf8, EveryCharacterReadsBack) {
  for (std::uint32_t code = 0; code <= 0x10FFFF; ++code) {
    std::string text;
    utf8::append(text, static_cast<char32_t>(code));
    const utf8::Character found = utf8::character_at(text, 0);
    const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
    ASSERT_EQ(found.bytes, is_surrogate ? 0 : text.size()) << code;
    ASSERT_EQ(static_cast<std::uint32_t>(found.code), is_surrogate ? 0 : code);
    for (std::size_t i = 0; i < text.size(); ++i) ASSERT_EQ(utf8::begins_character(text[i]), i == 0) << code;
    // A text that is cut short is none.
    if (text.size() > 1) {
      ASSERT_EQ(utf8::find_fault(text.substr(0, text.size() - 1)), 0u) << code;
    }
  }
}

TEST(Utf8, FaultsAreFoundWhereTheyBegin) {
  EXPECT_EQ(utf8::find_fault(""), std::string::npos);
  EXPECT_EQ(utf8::find_fault("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), std::string::npos);
  for (const std::string bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                                "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE2\x82", "\xC3("})
    EXPECT_EQ(utf8::find_fault("\xC3\xA9" + bad + "z"), 2u) << bad;
  EXPECT_EQ(utf8::find_fault("\xFFok", 1), std::string::npos);
}

}  // namespace
