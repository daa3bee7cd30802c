// SPDX-License-Identifier: Apache-2.0
// Checking, assigning and resolving of configurations against their described fields.
#include "core/config/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/config/keys.h"
#include "core/nearest.h"

namespace hearth {
namespace {

bool is_ignored(std::string_view key) { return key == "$schema" || key == "comment"; }

std::vector<std::string> strings_of(const std::vector<Word>& words) {
  std::vector<std::string> strings;
  for (const Word& word : words) strings.push_back(word.text);
  return strings;
}

std::string joined(const std::vector<Word>& words) {
  std::string text;
  for (const Word& word : words) text += (text.empty() ? "" : ", ") + word.text;
  return text;
}

const Word* find_word(const Field& field, const Json& value) {
  if (!value.is_string()) return nullptr;
  const auto& words = field.limits.words;
  const auto found =
      std::find_if(words.begin(), words.end(), [&](const Word& w) { return w.text == value.as_string(); });
  return found == words.end() ? nullptr : &*found;
}

std::string plain_number(double value) {
  const Json number(value);
  return number.is_integer() ? join_text(number.as_integer()) : number.describe();
}

std::string bounds_text(const Limits& limits) {
  std::string text;
  const auto bound = [&](const char* sign, const std::optional<double>& value) {
    if (value) text += join_text(text.empty() ? " " : " and ", sign, " ", plain_number(*value));
  };
  bound(">=", limits.min);
  bound(">", limits.above);
  bound("<=", limits.max);
  bound("<", limits.below);
  return text;
}

bool within(const Limits& limits, double value) {
  return (!limits.min || value >= *limits.min) && (!limits.above || value > *limits.above) &&
         (!limits.max || value <= *limits.max) && (!limits.below || value < *limits.below);
}

std::string noun_of(const Field& field, bool plural) {
  switch (field.kind) {
    case Field::Kind::boolean:
      return "true or false";
    case Field::Kind::integer:
      return (plural ? "integers" : "an integer") + bounds_text(field.limits);
    case Field::Kind::number:
      return (plural ? "numbers" : "a number") + bounds_text(field.limits);
    case Field::Kind::text:
      return plural ? "strings" : "a string";
    case Field::Kind::choice:
      return "one of " + joined(field.limits.words);
    case Field::Kind::object:
      return field.shorthand.empty() ? "an object" : field.object->find(field.shorthand)->expected() + " or an object";
    case Field::Kind::component:
      return join_text(plural ? "objects" : "an object", " with \"type\" (", field.types->name(), ")");
  }
  return "";
}

// What one element of a list, or the value of any other field, should be.
std::string element_text(const Field& field, bool plural) {
  std::string text = noun_of(field, plural);
  if (field.kind == Field::Kind::choice) return text;
  for (const Word& word : field.limits.words) text += " or \"" + word.text + "\"";
  return text;
}

void refuse(const Field& field, const Json& node, const std::string& pointer, Reading& reading,
            const std::string& advice = "") {
  reading.add(node, pointer, join_text("expected ", element_text(field, false), ", found ", node.describe(), advice));
}

void check_integer_or_number(const Field& field, const Json& node, const std::string& pointer, Reading& reading) {
  const bool integral = field.kind == Field::Kind::integer;
  if (find_word(field, node)) return;
  if (node.is_string() && !field.limits.words.empty()) {
    const std::string meant = nearest(node.as_string(), strings_of(field.limits.words));
    return refuse(field, node, pointer, reading, meant.empty() ? "" : "; did you mean \"" + meant + "\"?");
  }
  const bool fits = (integral ? node.is_integer() : node.is_number()) && std::isfinite(node.as_number()) &&
                    within(field.limits, node.as_number());
  if (!fits) return refuse(field, node, pointer, reading);
  if (node.as_number() < field.least || node.as_number() > field.greatest)
    reading.add(node, pointer,
                join_text(node.describe(), " is outside what this key can hold, ", plain_number(field.least), " to ",
                          plain_number(field.greatest)));
}

void check_choice(const Field& field, const Json& node, const std::string& pointer, Reading& reading) {
  if (find_word(field, node)) return;
  if (!node.is_string()) return refuse(field, node, pointer, reading);
  const std::string meant = suggest(node.as_string(), strings_of(field.limits.words), "allowed are");
  reading.add(node, pointer, join_text("unknown value \"", node.as_string(), "\"; ", meant));
}

/// The object that a value stands for.
Json spelled_out(const Field& field, const Json& node) {
  if (field.shorthand.empty() || node.is_object()) return node;
  Json object = Json::object();
  object.set_position(node.position());
  return object.set(field.shorthand, node);
}

Json read_element(const Field& field, const Json& node, const std::string& pointer, Reading& reading, void* member,
                  std::size_t count = 1, std::size_t index = 0) {
  switch (field.kind) {
    case Field::Kind::boolean:
      if (!node.is_boolean()) refuse(field, node, pointer, reading);
      break;
    case Field::Kind::text:
      if (!node.is_string()) refuse(field, node, pointer, reading);
      break;
    case Field::Kind::integer:
    case Field::Kind::number:
      check_integer_or_number(field, node, pointer, reading);
      break;
    case Field::Kind::choice:
      check_choice(field, node, pointer, reading);
      break;
    case Field::Kind::object:
      return field.object->read(member, spelled_out(field, node), pointer, reading);
    case Field::Kind::component:
      return field.types->read(*field.component(member, count, index), node, pointer, reading);
  }
  return node;
}

Json words_to_numbers(const Field& field, const Json& node) {
  if (node.is_array()) {
    Json result = Json::array();
    for (const Json& item : node.items()) result.push_back(words_to_numbers(field, item));
    return result;
  }
  const Word* word = find_word(field, node);
  return word ? Json(word->value) : node;
}

Json numbers_to_words(const Field& field, Json value) {
  if (value.is_array()) {
    for (Json& item : value.items()) item = numbers_to_words(field, std::move(item));
    return value;
  }
  if (!value.is_number()) return value;
  for (const Word& word : field.limits.words) {
    if (word.value == value.as_number()) return Json(word.text);
  }
  return value;
}

bool has_word_numbers(const Field& field) { return field.words_are_numbers && !field.limits.words.empty(); }

Json read_list(const Field& field, const Json& node, const std::string& pointer, Reading& reading, void* member) {
  const Limits& limits = field.limits;
  if (!node.is_array() || node.size() < limits.min_items || node.size() > limits.max_items) {
    const std::string found = node.is_array() ? join_text("an array of ", node.size()) : node.describe();
    reading.add(node, pointer, join_text("expected ", field.expected(), ", found ", found));
    return node;
  }
  if (field.component) field.component(member, node.size(), 0);
  Json result = Json::array();
  result.set_position(node.position());
  for (std::size_t i = 0; i < node.size(); ++i)
    result.push_back(read_element(field, node.at(i), child_pointer(pointer, i), reading, member, node.size(), i));
  return result;
}

/// Stores a value in its member of `options`; the result has every key.
Json read_field(const Field& field, const Json& node, const std::string& pointer, Reading& reading, void* options) {
  void* const member = field.member_of(options);
  const std::size_t before = reading.faults.size();
  const bool is_null = field.nullable && node.is_null();
  Json result = is_null      ? node
                : field.list ? read_list(field, node, pointer, reading, member)
                             : read_element(field, node, pointer, reading, member);
  if (is_null && field.component) *field.component(member, 1, 0) = {};
  if (field.store && reading.faults.size() == before)
    field.store(member, has_word_numbers(field) ? words_to_numbers(field, node) : node);
  return result;
}

Json load_field(const Field& field, const void* options) {
  const void* member = field.member_of(const_cast<void*>(options));
  if (field.kind == Field::Kind::object) return field.object->load(member);
  Json value = field.load(member);
  return has_word_numbers(field) ? numbers_to_words(field, std::move(value)) : value;
}

void mark_defaulted(Json& node) {
  JsonPosition position;
  position.origin = JsonOrigin::defaulted;
  node.set_position(std::move(position));
  if (node.is_array()) {
    for (Json& item : node.items()) mark_defaulted(item);
  } else if (node.is_object()) {
    for (JsonMember& member : node.members()) mark_defaulted(member.value);
  }
}

Json default_of(const Field& field, const void* options) {
  Json value = load_field(field, options);
  mark_defaulted(value);
  return value;
}

void collect_origins(const Json& node, const std::string& pointer, Json& result) {
  if (node.is_object() && node.size() > 0) {
    for (const JsonMember& member : node.members()) {
      collect_origins(member.value, child_pointer(pointer, member.key), result);
    }
    return;
  }
  const auto nests = [](const Json& item) { return item.is_array() || item.is_object(); };
  if (node.is_array() && std::any_of(node.items().begin(), node.items().end(), nests)) {
    for (std::size_t i = 0; i < node.size(); ++i) collect_origins(node.at(i), child_pointer(pointer, i), result);
    return;
  }
  result.set(pointer, name_of(node.position().origin));
}

}  // namespace

namespace config_detail {

Json load_float(float value) {
  if (!std::isfinite(value)) return Json(value);
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  double nearest_to_text = 0;
  std::from_chars(buffer, end, nearest_to_text);
  return Json(nearest_to_text);
}

}  // namespace config_detail

void Reading::add(const Json& node, const std::string& pointer, const std::string& message) {
  faults.push_back(fault_text(node.position(), pointer, message));
}

void Reading::require_no_faults() const {
  std::string text;
  for (const std::string& fault : faults) text += (text.empty() ? "" : "\n") + fault;
  if (!text.empty()) throw ConfigError(text);
}

std::string Field::expected() const {
  std::string text;
  if (list) {
    text = "an array of ";
    if (limits.min_items == limits.max_items) {
      text += join_text(limits.min_items, " ");
    } else if (limits.min_items > 0) {
      text += join_text("at least ", limits.min_items, " ");
    }
    if (limits.min_items < limits.max_items && limits.max_items != Limits{}.max_items) {
      text += join_text(limits.min_items > 0 ? "and " : "", "at most ", limits.max_items, " ");
    }
  }
  text += element_text(*this, list);
  return nullable ? text + " or null" : text;
}

Field& Schema::add(Field field) {
  HEARTH_CHECK(UsageError, !field.name.empty(), "config: a field needs a name");
  HEARTH_CHECK(UsageError, !is_ignored(field.name) && field.name != "type", "config: the key \"", field.name,
               "\" is reserved; name the field otherwise");
  HEARTH_CHECK(UsageError, !find(field.name), "config: the key \"", field.name, "\" is described twice");
  fields_.push_back(std::move(field));
  return fields_.back();
}

const Field* Schema::find(std::string_view name) const {
  const auto found = std::find_if(fields_.begin(), fields_.end(), [&](const Field& f) { return f.name == name; });
  return found == fields_.end() ? nullptr : &*found;
}

const Field* Schema::find_renamed(std::string_view name) const {
  const auto found = std::find_if(fields_.begin(), fields_.end(),
                                  [&](const Field& f) { return !f.formerly.empty() && f.formerly == name; });
  return found == fields_.end() ? nullptr : &*found;
}

std::vector<std::string> Schema::names() const {
  std::vector<std::string> result;
  for (const Field& field : fields_) result.push_back(field.name);
  return result;
}

Json Schema::read(void* target, const Json& node, const std::string& pointer, Reading& reading,
                  bool is_component) const {
  if (!node.is_object()) {
    reading.add(node, pointer, "expected an object, found " + node.describe());
    return node;
  }
  if (reading.schema == nullptr) {
    reading.schema = this;
    reading.root = &node;
  }
  const std::size_t before = reading.faults.size();
  std::vector<std::optional<Json>> values(fields_.size());
  for (const JsonMember& member : node.members()) {
    if (is_ignored(member.key) || (is_component && member.key == "type")) continue;
    const std::string below = child_pointer(pointer, member.key);
    // Keys that came from --set have the position of their value.
    const JsonPosition& at = member.key_position.source ? member.key_position : member.value.position();
    const Field* field = find(member.key);
    if (field == nullptr && (field = find_renamed(member.key)) != nullptr) {
      if (node.find(field->name) != nullptr) {
        reading.faults.push_back(
            fault_text(at, below, "is the former name of \"" + field->name + "\"; give one of them"));
        continue;
      }
      reading.hints.push_back(fault_text(
          at, below, "this key is now called \"" + field->name + "\"; the next release will not know the former name"));
    }
    if (field != nullptr) {
      values[static_cast<std::size_t>(field - fields_.data())] =
          read_field(*field, member.value, below, reading, target);
      continue;
    }
    std::vector<std::string> known = names();
    if (is_component) known.insert(known.begin(), "type");
    const std::string meant = config_detail::suggest_key(member.key, known, *reading.schema, *reading.root);
    reading.faults.push_back(fault_text(at, below, "unknown key \"" + member.key + "\"; " + meant));
  }
  Json result = Json::object();
  result.set_position(node.position());
  if (is_component) result.set("type", node.at("type"));
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const Field& field = fields_[i];
    if (!values[i] && field.required)
      reading.add(node, child_pointer(pointer, field.name),
                  join_text("this key is missing and required: ", field.expected(), ". ", field.doc));
    result.set(field.name, values[i] ? std::move(*values[i]) : default_of(field, target));
  }
  // Rules read the struct, which is whole only if each value is right by itself.
  if (reading.faults.size() != before) return result;
  for (const auto& rule : rules_)
    if (const std::string broken = rule(target); !broken.empty()) reading.add(node, pointer, broken);
  return result;
}

