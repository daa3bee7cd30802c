// SPDX-License-Identifier: Apache-2.0
// The JSON value type and the writer.
#include "core/io/json_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "core/io/printable.h"

namespace hearth {
namespace {

constexpr std::size_t longest_quote = 60;

std::string shortest_text(double value) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return std::string(buffer, end);
}

std::string number_text(double value) {
  if (!std::isfinite(value)) return "null";
  std::string text = shortest_text(value);
  // Keeps a double a double when the text is read again.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void write_string(std::string& out, std::string_view text) {
  constexpr std::string_view escaped = "\"\\\b\f\n\r\t";
  constexpr std::string_view letters = "\"\\bfnrt";
  constexpr char hex[] = "0123456789abcdef";
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const std::size_t special = escaped.find(text[at]);
    if (special != std::string_view::npos) {
      out += '\\';
      out += letters[special];
      ++at;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += hex[byte >> 4];
      out += hex[byte & 15];
      ++at;
    } else if (const std::size_t length = json_detail::utf8_length(text, at)) {
      out.append(text, at, length);
      at += length;
    } else {
      out += "\xEF\xBF\xBD";
      ++at;
    }
  }
  out += '"';
}

bool is_scalar(const Json& value) { return !value.is_array() && !value.is_object(); }

class Writer {
 public:
  explicit Writer(int indent) : indent_(std::max(indent, 0)) {}

  void write(const Json& value, int level) {
    switch (value.kind()) {
      case Json::Kind::null:
        text_ += "null";
        break;
      case Json::Kind::boolean:
        text_ += value.as_boolean() ? "true" : "false";
        break;
      case Json::Kind::integer:
        text_ += std::to_string(value.as_integer());
        break;
      case Json::Kind::number:
        text_ += number_text(value.as_number());
        break;
      case Json::Kind::string:
        write_string(text_, value.as_string());
        break;
      case Json::Kind::array:
        write_array(value, level);
        break;
      case Json::Kind::object:
        write_object(value, level);
        break;
    }
  }

  std::string take() { return std::move(text_); }

 private:
  void new_line(int level) {
    if (indent_ == 0) return;
    text_ += '\n';
    text_.append(static_cast<std::size_t>(indent_) * static_cast<std::size_t>(level), ' ');
  }

  void write_array(const Json& value, int level) {
    const bool one_line = std::all_of(value.items().begin(), value.items().end(), is_scalar);
    text_ += '[';
    bool first = true;
    for (const Json& item : value.items()) {
      if (!first) text_ += one_line && indent_ > 0 ? ", " : ",";
      first = false;
      if (!one_line) new_line(level + 1);
      write(item, level + 1);
    }
    if (!one_line) new_line(level);
    text_ += ']';
  }

  void write_object(const Json& value, int level) {
    text_ += '{';
    bool first = true;
    for (const JsonMember& member : value.members()) {
      if (!first) text_ += ',';
      first = false;
      new_line(level + 1);
      write_string(text_, member.key);
      text_ += indent_ > 0 ? ": " : ":";
      write(member.value, level + 1);
    }
    if (!first) new_line(level);
    text_ += '}';
  }

  std::string text_;
  int indent_;
};

}  // namespace

const char* name_of(JsonOrigin origin) {
  switch (origin) {
    case JsonOrigin::code:
      return "code";
    case JsonOrigin::file:
      return "file";
    case JsonOrigin::override:
      return "--set";
    case JsonOrigin::defaulted:
      return "default";
  }
  return "code";
}

std::string JsonPosition::text() const {
  if (!source) return "";
  if (line == 0) return *source;
  return join_text(*source, ":", line, ":", column);
}

Json::Json() = default;
Json::Json(Kind kind) : kind_(kind) {}
Json::Json(std::string value) : kind_(Kind::string), text_(std::move(value)) {}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

Json Json::from_unsigned(std::uint64_t value) {
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  HEARTH_CHECK(UsageError, value <= largest, "json: the integer ", value, " is above the largest that can be stored, ",
               largest, "; store it as a string");
  return Json(static_cast<std::int64_t>(value));
}

void Json::expect(bool matches, const char* expected) const {
  if (matches) return;
  const std::string where = position_.text();
  throw ConfigError(join_text(where.empty() ? "json" : where, ": expected ", expected, ", found ", describe()));
}

bool Json::is_integer() const {
  constexpr double exact = 9007199254740992.0;  // 2^53: beyond it a double does not tell neighbours apart
  if (kind_ == Kind::integer) return true;
  return kind_ == Kind::number && std::trunc(number_) == number_ && std::abs(number_) <= exact;
}

