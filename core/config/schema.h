// SPDX-License-Identifier: Apache-2.0
// The keys of an object as reading, schema and reference page see them: without the type of the struct that they fill.
// Described by Fields<T> (core/config/config.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/component.h"
#include "core/io/json_text.h"

namespace hearth {

struct Reading;
class FieldList;

/// A word that may stand in place of a number, and the number that is stored for it.
struct Word {
  std::string text;
  double value = 0;
};

/// What a number, and a list, may be. For a list the bounds are those of every element.
struct HEARTH_API Limits {
  std::optional<double> min{};    ///< at least
  std::optional<double> above{};  ///< more than
  std::optional<double> max{};    ///< at most
  std::optional<double> below{};  ///< less than
  std::size_t min_items = 0;
  std::size_t max_items = std::numeric_limits<std::size_t>::max();
  std::vector<Word> words{};  ///< as in {.words = {{"auto", 0}}}

  // Compiled once, not at every field that is described.
  ~Limits();
};

/// One described key, with the type of the struct it belongs to erased.
struct HEARTH_API Field {
  enum class Kind : std::uint8_t { boolean, integer, number, text, choice, object, component };

  std::string name;
  std::string doc;
  Kind kind = Kind::boolean;
  bool list = false;      ///< an array of values of that kind
  bool nullable = false;  ///< null is accepted
  bool required = false;
  bool words_are_numbers = false;  ///< words are stored as numbers, not as the text they are
  Limits limits;                   ///< its words are a choice's choices
  double least = 0, greatest = 0;  ///< what the member's type holds, for numbers and integers
  std::shared_ptr<const Schema> object;
  std::string shorthand;  ///< of an object: the key that a value stands for which is no object; empty for none
  std::string formerly;   ///< a name that the key had in an earlier release and that is still read; empty for none
  const ComponentTypes* types = nullptr;
  std::ptrdiff_t offset = 0;  ///< of the member in its struct, in bytes
  void* member_of(void* options) const { return static_cast<std::byte*>(options) + offset; }
  /// The member's component of that index, of so many; null if there are to be none.
  AnyComponent* (*component)(void* member, std::size_t count, std::size_t index) = nullptr;
  void (*store)(void* member, const Json& value) = nullptr;
  Json (*load)(const void* member) = nullptr;

  /// "a number > 0", "an array of 2 integers", "one of a, b".
  std::string expected() const;
};

/// What is found while a document is read.
struct HEARTH_API Reading {
  std::vector<std::string> faults{};
  std::vector<std::string> hints{};  ///< a line for each key that was given by its former name
  const Schema* schema = nullptr;    ///< of the first object that was read: what keys are suggested from
  const Json* root = nullptr;        ///< that object

  void add(const Json& node, const std::string& pointer, const std::string& message);
  /// ConfigError with every fault, one a line, if there are any.
  void require_no_faults() const;
};

/// The keys of one object: a struct's fields with the struct's type erased. The keys "$schema" and "comment" are
/// accepted beside them and ignored.
class HEARTH_API Schema {
 public:
  const std::vector<Field>& fields() const { return fields_; }
  const Field* find(std::string_view name) const;
  /// The field that had this name in an earlier release; null if there is none.
  const Field* find_renamed(std::string_view name) const;
  std::vector<std::string> names() const;

  /// Checks a node and stores its values in a struct, which holds the defaults. The result is the node with every key,
  /// in the order of the description; defaults have JsonOrigin::defaulted. Faults are added to the reading's;
  /// `is_component` says that a "type" key has been dealt with.
  Json read(void* target, const Json& node, const std::string& pointer, Reading& reading,
            bool is_component = false) const;
  /// As read() of a whole document or a part of one. ConfigError with every fault, one a line, as
  /// `FILE:LINE:COL: /pointer: message`; `pointer` is where the node is within its document.
  Json parse(void* target, const Json& node, const std::string& pointer = "") const;
  /// The struct as an object of all its fields.
  Json load(const void* source) const;
  /// A new struct with its default values.
  std::shared_ptr<void> make_defaults() const { return make_(); }

 private:
  friend class FieldList;
  Field& add(Field field);

  std::vector<Field> fields_;
  std::shared_ptr<void> (*make_)() = nullptr;
  std::vector<std::function<std::string(const void*)>> rules_;
};

}  // namespace hearth
