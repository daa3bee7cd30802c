// SPDX-License-Identifier: Apache-2.0
// JSON values with source positions, read strictly (RFC 8259) and written by nlohmann/json. Configurations, metrics,
// manifests and run records all use this one type; positions make it possible to point at the character that is wrong.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/error.h"
#include "core/io/file.h"

namespace hearth {

/// Who supplied a value.
enum class JsonOrigin : std::uint8_t { code, file, override, defaulted };
/// "code", "file", "--set" or "default".
HEARTH_API const char* name_of(JsonOrigin origin);

/// Where a value begins in the text it was read from.
struct HEARTH_API JsonPosition {
  std::shared_ptr<const std::string>
      source;      ///< file name, or the whole `--set` assignment; null for values made in code
  int line = 0;    ///< from 1
  int column = 0;  ///< from 1, in code points
  JsonOrigin origin = JsonOrigin::code;
  /// "run.json:3:7", "--set optimizer.lr=0.1", or "" for values that were not read from a text.
  std::string text() const;
};

struct JsonMember;

/// One JSON value. Objects keep the order of insertion; integers are exact 64-bit values, any other number is a double.
/// The accessors throw ConfigError, with the position, if the value is of another kind.
class HEARTH_API Json {
 public:
  enum class Kind : std::uint8_t { null, boolean, integer, number, string, array, object };

  Json(std::nullptr_t = nullptr);
  Json(std::same_as<bool> auto value) : Json(from_boolean(value)) {}
  Json(std::signed_integral auto value) : Json(from_integer(value)) {}
  /// UsageError for a value above 2^63 - 1.
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) Json(T value) : Json(from_unsigned(value)) {}
  Json(std::floating_point auto value) : Json(from_number(static_cast<double>(value))) {}
  Json(std::string value);
  Json(std::string_view value) : Json(std::string(value)) {}
  Json(const char* value) : Json(std::string(value)) {}
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  /// An empty array; an empty object.
  static Json array();
  static Json object();
  /// An array of the values of a range.
  template <class Range>
  static Json array_of(const Range& values) {
    Json result = array();
    for (const auto& value : values) result.push_back(Json(value));
    return result;
  }

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  bool is_null() const { return kind() == Kind::null; }
  bool is_boolean() const { return kind() == Kind::boolean; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_array() const { return kind() == Kind::array; }
  bool is_object() const { return kind() == Kind::object; }
  /// An integer or any other number.
  bool is_number() const { return kind() == Kind::integer || kind() == Kind::number; }
  /// A number without fractional part that a 64-bit integer holds exactly: 3, 3.0, 1e6.
  bool is_integer() const;

  bool as_boolean() const;
  std::int64_t as_integer() const;
  double as_number() const;
  const std::string& as_string() const;
  /// The elements of an array.
  const std::vector<Json>& items() const;
  std::vector<Json>& items();
  /// The members of an object, in order.
  const std::vector<JsonMember>& members() const;
  std::vector<JsonMember>& members();
  /// Number of elements or members.
  std::size_t size() const;
  /// The member's value, or null if there is no such member (or this is no object).
  const Json* find(std::string_view key) const;
  Json* find(std::string_view key);
  /// The member's value; ConfigError, naming the members there are, if it is missing.
  const Json& at(std::string_view key) const;
  /// The element; ConfigError outside the array.
  const Json& at(std::size_t index) const;

  /// Sets or replaces a member of an object; returns this value, to chain.
  Json& set(std::string_view key, Json value);
  /// As set(), telling where the key itself was written.
  Json& set(std::string_view key, Json value, JsonPosition key_position);
  /// Appends to an array; returns this value, to chain.
  Json& push_back(Json value);

  const JsonPosition& position() const { return position_; }
  void set_position(JsonPosition position) { position_ = std::move(position); }
  /// The value for messages: `the string "abc"`, `2.5` (as it was written), `an array`, `null`.
  std::string describe() const;

  /// Same value; 1 and 1.0 are equal, the order of members does not count, positions neither.
  bool operator==(const Json& other) const;

 private:
  friend class JsonReader;
  // A constructor of the variant needs the whole JsonMember, so none is called in this header.
  static Json from_boolean(bool value);
  static Json from_integer(std::int64_t value);
  static Json from_unsigned(std::uint64_t value);
  static Json from_number(double value);
  template <class T>
  const T& get(const char* expected) const;
  [[noreturn]] void refuse(const std::string& message) const;

  // In the order of Kind.
  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, std::vector<Json>, std::vector<JsonMember>>
      value_;
  std::string written_;  // of a number that was read its text
  JsonPosition position_;
};

/// A key and its value.
struct JsonMember {
  std::string key;
  Json value;
  JsonPosition key_position;
  bool operator==(const JsonMember& other) const { return key == other.key && value == other.value; }
};

/// Parses one JSON text. Strict: no comments, trailing commas, duplicate keys, bad UTF-8, integers beyond 64 bits,
/// numbers beyond a double, nor more than 64 levels or 2^22 values. A fault is a ConfigError `SOURCE:LINE:COL:
/// /pointer: message`.
HEARTH_API Json parse_json(std::string_view text, std::string_view source_name);

/// As parse_json, for text that came from somewhere other than a file: every node gets this origin.
HEARTH_API Json parse_json(std::string_view text, std::string_view source_name, JsonOrigin origin);

/// Parses a file; errors as of read_text() and parse_json().
HEARTH_API Json read_json(const std::string& path, ReadLimit limit = small_file);

/// The JSON text of a value. indent 0 gives one line without spaces, otherwise nested values are indented by that many
/// spaces and arrays of scalars stay on one line. Doubles are the shortest text that reads back as the same double;
/// NaN and infinities, which JSON does not have, become null; bytes that are not UTF-8 become U+FFFD.
HEARTH_API std::string to_text(const Json& value, int indent = 0);

/// The JSON pointer of a child: child_pointer("/a", "b/c") is "/a/b~1c".
HEARTH_API std::string child_pointer(std::string_view pointer, std::string_view key);
HEARTH_API std::string child_pointer(std::string_view pointer, std::size_t index);

/// "POSITION: /pointer: message", leaving out a position there is none of; the root's pointer is shown as "/".
HEARTH_API std::string fault_text(const JsonPosition& position, std::string_view pointer, std::string_view message);

}  // namespace hearth
