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

/// The document whose check is under way in this thread: what keys are suggested from.
struct Document {
  const Schema* schema;
  const Json* root;
};
thread_local const Document* checked_document = nullptr;

/// Makes the first object that is checked the document, for the life of the guard.
class DocumentGuard {
 public:
  DocumentGuard(const Schema& schema, const Json& node)
      : own_{&schema, &node}, outermost_(checked_document == nullptr) {
    if (outermost_) checked_document = &own_;
  }
  ~DocumentGuard() {
    if (outermost_) checked_document = nullptr;
  }
  DocumentGuard(const DocumentGuard&) = delete;
  DocumentGuard& operator=(const DocumentGuard&) = delete;

 private:
  Document own_;
  bool outermost_;
};

bool is_ignored(std::string_view key) { return key == "$schema" || key == "comment"; }

void add_fault(Faults& faults, const Json& node, const std::string& pointer, const std::string& message) {
  faults.push_back(fault_text(node.position(), pointer, message));
}

std::string joined(const std::vector<Word>& words, std::string_view separator) {
  std::string text;
  for (const Word& word : words) {
    if (!text.empty()) text += separator;
    text += word.text;
  }
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
      return "one of " + joined(field.limits.words, ", ");
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

void check_integer_or_number(const Field& field, const Json& node, const std::string& pointer, Faults& faults) {
  const bool integral = field.kind == Field::Kind::integer;
  if (find_word(field, node)) return;
  if (node.is_string() && !field.limits.words.empty()) {
    std::vector<std::string> words;
    for (const Word& word : field.limits.words) words.push_back(word.text);
    const std::string meant = nearest(node.as_string(), words);
    add_fault(faults, node, pointer,
              join_text("expected ", element_text(field, false), ", found ", node.describe(),
                        meant.empty() ? "" : "; did you mean \"" + meant + "\"?"));
    return;
  }
  const bool fits = (integral ? node.is_integer() : node.is_number()) && std::isfinite(node.as_number()) &&
                    within(field.limits, node.as_number());
  if (!fits) {
    add_fault(faults, node, pointer, join_text("expected ", element_text(field, false), ", found ", node.describe()));
  } else if (node.as_number() < field.least || node.as_number() > field.greatest) {
    add_fault(faults, node, pointer,
              join_text(node.describe(), " is outside what this key can hold, ", plain_number(field.least), " to ",
                        plain_number(field.greatest)));
  }
}

void check_choice(const Field& field, const Json& node, const std::string& pointer, Faults& faults) {
  if (find_word(field, node)) return;
  std::vector<std::string> words;
  for (const Word& word : field.limits.words) words.push_back(word.text);
  if (!node.is_string()) {
    add_fault(faults, node, pointer, join_text("expected ", element_text(field, false), ", found ", node.describe()));
    return;
  }
  add_fault(faults, node, pointer,
            join_text("unknown value \"", node.as_string(), "\"; ", suggest(node.as_string(), words, "allowed are")));
}

/// The object that a value stands for.
Json spelled_out(const Field& field, const Json& node) {
  if (field.shorthand.empty() || node.is_object()) return node;
  Json object = Json::object();
  object.set_position(node.position());
  return object.set(field.shorthand, node);
}

void check_element(const Field& field, const Json& node, const std::string& pointer, Faults& faults,
                   const void* defaults) {
  const auto expect = [&](bool right) {
    if (right) return;
    add_fault(faults, node, pointer, join_text("expected ", element_text(field, false), ", found ", node.describe()));
  };
  switch (field.kind) {
    case Field::Kind::boolean:
      return expect(node.is_boolean());
    case Field::Kind::text:
      return expect(node.is_string());
    case Field::Kind::integer:
    case Field::Kind::number:
      return check_integer_or_number(field, node, pointer, faults);
    case Field::Kind::choice:
      return check_choice(field, node, pointer, faults);
    case Field::Kind::object:
      return field.object->check(spelled_out(field, node), pointer, faults, defaults);
    case Field::Kind::component:
      return field.types->check(node, pointer, faults);
  }
}

void check_field(const Field& field, const Json& node, const std::string& pointer, Faults& faults,
                 const void* defaults) {
  if (field.nullable && node.is_null()) return;
  if (!field.list) return check_element(field, node, pointer, faults, defaults);
  const Limits& limits = field.limits;
  if (!node.is_array() || node.size() < limits.min_items || node.size() > limits.max_items) {
    const std::string found = node.is_array() ? join_text("an array of ", node.size()) : node.describe();
    add_fault(faults, node, pointer, join_text("expected ", field.expected(), ", found ", found));
    return;
  }
  for (std::size_t i = 0; i < node.size(); ++i) {
    check_element(field, node.at(i), child_pointer(pointer, i), faults, nullptr);
  }
}

Json words_to_numbers(const Field& field, const Json& node) {
  if (field.list && node.is_array()) {
    Json result = Json::array();
    for (const Json& item : node.items()) {
      const Word* word = find_word(field, item);
      result.push_back(word ? Json(word->value) : item);
    }
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

Json load_field(const Field& field, const void* options) {
  const void* member = field.member(const_cast<void*>(options));
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

Json resolve_value(const Field& field, const Json& node, const void* member_defaults) {
  if (field.nullable && node.is_null()) return node;
  if (field.kind == Field::Kind::object) return field.object->resolve(spelled_out(field, node), member_defaults);
  if (field.kind != Field::Kind::component) return node;
  if (!field.list) return field.types->resolve(node);
  Json result = Json::array();
  result.set_position(node.position());
  for (const Json& item : node.items()) result.push_back(field.types->resolve(item));
  return result;
}

Json resolve_default(const Field& field, const void* options) {
  Json value = load_field(field, options);
  if (field.kind == Field::Kind::component) {
    value = resolve_value(field, value, nullptr);
  }
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

void store(const Json& value, bool& member) { member = value.as_boolean(); }
void store(const Json& value, float& member) { member = static_cast<float>(value.as_number()); }
void store(const Json& value, double& member) { member = value.as_number(); }
void store(const Json& value, std::string& member) { member = value.as_string(); }
void store(const Json& value, Json& member) { member = value; }
Json load(bool member) { return Json(member); }
Json load(double member) { return Json(member); }
Json load(const std::string& member) { return Json(member); }
Json load(const Json& member) { return member; }

Json load(float member) {
  // The double nearest to the shortest text, so that 0.1f is shown as 0.1.
  if (!std::isfinite(member)) return Json(member);
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, member).ptr;
  double value = 0;
  std::from_chars(buffer, end, value);
  return Json(value);
}

void throw_faults(const Faults& faults) {
  std::string text;
  for (const std::string& fault : faults) text += (text.empty() ? "" : "\n") + fault;
  throw ConfigError(text);
}

}  // namespace config_detail

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

std::vector<std::string> Schema::names() const {
  std::vector<std::string> result;
  for (const Field& field : fields_) result.push_back(field.name);
  return result;
}

void Schema::check(const Json& node, const std::string& pointer, Faults& faults, const void* defaults,
                   bool is_component) const {
  if (!node.is_object()) {
    add_fault(faults, node, pointer, "expected an object, found " + node.describe());
    return;
  }
  const DocumentGuard guard(*this, node);
  const std::size_t before = faults.size();
  const std::shared_ptr<void> options = copy_(defaults);
  for (const JsonMember& member : node.members()) {
    if (is_ignored(member.key) || (is_component && member.key == "type")) continue;
    const std::string below = child_pointer(pointer, member.key);
    const Field* field = find(member.key);
    if (field) {
      check_field(*field, member.value, below, faults, field->member(options.get()));
    } else {
      std::vector<std::string> known = names();
      if (is_component) known.insert(known.begin(), "type");
      // Keys that came from --set have the position of their value.
      const JsonPosition& at = member.key_position.source ? member.key_position : member.value.position();
      const std::string meant =
          config_detail::suggest_key(member.key, known, *checked_document->schema, *checked_document->root);
      faults.push_back(fault_text(at, below, "unknown key \"" + member.key + "\"; " + meant));
    }
  }
  for (const Field& field : fields_) {
    if (!field.required || node.find(field.name)) continue;
    add_fault(faults, node, child_pointer(pointer, field.name),
              join_text("this key is missing and required: ", field.expected(), ". ", field.doc));
  }
  // Rules read the struct, which exists only if each value is right by itself.
  if (rules_.empty() || faults.size() != before) return;
  assign(options.get(), node);
  for (const auto& rule : rules_) {
    const std::string broken = rule(options.get());
    if (!broken.empty()) add_fault(faults, node, pointer, broken);
  }
}

void Schema::assign(void* target, const Json& node) const {
  for (const Field& field : fields_) {
    const Json* value = node.find(field.name);
    if (!value) continue;
    void* member = field.member(target);
    if (field.kind == Field::Kind::object) {
      field.object->assign(member, spelled_out(field, *value));
    } else {
      field.store(member, has_word_numbers(field) ? words_to_numbers(field, *value) : *value);
    }
  }
}

Json Schema::load(const void* source) const {
  Json result = Json::object();
  for (const Field& field : fields_) result.set(field.name, load_field(field, source));
  return result;
}

Json Schema::resolve(const Json& node, const void* defaults) const {
  const std::shared_ptr<void> options = copy_(defaults);
  Json result = Json::object();
  result.set_position(node.position());
  for (const Field& field : fields_) {
    const Json* value = node.find(field.name);
    result.set(field.name, value ? resolve_value(field, *value, field.member(options.get()))
                                 : resolve_default(field, options.get()));
  }
  return result;
}

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

void ComponentTypes::check(const Json& node, const std::string& pointer, Faults& faults) const {
  if (!node.is_object()) {
    std::string message = join_text("expected an object with \"type\" (", name_, "), found ", node.describe());
    if (node.is_string() && find(node.as_string())) {
      message += join_text("; write {\"type\": \"", node.as_string(), "\"}");
    }
    add_fault(faults, node, pointer, message);
    return;
  }
  const std::string type_pointer = child_pointer(pointer, "type");
  const Json* type = node.find("type");
  if (!type) {
    add_fault(faults, node, type_pointer,
              join_text("this key is missing and required; ", suggest("", names(), "known types of " + name_)));
  } else if (!type->is_string()) {
    add_fault(faults, *type, type_pointer,
              join_text("expected a string, found ", type->describe(), "; ",
                        suggest("", names(), "known types of " + name_)));
  } else if (const Type* known = find(type->as_string())) {
    known->schema()->check(node, pointer, faults, nullptr, true);
  } else {
    add_fault(faults, *type, type_pointer,
              join_text("unknown ", name_, " \"", type->as_string(), "\"; ",
                        config_detail::suggest_type(type->as_string(), *this)));
  }
}

Json ComponentTypes::resolve(const Json& node) const {
  if (node.is_null()) return node;
  const std::size_t index = checked(node, "");
  const Json fields = types_[index].schema()->resolve(node);
  Json result = Json::object();
  result.set_position(node.position());
  result.set("type", node.at("type"));
  for (const JsonMember& member : fields.members()) result.set(member.key, member.value);
  return result;
}

std::size_t ComponentTypes::checked(const Json& node, const std::string& pointer) const {
  Faults faults;
  check(node, pointer, faults);
  if (!faults.empty()) config_detail::throw_faults(faults);
  const std::string& name = node.at("type").as_string();
  const auto found = std::find_if(types_.begin(), types_.end(), [&](const Type& t) { return t.name == name; });
  return static_cast<std::size_t>(found - types_.begin());
}

void check_config(const Schema& schema, const Json& root) {
  Faults faults;
  schema.check(root, "", faults);
  if (!faults.empty()) config_detail::throw_faults(faults);
}

Json resolve(const Schema& schema, const Json& root) {
  check_config(schema, root);
  return schema.resolve(root);
}

Json origins(const Json& resolved) {
  Json result = Json::object();
  collect_origins(resolved, "", result);
  return result;
}

}  // namespace hearth