bool Json::as_boolean() const {
  expect(is_boolean(), "true or false");
  return integer_ != 0;
}

std::int64_t Json::as_integer() const {
  expect(is_integer(), "an integer");
  return kind_ == Kind::integer ? integer_ : static_cast<std::int64_t>(number_);
}

double Json::as_number() const {
  expect(is_number(), "a number");
  return kind_ == Kind::integer ? static_cast<double>(integer_) : number_;
}

const std::string& Json::as_string() const {
  expect(is_string(), "a string");
  return text_;
}

const std::vector<Json>& Json::items() const {
  expect(is_array(), "an array");
  return items_;
}

std::vector<Json>& Json::items() {
  expect(is_array(), "an array");
  return items_;
}

const std::vector<JsonMember>& Json::members() const {
  expect(is_object(), "an object");
  return members_;
}

std::vector<JsonMember>& Json::members() {
  expect(is_object(), "an object");
  return members_;
}

std::size_t Json::size() const {
  expect(is_array() || is_object(), "an array or an object");
  return is_array() ? items_.size() : members_.size();
}

const Json* Json::find(std::string_view key) const {
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const JsonMember& m) { return m.key == key; });
  return found == members_.end() ? nullptr : &found->value;
}

Json* Json::find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).find(key)); }

const Json& Json::at(std::string_view key) const {
  expect(is_object(), "an object");
  if (const Json* value = find(key)) return *value;
  std::string known;
  for (const JsonMember& member : members_) known += (known.empty() ? "" : ", ") + member.key;
  const std::string where = position_.text();
  throw ConfigError(join_text(where.empty() ? "json" : where, ": no member \"", key,
                              "\"; there are: ", known.empty() ? "none" : known));
}

const Json& Json::at(std::size_t index) const {
  expect(is_array(), "an array");
  HEARTH_CHECK(ConfigError, index < items_.size(), position_.source ? position_.text() : std::string("json"),
               ": element ", index, " of an array of ", items_.size());
  return items_[index];
}

Json& Json::set(std::string_view key, Json value) { return set(key, std::move(value), {}); }

Json& Json::set(std::string_view key, Json value, JsonPosition key_position) {
  expect(is_object(), "an object");
  if (Json* present = find(key)) {
    *present = std::move(value);
  } else {
    members_.push_back({std::string(key), std::move(value), std::move(key_position)});
  }
  return *this;
}

Json& Json::push_back(Json value) {
  expect(is_array(), "an array");
  items_.push_back(std::move(value));
  return *this;
}

std::string Json::describe() const {
  switch (kind_) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return integer_ != 0 ? "true" : "false";
    case Kind::integer:
      return text_.empty() ? std::to_string(integer_) : text_;
    case Kind::number:
      return text_.empty() ? shortest_text(number_) : text_;
    case Kind::string:
      break;
    case Kind::array:
      return items_.empty() ? "an empty array" : "an array";
    case Kind::object:
      return "an object";
  }
  std::size_t shown = 0;
  while (shown < text_.size() && shown < longest_quote)
    shown += std::max(json_detail::utf8_length(text_, shown), std::size_t{1});
  std::string quoted;
  write_string(quoted, text_.substr(0, shown));
  return "the string " + quoted + (shown < text_.size() ? "..." : "");
}

bool Json::operator==(const Json& other) const {
  if (is_number() && other.is_number()) {
    return kind_ == Kind::integer && other.kind_ == Kind::integer ? integer_ == other.integer_
                                                                  : as_number() == other.as_number();
  }
  if (kind_ != other.kind_) return false;
  if (kind_ == Kind::object) {
    return members_.size() == other.members_.size() &&
           std::all_of(members_.begin(), members_.end(), [&](const JsonMember& member) {
             const Json* same = other.find(member.key);
             return same && member.value == *same;
           });
  }
  return integer_ == other.integer_ && text_ == other.text_ && items_ == other.items_;
}

std::string to_text(const Json& value, int indent) {
  Writer writer(indent);
  writer.write(value, 0);
  return writer.take();
}

std::string child_pointer(std::string_view pointer, std::string_view key) {
  std::string result(pointer);
  result += '/';
  for (const char c : key) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

std::string child_pointer(std::string_view pointer, std::size_t index) { return join_text(pointer, "/", index); }

std::string fault_text(const JsonPosition& position, std::string_view pointer, std::string_view message) {
  const std::string where = position.text();
  return printable(join_text(where, where.empty() ? "" : ": ", pointer.empty() ? "/" : pointer, ": ", message));
}

}  // namespace hearth
