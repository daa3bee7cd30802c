// SPDX-License-Identifier: Apache-2.0
#include "data/text/unicode.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "data/text/unicode_tables.h"

namespace hearth::data::unicode {
namespace {

Kind search_kind(char32_t code) {
  const std::uint32_t* const end = kind_runs + kind_runs_size;
  const std::uint32_t* const after =
      std::upper_bound(kind_runs, end, code, [](char32_t wanted, std::uint32_t run) { return wanted < run >> 8; });
  return static_cast<Kind>(after[-1] & 0xffu);
}

// Nearly every character of most texts.
constexpr std::size_t kept_kinds = 0x250;
const std::array<Kind, kept_kinds>& first_kinds() {
  static const auto kinds = [] {
    std::array<Kind, kept_kinds> made{};
    for (std::size_t code = 0; code < kept_kinds; ++code) made[code] = search_kind(static_cast<char32_t>(code));
    return made;
  }();
  return kinds;
}

/// The last entry of a table that begins at or before `code`; null if there is none.
template <class Entry>
const Entry* entry_before(const Entry* table, std::size_t size, char32_t code, std::uint32_t Entry::*first) {
  const Entry* const after = std::upper_bound(
      table, table + size, code, [&](char32_t wanted, const Entry& entry) { return wanted < entry.*first; });
  return after == table ? nullptr : after - 1;
}

// Unicode, chapter 3.12: syllables are numbered by their parts.
constexpr char32_t hangul_first = 0xAC00, hangul_last = 0xD7A3;
void append_hangul_parts(std::string& text, char32_t code) {
  const char32_t index = code - hangul_first;
  append(text, 0x1100 + index / (21 * 28));
  append(text, 0x1161 + index / 28 % 21);
  if (index % 28 != 0) append(text, 0x11A7 + index % 28);
}

}  // namespace

Kind kind_of(char32_t code) {
  static const auto& first = first_kinds();
  return code < kept_kinds ? first[code] : search_kind(code);
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
  const LowerRun* const run = entry_before(lower_runs, lower_runs_size, code, &LowerRun::first);
  const char32_t distance = run == nullptr ? 0 : code - run->first;
  if (run != nullptr && distance % run->stride == 0 && distance / run->stride < run->count)
    code = static_cast<char32_t>(static_cast<std::int64_t>(code) + run->delta);
  append(text, code);
}

void append_without_accents(std::string& text, char32_t code) {
  if (code < 0xC0) return append(text, code);
  if (code >= hangul_first && code <= hangul_last) return append_hangul_parts(text, code);
  const BaseRun* const run = entry_before(base_runs, base_runs_size, code, &BaseRun::first);
  if (run != nullptr && code - run->first < run->count)
    return append(text, run->base + (code - run->first) * run->step);
  const Bases* const several = entry_before(several_bases, several_bases_size, code, &Bases::code);
  if (several != nullptr && several->code == code) {
    for (const std::uint32_t base : several->bases)
      if (base != 0) append(text, base);
    return;
  }
  if (kind_of(code) != Kind::mark) append(text, code);
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
