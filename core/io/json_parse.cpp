// SPDX-License-Identifier: Apache-2.0
// A strict JSON parser (RFC 8259) by recursive descent that notes where every value begins.
#include <charconv>
#include <unordered_set>
#include <utility>

#include "core/io/file.h"
#include "core/io/json_text.h"

namespace hearth {
namespace json_detail {

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t k) -> unsigned {
    return at + k < text.size() ? static_cast<unsigned char>(text[at + k]) : 0u;
  };
  const auto continues = [&](std::size_t k) { return (byte(k) & 0xC0u) == 0x80u; };
  const unsigned first = byte(0);
  if (first < 0x80) return at < text.size() ? 1 : 0;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!continues(1) || !continues(2)) return 0;
    // Refuses overlong forms and surrogates.
    if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F)) return 0;
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) return 0;
    return 4;
  }
  return 0;
}

}  // namespace json_detail

namespace {

constexpr int deepest = 64;
// A value takes a hundred times the memory of the two bytes that it may be in a text.
constexpr std::int64_t most_values = std::int64_t{1} << 22;
// Above this many members a hash set finds duplicate keys; below it a scan is cheaper.
constexpr std::size_t few_members = 16;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::string& out, unsigned code) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80u | ((code >> shift) & 0x3Fu)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0u | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0u | (code >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0u | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace

class JsonParser {
 public:
  JsonParser(std::string_view text, std::string_view source_name, JsonOrigin origin)
      : text_(text), source_(std::make_shared<const std::string>(source_name)), origin_(origin) {}

  Json parse() {
    // Some editors begin a file with a byte-order mark.
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") at_ = counted_ = 3;
    skip_space();
    Json value = parse_value(0);
    skip_space();
    if (at_ < text_.size()) fail("expected the end of the text after the value, found " + found());
    return value;
  }

 private:
  JsonPosition position() {
    // Columns are counted only from the last place asked for, so that a long line costs linear time.
    for (; counted_ < at_; ++counted_) column_ += (static_cast<unsigned char>(text_[counted_]) & 0xC0u) != 0x80u;
    // A command-line assignment is short: the whole of it is the better place to name.
    if (origin_ == JsonOrigin::override) return {source_, 0, 0, origin_};
    return {source_, line_, column_, origin_};
  }

  [[noreturn]] void fail(const std::string& message) { throw ConfigError(fault_text(position(), pointer_, message)); }

  std::string found() const {
    if (at_ >= text_.size()) return "the end of the text";
    const std::size_t length = json_detail::utf8_length(text_, at_);
    const auto byte = static_cast<unsigned char>(text_[at_]);
    if (length == 0 || byte < 0x20 || byte == 0x7F) return join_text("the byte ", static_cast<int>(byte));
    return join_text("'", text_.substr(at_, length), "'");
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool accept(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void skip_space() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
        counted_ = at_ + 1;
        column_ = 1;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        return;
      }
    }
  }

  Json parse_value(int level) {
    if (level >= deepest && (peek() == '[' || peek() == '{'))
      fail(join_text("more than ", deepest, " levels of nesting"));
    if (++values_ > most_values) fail(join_text("more than ", most_values, " values"));
    JsonPosition begin = position();
    Json value;
    switch (peek()) {
      case '{':
        value = parse_object(level);
        break;
      case '[':
        value = parse_array(level);
        break;
      case '"':
        value = Json(parse_string());
        break;
      case 't':
        value = parse_word("true", Json(true));
        break;
      case 'f':
        value = parse_word("false", Json(false));
        break;
      case 'n':
        value = parse_word("null", Json());
        break;
      default:
        if (peek() != '-' && !is_digit(peek())) fail("expected a value, found " + found());
        value = parse_number();
    }
    value.set_position(std::move(begin));
    return value;
  }

  Json parse_word(std::string_view word, Json value) {
    std::size_t length = 0;
    const auto letter = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
    };
    while (at_ + length < text_.size() && letter(text_[at_ + length])) ++length;
    if (text_.substr(at_, length) != word) {
      fail(join_text("expected true, false or null, found '", text_.substr(at_, length), "'"));
    }
    at_ += length;
    return value;
  }

  Json parse_array(int level) {
    Json array = Json::array();
    ++at_;
    skip_space();
    if (accept(']')) return array;
    const std::size_t parent = pointer_.size();
    while (true) {
      pointer_ += '/' + std::to_string(array.items_.size());
      array.items_.push_back(parse_value(level + 1));
      pointer_.resize(parent);
      skip_space();
      if (accept(']')) return array;
      if (peek() != ',') fail("expected ',' or ']' after an element, found " + found());
      ++at_;
      skip_space();
      if (peek() == ']') fail("trailing comma before ']'");
    }
  }

  Json parse_object(int level) {
    Json object = Json::object();
    std::unordered_set<std::string> keys;
    ++at_;
    skip_space();
    if (accept('}')) return object;
    const std::size_t parent = pointer_.size();
    while (true) {
      if (peek() != '"') fail("expected a key in double quotes, found " + found());
      JsonPosition key_position = position();
      std::string key = parse_string();
      const std::string pointer = child_pointer(pointer_, key);
      pointer_ = pointer;
      if (holds(object, keys, key)) throw ConfigError(fault_text(key_position, pointer_, "this key was given before"));
      skip_space();
      if (peek() != ':') fail("expected ':' after a key, found " + found());
      ++at_;
      skip_space();
      Json value = parse_value(level + 1);
      object.members_.push_back({std::move(key), std::move(value), std::move(key_position)});
      pointer_.resize(parent);
      skip_space();
      if (accept('}')) return object;
      if (peek() != ',') fail("expected ',' or '}' after a member, found " + found());
      ++at_;
      skip_space();
      if (peek() == '}') fail("trailing comma before '}'");
    }
  }

  static bool holds(const Json& object, std::unordered_set<std::string>& keys, const std::string& key) {
    if (object.members_.size() < few_members) return object.find(key) != nullptr;
    if (keys.empty()) {
      for (const JsonMember& member : object.members_) keys.insert(member.key);
    }
    return !keys.insert(key).second;
  }

  std::string parse_string() {
    const JsonPosition begin = position();
    std::string result;
    for (++at_; peek() != '"';) {
      if (at_ >= text_.size()) throw ConfigError(fault_text(begin, pointer_, "this string has no closing quote"));
      const auto byte = static_cast<unsigned char>(text_[at_]);
      if (byte == '\\') {
        parse_escape(result);
        continue;
      }
      if (byte < 0x20) {
        fail(byte == '\n' ? "a string cannot contain a line break; write \\n"
                          : join_text("a string cannot contain the control byte ", static_cast<int>(byte)));
      }
      const std::size_t length = json_detail::utf8_length(text_, at_);
      if (length == 0) fail(join_text("the byte ", static_cast<int>(byte), " is not valid UTF-8 here"));
      result.append(text_, at_, length);
      at_ += length;
    }
    ++at_;
    return result;
  }

  void parse_escape(std::string& out) {
    constexpr std::string_view letters = "\"\\/bfnrt";
    constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
    const char letter = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    const std::size_t index = letter == '\0' ? std::string_view::npos : letters.find(letter);
    if (index != std::string_view::npos) {
      out += meanings[index];
      at_ += 2;
      return;
    }
    if (letter != 'u') fail("unknown escape sequence in a string; known are \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
    unsigned code = parse_hex(at_ + 2);
    std::size_t length = 6;
    if (code >= 0xD800 && code <= 0xDBFF) {
      const bool paired = text_.substr(at_ + 6, 2) == "\\u";
      const unsigned low = paired ? parse_hex(at_ + 8) : 0;
      if (low < 0xDC00 || low > 0xDFFF) fail("the first half of a surrogate pair without its second");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      length = 12;
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
      fail("the second half of a surrogate pair without its first");
    }
    append_utf8(out, code);
    at_ += length;
  }

  unsigned parse_hex(std::size_t from) {
    unsigned code = 0;
    const std::string_view digits = from <= text_.size() ? text_.substr(from, 4) : std::string_view();
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() != 4 || result.ec != std::errc() || result.ptr != digits.data() + 4) {
      fail("\\u needs four hexadecimal digits");
    }
    return code;
  }

  std::size_t digits_from(std::size_t from, const char* place) {
    std::size_t end = from;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    if (end == from) {
      const JsonPosition begin = position();
      at_ = from;
      throw ConfigError(
          fault_text(begin, pointer_, join_text("expected a digit ", place, " of a number, found ", found())));
    }
    return end;
  }

  Json parse_number() {
    const std::size_t first = at_ + (peek() == '-' ? 1 : 0);
    std::size_t end = digits_from(first, "at the beginning");
    if (end - first > 1 && text_[first] == '0') fail("a number cannot begin with 0 followed by digits");
    bool integral = true;
    if (end < text_.size() && text_[end] == '.') {
      integral = false;
      end = digits_from(end + 1, "after the point");
    }
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      integral = false;
      ++end;
      if (end < text_.size() && (text_[end] == '+' || text_[end] == '-')) ++end;
      end = digits_from(end, "in the exponent");
    }
    const std::string_view written = text_.substr(at_, end - at_);
    Json value(integral ? Json::Kind::integer : Json::Kind::number);
    value.text_ = written;
    const char* last = written.data() + written.size();
    const auto result = integral ? std::from_chars(written.data(), last, value.integer_)
                                 : std::from_chars(written.data(), last, value.number_);
    if (result.ec != std::errc()) {
      fail(join_text("the number ", written, " does not fit ", integral ? "a 64-bit integer" : "a double"));
    }
    at_ = end;
    return value;
  }

  std::string_view text_;
  std::shared_ptr<const std::string> source_;
  JsonOrigin origin_;
  std::string pointer_;
  std::size_t at_ = 0;
  std::size_t counted_ = 0;
  std::int64_t values_ = 0;
  int line_ = 1;
  int column_ = 1;
};

Json parse_json(std::string_view text, std::string_view source_name, JsonOrigin origin) {
  return JsonParser(text, source_name, origin).parse();
}

Json parse_json(std::string_view text, std::string_view source_name) {
  return parse_json(text, source_name, JsonOrigin::file);
}

Json read_json(const std::string& path, ReadLimit limit) { return parse_json(read_text(path, limit), path); }

}  // namespace hearth