Json Schema::parse(void* target, const Json& node, const std::string& pointer) const {
  Reading reading;
  Json result = read(target, node, pointer, reading);
  reading.require_no_faults();
  return result;
}

Json Schema::load(const void* source) const {
  Json result = Json::object();
  for (const Field& field : fields_) result.set(field.name, load_field(field, source));
  return result;
}

const std::string& AnyComponent::type() const {
  HEARTH_CHECK(UsageError, options_ != nullptr, "config: there is no component");
  return types_->types()[index_].name;
}

const Schema* AnyComponent::schema() const { return types_->types()[index_].schema().get(); }

std::vector<std::string> ComponentTypes::names() const {
  std::vector<std::string> result;
  for (const Type& type : types_) result.push_back(type.name);
  return result;
}

const ComponentTypes::Type* ComponentTypes::find(std::string_view type) const {
  const auto found = std::find_if(types_.begin(), types_.end(), [&](const Type& t) { return t.name == type; });
  return found == types_.end() ? nullptr : &*found;
}

void ComponentTypes::add_type(std::string type, std::string doc, const std::shared_ptr<const Schema>& (*schema)()) {
  HEARTH_CHECK(UsageError, !type.empty(), "config: a type of ", name_, " needs a name");
  HEARTH_CHECK(UsageError, !find(type), "config: the ", name_, " \"", type, "\" is registered already");
  types_.push_back({std::move(type), std::move(doc), schema});
}

