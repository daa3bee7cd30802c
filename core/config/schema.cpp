// SPDX-License-Identifier: Apache-2.0
// JSON schema and reference page of described configurations.
#include <algorithm>

#include "core/config/config.h"

namespace hearth {
namespace {

// The registries a document reaches, each once, in the order they are met.
class Reached {
 public:
  void add(const Schema& schema) {
    for (const Field& field : schema.fields()) {
      if (field.object) add(*field.object);
      if (field.types) add(*field.types);
    }
  }
  const std::vector<const ComponentTypes*>& registries() const { return registries_; }

 private:
  void add(const ComponentTypes& types) {
    for (const ComponentTypes* known : registries_) {
      if (known == &types) return;
      HEARTH_CHECK(UsageError, known->name() != types.name(), "config: two registries are named \"", types.name(),
                   "\"");
    }
    registries_.push_back(&types);
    for (const ComponentTypes::Type& type : types.types()) add(*type.schema());
  }

  std::vector<const ComponentTypes*> registries_;
};

Json object_schema(const Schema& schema, const Json& defaults, const std::string* type);
Json field_schema(const Field& field, const Json& defaults);

Json words_schema(const Limits& limits) {
  Json words = Json::array();
  for (const Word& word : limits.words) words.push_back(word.text);
  return Json::object().set("enum", words);
}

Json number_schema(const Field& field) {
  Json result = Json::object();
  result.set("type", field.kind == Field::Kind::integer ? "integer" : "number");
  const auto bound = [&](const char* key, const std::optional<double>& value) {
    if (!value) return;
    const Json number(*value);
    result.set(key, number.is_integer() ? Json(number.as_integer()) : number);
  };
  bound("minimum", field.limits.min);
  bound("exclusiveMinimum", field.limits.above);
  bound("maximum", field.limits.max);
  bound("exclusiveMaximum", field.limits.below);
  if (field.limits.words.empty()) return result;
  return Json::object().set("anyOf", Json::array().push_back(result).push_back(words_schema(field.limits)));
}

Json element_schema(const Field& field, const Json& defaults) {
  switch (field.kind) {
    case Field::Kind::boolean:
      return Json::object().set("type", "boolean");
    case Field::Kind::integer:
    case Field::Kind::number:
      return number_schema(field);
    case Field::Kind::text:
      return Json::object().set("type", "string");
    case Field::Kind::choice:
      return words_schema(field.limits);
    case Field::Kind::object: {
      const Json object = object_schema(*field.object, defaults, nullptr);
      if (field.shorthand.empty()) return object;
      const Json value = field_schema(*field.object->find(field.shorthand), defaults.at(field.shorthand));
      return Json::object().set("anyOf", Json::array().push_back(value).push_back(object));
    }
    case Field::Kind::component:
      return Json::object().set("$ref", "#/$defs/" + field.types->name());
  }
  return Json::object();
}

Json field_schema(const Field& field, const Json& defaults) {
  Json result = element_schema(field, defaults);
  if (field.list) {
    Json array = Json::object();
    array.set("type", "array").set("items", std::move(result));
    if (field.limits.min_items > 0) array.set("minItems", field.limits.min_items);
    if (field.limits.max_items != Limits{}.max_items) array.set("maxItems", field.limits.max_items);
    result = std::move(array);
  }
  if (field.nullable) {
    Json either = Json::array();
    either.push_back(std::move(result)).push_back(Json::object().set("type", "null"));
    result = Json::object().set("anyOf", std::move(either));
  }
  if (!field.doc.empty()) result.set("description", field.doc);
  if (!field.required && field.kind != Field::Kind::object) result.set("default", defaults);
  return result;
}

Json object_schema(const Schema& schema, const Json& defaults, const std::string* type) {
  Json required = Json::array();
  Json properties = Json::object();
  if (type) {
    required.push_back("type");
    properties.set("type", Json::object().set("const", *type));
  }
  for (const Field& field : schema.fields()) {
    properties.set(field.name, field_schema(field, defaults.at(field.name)));
    if (field.required) required.push_back(field.name);
  }
  properties.set("$schema", true).set("comment", true);
  Json result = Json::object();
  result.set("type", "object").set("properties", std::move(properties));
  if (required.size() > 0) result.set("required", std::move(required));
  return result.set("additionalProperties", false);
}

Json defaults_of(const Schema& schema) { return schema.load(schema.make_defaults().get()); }

Json registry_schema(const ComponentTypes& types) {
  Json names = Json::array();
  Json each = Json::array();
  for (const ComponentTypes::Type& type : types.types()) {
    names.push_back(type.name);
    Json schema = Json::object();
    schema.set("title", type.name).set("description", type.doc);
    const Json object = object_schema(*type.schema(), defaults_of(*type.schema()), &type.name);
    for (const JsonMember& member : object.members()) schema.set(member.key, member.value);
    each.push_back(std::move(schema));
  }
  Json result = Json::object();
  result.set("description", types.doc()).set("type", "object");
  // A choice among none is no schema. Without types all are accepted: another program may know them.
  if (types.types().empty()) return result.set("required", Json::array().push_back("type"));
  result.set("properties", Json::object().set("type", Json::object().set("enum", std::move(names))));
  return result.set("required", Json::array().push_back("type")).set("oneOf", std::move(each));
}

std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, 1, '\\');
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

class Page {
 public:
  void heading(int level, const std::string& text) {
    text_ += (text_.empty() ? "" : "\n") + std::string(static_cast<std::size_t>(level), '#') + " " + text + "\n";
  }
  void paragraph(const std::string& text) {
    if (!text.empty()) text_ += "\n" + text + "\n";
  }

