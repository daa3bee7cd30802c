// SPDX-License-Identifier: Apache-2.0
// Builds values from the events of nlohmann/json's parser, which reads through an iterator that counts: that tells
// where each value begins. What it lets pass (repeated keys, large integers, depth) is refused here.
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "core/io/file.h"
#include "core/io/json_text.h"
#include "core/io/utf8.h"

namespace hearth {
namespace {

constexpr std::size_t deepest = 64;
// A value takes a hundred times the memory of the two bytes that it may be in a text.
constexpr std::int64_t max_values = std::int64_t{1} << 22;
// Above this many members a hash set finds duplicate keys; below it a scan is cheaper.
constexpr std::size_t few_members = 16;
constexpr std::string_view decimal_digits = "0123456789";
constexpr std::string_view space = " \t\r\n";
constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

/// Reads a text and counts the bytes that were read.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  pointer at;
  std::size_t* count;

  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    ++at;
    ++*count;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at == other.at; }
  bool operator!=(const CountingIterator& other) const { return at != other.at; }
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

/// Receives the events of the parser.
class JsonReader {
 public:
  JsonReader(std::string_view text, std::string_view source_name, JsonOrigin origin)
      : text_(text), source_(std::make_shared<const std::string>(source_name)), origin_(origin) {
    // Some editors begin a file with a byte-order mark.
    if (text_.starts_with(byte_order_mark)) end_ = counted_ = byte_order_mark.size();
  }

  Json read() {
    const char* const last = text_.data() + text_.size();
    nlohmann::json::sax_parse(CountingIterator{text_.data(), &read_}, CountingIterator{last, &read_}, this);
    // The parser takes a zero byte for the end of its input.
    if (past_space(end_) < text_.size()) explain(0, false);
    return std::move(root_);
  }

  bool null() { return word("null", Json()); }
  bool boolean(bool value) { return word(value ? "true" : "false", Json(value)); }
  bool number_integer(std::int64_t value) { return number(Json(value)); }
  bool number_unsigned(std::uint64_t value) { return number(Json(static_cast<std::int64_t>(value)), value >> 63 == 0); }
  bool number_float(double value, const std::string&) { return number(Json(value)); }
  bool string(std::string& value) { return add(Json(std::move(value)), read_); }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    Json& object = *open_.back().value;
    JsonPosition begin = position(token());
    if (holds(open_.back(), name))
      throw ConfigError(fault_text(begin, child_pointer(pointer(false), name), "this key was given before"));
    object.members().push_back({std::move(name), {}, std::move(begin)});
    end_ = read_;
    last_ = Event::key;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    constexpr int number_overflow = 406;
    std::string_view what = error.what();
    what = what.substr(0, what.find("; last read"));
    escape_ = what.find("U+D800..U+DBFF must") != what.npos   ? "the first half of a surrogate pair without its second"
              : what.find("U+DC00..U+DFFF must") != what.npos ? "the second half of a surrogate pair without its first"
              : what.find("hex digits") != what.npos
                  ? "\\u needs four hexadecimal digits"
                  : "unknown escape sequence in a string; known are \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX";
    explain(position - 1, error.id == number_overflow);
  }

 private:
  enum class Event { none, opened, key, value };
  struct Open {
    Json* value;
    std::unordered_set<std::string> keys;  // of an object with many members
  };

  /// Positions are asked for from the beginning to the end, so that a long text costs linear time.
  JsonPosition position(std::size_t at) {
    for (; counted_ < at; ++counted_) {
      column_ += utf8::begins_character(text_[counted_]);
      if (text_[counted_] == '\n') {
        ++line_;
        column_ = 1;
      }
    }
    // A command-line assignment is short: the whole of it is the better place to name.
    if (origin_ == JsonOrigin::override) return {source_, 0, 0, origin_};
    return {source_, line_, column_, origin_};
  }

