// SPDX-License-Identifier: Apache-2.0
// The JSON value type and its text.
#include "core/io/json_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/io/printable.h"
#include "core/io/utf8.h"

namespace hearth {
namespace {

constexpr std::size_t longest_quote = 60;

/// The shortest text that reads back as the same double, which nlohmann/json's is not always.
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

std::string string_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string scalar_text(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::boolean:
      return value.as_boolean() ? "true" : "false";
    case Json::Kind::integer:
      return std::to_string(value.as_integer());
    case Json::Kind::number:
      return number_text(value.as_number());
    case Json::Kind::string:
      return string_text(value.as_string());
    default:
      return "null";
  }
}

bool is_scalar(const Json& value) { return !value.is_array() && !value.is_object(); }

/// Appends a value; lines within it are indented by `indent` spaces at each level, none for one line.
void write(std::string& out, const Json& value, std::size_t indent, std::size_t level) {
  if (is_scalar(value)) {
    out += scalar_text(value);
    return;
  }
  const bool is_list = value.is_array();
  const bool one_line =
      indent == 0 || (is_list ? std::all_of(value.items().begin(), value.items().end(), is_scalar) : value.size() == 0);
  const auto separate = [&](bool first, std::size_t spaces) {
    if (!first) out += one_line && indent > 0 ? ", " : ",";
    if (!one_line) out.append(1, '\n').append(spaces, ' ');
  };
  out += is_list ? '[' : '{';
  for (std::size_t i = 0; i < value.size(); ++i) {
    separate(i == 0, indent * (level + 1));
    if (!is_list) out += string_text(value.members()[i].key) + (indent > 0 ? ": " : ":");
    write(out, is_list ? value.items()[i] : value.members()[i].value, indent, level + 1);
  }
  if (!one_line) separate(true, indent * level);
  out += is_list ? ']' : '}';
}

}  // namespace

const char* name_of(JsonOrigin origin) {
  constexpr const char* names[] = {"code", "file", "--set", "default"};
  return names[static_cast<std::size_t>(origin)];
}

std::string JsonPosition::text() const {
  if (!source) return "";
  return line == 0 ? *source : join_text(*source, ":", line, ":", column);
}

// The alternative is copied by itself: where memory runs out within the copy constructor of std::variant, g++ 12
// destroys an alternative that is not there.
Json::Json(const Json& other) : written_(other.written_), position_(other.position_) {
  std::visit(
      [this](const auto& from) {
        auto copy = from;
        value_ = std::move(copy);
      },
      other.value_);
}
Json::Json(std::nullptr_t) {}
Json::Json(std::string value) : value_(std::move(value)) {}
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json& other) { return *this = Json(other); }
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

Json Json::array() {
  Json result;
  result.value_.emplace<std::vector<Json>>();
  return result;
}

Json Json::object() {
  Json result;
  result.value_.emplace<std::vector<JsonMember>>();
  return result;
}

Json Json::from_boolean(bool value) {
  Json json;
  json.value_ = value;
  return json;
}

Json Json::from_integer(std::int64_t value) {
  Json json;
  json.value_ = value;
  return json;
}

Json Json::from_number(double value) {
  Json json;
  json.value_ = value;
  return json;
}

Json Json::from_unsigned(std::uint64_t value) {
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  HEARTH_CHECK(UsageError, value <= largest, "json: the integer ", value, " is above the largest that can be stored, ",
               largest, "; store it as a string");
  return Json(static_cast<std::int64_t>(value));
}

void Json::refuse(const std::string& message) const {
  throw ConfigError(join_text(position_.source ? position_.text() : "json", ": ", message));
}

template <class T>
const T& Json::get(const char* expected) const {
  if (const T* const value = std::get_if<T>(&value_)) return *value;
  refuse(join_text("expected ", expected, ", found ", describe()));
}

bool Json::is_integer() const {
  constexpr double exact = 9007199254740992.0;  // 2^53: beyond it a double does not tell neighbours apart
  const double* const number = std::get_if<double>(&value_);
  return number ? std::trunc(*number) == *number && std::abs(*number) <= exact : kind() == Kind::integer;
}