Json ComponentTypes::read(AnyComponent& component, const Json& node, const std::string& pointer,
                          Reading& reading) const {
  component = {};
  if (!node.is_object()) {
    std::string message = join_text("expected an object with \"type\" (", name_, "), found ", node.describe());
    if (node.is_string() && find(node.as_string())) {
      message += join_text("; write {\"type\": \"", node.as_string(), "\"}");
    }
    reading.add(node, pointer, message);
    return node;
  }
  const std::string type_pointer = child_pointer(pointer, "type");
  const std::string label = "known types of " + name_;
  const Json* const type = node.find("type");
  if (!type) {
    reading.add(node, type_pointer, join_text("this key is missing and required; ", suggest("", names(), label)));
    return node;
  }
  if (!type->is_string()) {
    reading.add(*type, type_pointer,
                join_text("expected a string, found ", type->describe(), "; ", suggest("", names(), label)));
    return node;
  }
  const Type* const known = find(type->as_string());
  if (!known) {
    reading.add(*type, type_pointer,
                join_text("unknown ", name_, " \"", type->as_string(), "\"; ",
                          config_detail::suggest_type(type->as_string(), *this)));
    return node;
  }
  const std::shared_ptr<void> options = known->schema()->make_defaults();
  Json full = known->schema()->read(options.get(), node, pointer, reading, true);
  component.types_ = this;
  component.index_ = static_cast<std::size_t>(
      std::find_if(types_.begin(), types_.end(), [&](const Type& t) { return &t == known; }) - types_.begin());
  component.options_ = options;
  component.node_ = full;
  return full;
}

void ComponentTypes::parse_into(AnyComponent& component, const Json& node) const {
  Reading reading;
  (void)read(component, node, "", reading);
  reading.require_no_faults();
}

Json resolve(const Schema& schema, const Json& root) { return schema.parse(schema.make_defaults().get(), root); }

std::vector<std::string> renamed_keys(const Schema& schema, const Json& root) {
  Reading reading;
  (void)schema.read(schema.make_defaults().get(), root, "", reading);
  return reading.hints;
}

Json origins(const Json& resolved) {
  Json result = Json::object();
  collect_origins(resolved, "", result);
  return result;
}

}  // namespace hearth