  /// Of the value that is read, or of the container that it would be in.
  std::string pointer(bool of_value) const {
    std::string result;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      const Json& value = *open_[i].value;
      const bool is_last = i + 1 == open_.size();
      if (is_last && !of_value) break;
      result = value.is_array() ? child_pointer(result, value.size() - (is_last ? 0 : 1))
                                : child_pointer(result, value.members().back().key);
    }
    return result;
  }

  [[noreturn]] void fail(std::size_t at, const std::string& message, bool of_value = true) {
    throw ConfigError(fault_text(position(at), pointer(of_value), message));
  }

  std::size_t past_space(std::size_t at) const { return std::min(text_.find_first_not_of(space, at), text_.size()); }
  /// Where the token begins whose event this is.
  std::size_t token() const { return text_.find_first_not_of(" \t\r\n,:", end_); }

  std::string found(std::size_t at) const {
    if (at >= text_.size()) return "the end of the text";
    const auto [code, bytes] = utf8::character_at(text_, at);
    if (bytes == 0 || code < 0x20 || code == 0x7F)
      return join_text("the byte ", static_cast<int>(static_cast<unsigned char>(text_[at])));
    return join_text("'", text_.substr(at, bytes), "'");
  }

  std::string_view word_at(std::size_t at) const {
    constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    return text_.substr(at, std::min(text_.find_first_not_of(letters, at), text_.size()) - at);
  }

  bool word(std::string_view word, Json&& value) {
    if (word_at(token()) != word) unknown_word(token());
    return add(std::move(value), read_);
  }
  [[noreturn]] void unknown_word(std::size_t at) {
    fail(at, join_text("expected true, false or null, found '", word_at(at), "'"));
  }

  /// The end of a number, whose form has been checked.
  std::size_t number_end(std::size_t at) const {
    const auto past_digits = [&](std::size_t from) {
      return std::min(text_.find_first_not_of(decimal_digits, from), text_.size());
    };
    std::size_t end = past_digits(at + (text_[at] == '-' ? 1 : 0));
    if (end < text_.size() && text_[end] == '.') end = past_digits(end + 1);
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) end = past_digits(end + 2);
    return end;
  }

  bool number(Json&& value, bool fits = true) {
    const std::size_t begin = token();
    const std::size_t end = number_end(begin);
    const std::string_view written = text_.substr(begin, end - begin);
    const std::size_t first = written[0] == '-' ? 1 : 0;
    if (written.size() > first + 1 && written[first] == '0' && is_digit(written[first + 1]))
      fail(begin, "a number cannot begin with 0 followed by digits");
    const bool integral = written.find_first_of(".eE") == written.npos;
    // The parser takes a larger integer for a double, and a number too small for one for 0.
    const bool vanished = value.is_number() && value.as_number() == 0 &&
                          written.substr(0, written.find_first_of("eE")).find_first_of("123456789") != written.npos;
    if (!fits || vanished || integral != (value.kind() == Json::Kind::integer)) too_large(written, begin);
    value.written_ = written;
    return add(std::move(value), end);
  }
  [[noreturn]] void too_large(std::string_view written, std::size_t begin) {
    const bool integral = written.find_first_of(".eE") == written.npos;
    fail(begin, join_text("the number ", written, " does not fit ", integral ? "a 64-bit integer" : "a double"));
  }

  /// Puts a value where it belongs and returns its position.
  Json& place(Json&& value) {
    const std::size_t begin = token();
    if (++values_ > max_values) fail(begin, join_text("more than ", max_values, " values"));
    value.set_position(position(begin));
    if (open_.empty()) return root_ = std::move(value);
    Json& parent = *open_.back().value;
    if (parent.is_array()) return parent.items().emplace_back(std::move(value));
    return parent.members().back().value = std::move(value);
  }

  bool add(Json&& value, std::size_t end) {
    place(std::move(value));
    end_ = end;
    last_ = Event::value;
    return true;
  }

  bool open(Json&& value) {
    if (open_.size() >= deepest) fail(token(), join_text("more than ", deepest, " levels of nesting"));
    open_.push_back({&place(std::move(value)), {}});
    end_ = read_;
    last_ = Event::opened;
    return true;
  }

  bool close() {
    open_.pop_back();
    end_ = read_;
    last_ = Event::value;
    return true;
  }

  static bool holds(Open& object, const std::string& key) {
    const std::vector<JsonMember>& members = object.value->members();
    if (members.size() < few_members) return object.value->find(key) != nullptr;
    if (object.keys.empty()) {
      for (const JsonMember& member : members) object.keys.insert(member.key);
    }
    return !object.keys.insert(key).second;
  }

  /// Says what is wrong behind the last event. `bad` is the first byte that the parser could not take.
  [[noreturn]] void explain(std::size_t bad, bool overflow) {
    std::size_t at = past_space(end_);
    const char next = at < text_.size() ? text_[at] : '\0';
    const bool in_array = !open_.empty() && open_.back().value->is_array();
    bool is_key = last_ == Event::opened && !in_array;
    if (last_ == Event::key) {
      if (next != ':') fail(at, "expected ':' after a key, found " + found(at));
      at = past_space(at + 1);
    } else if (last_ == Event::value) {
      if (open_.empty()) fail(at, "expected the end of the text after the value, found " + found(at));
      const std::string close = in_array ? "']'" : "'}'";
      if (next != ',')
        fail(at,
             join_text("expected ',' or ", close, in_array ? " after an element" : " after a member", ", found ",
                       found(at)),
             false);
      at = past_space(at + 1);
      if (at < text_.size() && text_[at] == close[1]) fail(at, "trailing comma before " + close, false);
      is_key = !in_array;
    }
    const char first = at < text_.size() ? text_[at] : '\0';
    if (first == '"') explain_string(at, bad, !is_key);
    if (is_key) fail(at, "expected a key in double quotes, found " + found(at), false);
    if (overflow) too_large(text_.substr(at, number_end(at) - at), at);
    if (first == '-' || is_digit(first)) {
      const char before = text_[bad - 1];
      fail(at, join_text("expected a digit ",
                         bad == at + 1   ? "at the beginning"
                         : before == '.' ? "after the point"
                                         : "in the exponent",
                         " of a number, found ", found(bad)));
    }
    if (first == 't' || first == 'f' || first == 'n') unknown_word(at);
    fail(at, "expected a value, found " + found(at));
  }

  [[noreturn]] void explain_string(std::size_t begin, std::size_t bad, bool of_value) {
    const auto byte = [&](std::size_t at) { return static_cast<int>(static_cast<unsigned char>(text_[at])); };
    if (const std::size_t fault = utf8::find_fault(text_, begin); fault <= bad && fault < text_.size())
      fail(fault, join_text("the byte ", byte(fault), " is not valid UTF-8 here"), of_value);
    if (bad >= text_.size()) fail(begin, "this string has no closing quote", of_value);
    if (text_[bad] == '\n') fail(bad, "a string cannot contain a line break; write \\n", of_value);
    if (byte(bad) < 0x20) fail(bad, join_text("a string cannot contain the control byte ", byte(bad)), of_value);
    fail(text_.rfind('\\', bad - 1), escape_, of_value);
  }

  std::string_view text_;
  std::shared_ptr<const std::string> source_;
  JsonOrigin origin_;
  Json root_;
  std::vector<Open> open_;
  Event last_ = Event::none;
  const char* escape_ = "";  // what is wrong with an escape, if that is it
  std::size_t read_ = 0;     // bytes that the parser has read
  std::size_t end_ = 0;      // of the last event's token
  std::size_t counted_ = 0;
  std::int64_t values_ = 0;
  int line_ = 1;
  int column_ = 1;
};

Json parse_json(std::string_view text, std::string_view source_name, JsonOrigin origin) {
  return JsonReader(text, source_name, origin).read();
}

Json parse_json(std::string_view text, std::string_view source_name) {
  return parse_json(text, source_name, JsonOrigin::file);
}

Json read_json(const std::string& path, ReadLimit limit) { return parse_json(read_text(path, limit), path); }

}  // namespace hearth