  // The table of an object's keys, then a section for each nested object.
  void object(int level, const std::string& prefix, const Schema& schema, const Json& defaults) {
    if (schema.fields().empty()) return paragraph("No keys.");
    text_ += "\n| Key | Value | Default | Meaning |\n|---|---|---|---|\n";
    for (const Field& field : schema.fields()) row(field, defaults.at(field.name));
    for (const Field& field : schema.fields()) {
      if (!field.object) continue;
      const std::string name = prefix.empty() ? field.name : prefix + "." + field.name;
      heading(level, "`" + name + "`");
      paragraph(field.doc);
      object(level, name, *field.object, defaults.at(field.name));
    }
  }

  std::string take() { return std::move(text_); }

 private:
  void row(const Field& field, const Json& value) {
    std::string expected = cell(field.expected());
    if (field.types) {
      expected = join_text(field.list ? "array of " : "", "[", field.types->name(), "](#component-",
                           field.types->name(), ")", field.nullable ? " or null" : "");
    }
    const std::string shown = field.required ? "required" : field.object ? "" : "`" + cell(to_text(value)) + "`";
    text_ += "| `" + field.name + "` | " + expected + " | " + shown + " | " + cell(field.doc) + " |\n";
  }

  std::string text_;
};

}  // namespace

Json json_schema(const Schema& schema, const std::string& title) {
  Reached reached;
  reached.add(schema);
  Json result = Json::object();
  result.set("$schema", "https://json-schema.org/draft/2020-12/schema").set("title", title);
  const Json object = object_schema(schema, defaults_of(schema), nullptr);
  for (const JsonMember& member : object.members()) result.set(member.key, member.value);
  Json definitions = Json::object();
  for (const ComponentTypes* types : reached.registries()) definitions.set(types->name(), registry_schema(*types));
  return result.set("$defs", std::move(definitions));
}

std::string reference_markdown(const Schema& schema, const std::string& title) {
  Reached reached;
  reached.add(schema);
  Page page;
  page.heading(1, title);
  page.paragraph("The keys `$schema` and `comment` are allowed in any object and ignored. Any other key is an error.");
  page.object(2, "", schema, defaults_of(schema));
  for (const ComponentTypes* types : reached.registries()) {
    page.heading(2, "Component `" + types->name() + "`");
    page.paragraph(types->doc());
    for (const ComponentTypes::Type& type : types->types()) {
      page.heading(3, "`{\"type\": \"" + type.name + "\"}`");
      page.paragraph(type.doc);
      page.object(4, type.name, *type.schema(), defaults_of(*type.schema()));
    }
  }
  return page.take();
}

}  // namespace hearth