bool Json::as_boolean() const { return get<bool>("true or false"); }

std::int64_t Json::as_integer() const {
  if (kind() == Kind::number && is_integer()) return static_cast<std::int64_t>(std::get<double>(value_));
  return get<std::int64_t>("an integer");
}

double Json::as_number() const {
  if (kind() == Kind::integer) return static_cast<double>(std::get<std::int64_t>(value_));
  return get<double>("a number");
}

const std::string& Json::as_string() const { return get<std::string>("a string"); }
const std::vector<Json>& Json::items() const { return get<std::vector<Json>>("an array"); }
std::vector<Json>& Json::items() { return const_cast<std::vector<Json>&>(std::as_const(*this).items()); }
const std::vector<JsonMember>& Json::members() const { return get<std::vector<JsonMember>>("an object"); }
std::vector<JsonMember>& Json::members() {
  return const_cast<std::vector<JsonMember>&>(std::as_const(*this).members());
}

std::size_t Json::size() const {
  return is_array() ? items().size() : get<std::vector<JsonMember>>("an array or an object").size();
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const auto found =
      std::find_if(members().begin(), members().end(), [&](const JsonMember& m) { return m.key == key; });
  return found == members().end() ? nullptr : &found->value;
}

Json* Json::find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).find(key)); }

const Json& Json::at(std::string_view key) const {
  std::string known;
  for (const JsonMember& member : members()) {
    if (member.key == key) return member.value;
    known += (known.empty() ? "" : ", ") + member.key;
  }
  refuse(join_text("no member \"", key, "\"; there are: ", known.empty() ? "none" : known));
}

const Json& Json::at(std::size_t index) const {
  if (index >= items().size()) refuse(join_text("element ", index, " of an array of ", items().size()));
  return items()[index];
}

Json& Json::set(std::string_view key, Json value) { return set(key, std::move(value), {}); }

Json& Json::set(std::string_view key, Json value, JsonPosition key_position) {
  if (Json* present = find(key)) {
    *present = std::move(value);
  } else {
    members().push_back({std::string(key), std::move(value), std::move(key_position)});
  }
  return *this;
}

Json& Json::push_back(Json value) {
  items().push_back(std::move(value));
  return *this;
}

std::string Json::describe() const {
  if (is_object()) return "an object";
  if (is_array()) return size() == 0 ? "an empty array" : "an array";
  if (!is_string()) {
    if (!written_.empty()) return written_;
    return kind() == Kind::number ? shortest_text(as_number()) : scalar_text(*this);
  }
  const std::string& text = as_string();
  std::size_t shown = 0;
  while (shown < text.size() && shown < longest_quote)
    shown += std::max(utf8::character_at(text, shown).bytes, std::size_t{1});
  return "the string " + string_text(text.substr(0, shown)) + (shown < text.size() ? "..." : "");
}

bool Json::operator==(const Json& other) const {
  if (is_number() && other.is_number() && kind() != other.kind()) return as_number() == other.as_number();
  if (!is_object() || !other.is_object()) return value_ == other.value_;
  return size() == other.size() && std::is_permutation(members().begin(), members().end(), other.members().begin());
}

std::string to_text(const Json& value, int indent) {
  std::string text;
  write(text, value, static_cast<std::size_t>(std::max(indent, 0)), 0);
  return text;
}

std::string child_pointer(std::string_view pointer, std::string_view key) {
  std::string result(pointer);
  result += '/';
  for (const char c : key) {
    if (c == '~' || c == '/')
      result += c == '~' ? "~0" : "~1";
    else
      result += c;
  }
  return result;
}

std::string child_pointer(std::string_view pointer, std::size_t index) { return join_text(pointer, "/", index); }

std::string fault_text(const JsonPosition& position, std::string_view pointer, std::string_view message) {
  const std::string where = position.text();
  return printable(join_text(where, where.empty() ? "" : ": ", pointer.empty() ? "/" : pointer, ": ", message));
}

}  // namespace hearth
