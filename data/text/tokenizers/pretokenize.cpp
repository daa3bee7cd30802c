// SPDX-License-Identifier: Apache-2.0
#include "data/text/tokenizers/pretokenize.h"

#include <array>

#include "data/text/unicode.h"

namespace hearth::data {
namespace {

using unicode::Character;
using unicode::Kind;

enum class Gpt2Class : unsigned char { letter, number, space, other };

Gpt2Class class_of(char32_t code) {
  switch (unicode::kind_of(code)) {
    case Kind::letter:
      return Gpt2Class::letter;
    case Kind::number:
      return Gpt2Class::number;
    case Kind::space:
      return Gpt2Class::space;
    default:
      return Gpt2Class::other;
  }
}

std::size_t contraction_at(std::string_view text, std::size_t at) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (text.substr(at, ending.size()) == ending) return ending.size();
  return 0;
}

/// Where the run of one class ends, and where its last character begins.
struct Run {
  std::size_t end;
  std::size_t last;
};
Run run_of(std::string_view text, std::size_t at, Gpt2Class wanted) {
  Run run{at, at};
  while (run.end < text.size()) {
    const Character c = unicode::checked_character_at(text, run.end, "tokenizer");
    if (class_of(c.code) != wanted) break;
    run.last = run.end;
    run.end += c.bytes;
  }
  return run;
}

std::size_t end_of_piece(std::string_view text, std::size_t at) {
  if (text[at] == '\'')
    if (const std::size_t length = contraction_at(text, at)) return at + length;
  const Gpt2Class here = class_of(unicode::checked_character_at(text, at, "tokenizer").code);
  if (here != Gpt2Class::space) return run_of(text, at, here).end;
  // One blank goes with what follows it.
  if (text[at] == ' ' && at + 1 < text.size()) {
    const Gpt2Class after = class_of(unicode::checked_character_at(text, at + 1, "tokenizer").code);
    if (after != Gpt2Class::space) return run_of(text, at + 1, after).end;
  }
  const Run run = run_of(text, at, Gpt2Class::space);
  return run.end < text.size() && run.last > at ? run.last : run.end;
}

bool is_printable_byte(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct ByteAlphabet {
  std::array<char32_t, 256> printable{};
  std::array<int, 512> byte{};
  ByteAlphabet() {
    byte.fill(-1);
    char32_t next = 256;
    for (unsigned b = 0; b < 256; ++b) {
      printable[b] = is_printable_byte(b) ? b : next++;
      byte[printable[b]] = static_cast<int>(b);
    }
  }
};
const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

}  // namespace

void split_gpt2(std::string_view text, std::vector<std::string_view>& pieces) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_piece(text, at);
    pieces.push_back(text.substr(at, end - at));
    at = end;
  }
}

void split_words(std::string_view text, bool punctuation, std::vector<std::string_view>& words) {
  std::size_t begin = 0;
  const auto finish = [&](std::size_t end) {
    if (end > begin) words.push_back(text.substr(begin, end - begin));
  };
  for (std::size_t at = 0; at < text.size();) {
    const Character c = unicode::checked_character_at(text, at, "tokenizer");
    const bool space = unicode::kind_of(c.code) == Kind::space;
    if (space || (punctuation && is_punctuation(c.code))) {
      finish(at);
      begin = at + c.bytes;
      if (!space) words.push_back(text.substr(at, c.bytes));
    }
    at += c.bytes;
  }
  finish(text.size());
}

bool is_punctuation(char32_t code) {
  if (code < 0x80)
    return code > 32 && code < 127 && !(code >= '0' && code <= '9') && !((code | 32) >= 'a' && (code | 32) <= 'z');
  return unicode::kind_of(code) == Kind::punctuation;
}

char32_t printable_of_byte(unsigned char byte) { return byte_alphabet().printable[byte]; }

int byte_of_printable(char32_t code) { return code < 512 ? byte_alphabet().byte[code] : -1; }

}  // namespace hearth::data
