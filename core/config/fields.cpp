// SPDX-License-Identifier: Apache-2.0
// What describing a struct's fields does whatever the struct.
#include <utility>

#include "core/config/config.h"

namespace hearth {

Limits::~Limits() = default;

FieldList::FieldList(std::shared_ptr<void> (*make)()) : schema_(std::make_shared<Schema>()), sample_(make()) {
  schema_->make_ = make;
}

Field& FieldList::add(Field::Kind kind, std::string_view name, std::ptrdiff_t offset, const MemberType& type,
                      const Limits& limits, std::string_view doc) {
  Field field;
  field.name = name;
  field.doc = doc;
  field.kind = kind;
  field.offset = offset;
  field.list = type.list;
  field.nullable = type.nullable;
  field.words_are_numbers = !type.text;
  field.limits = limits;
  if (type.count > 0) field.limits.min_items = field.limits.max_items = type.count;
  field.least = type.least;
  field.greatest = type.greatest;
  field.store = type.store;
  field.load = type.load;
  return schema_->add(std::move(field));
}

void FieldList::add_object(std::string_view name, std::ptrdiff_t offset, std::shared_ptr<const Schema> object,
                           std::string_view doc) {
  Field field;
  field.name = name;
  field.doc = doc;
  field.kind = Field::Kind::object;
  field.offset = offset;
  field.object = std::move(object);
  schema_->add(std::move(field));
}

void FieldList::add_rule(std::function<std::string(const void*)> rule) { schema_->rules_.push_back(std::move(rule)); }

Field& FieldList::last() {
  HEARTH_CHECK(UsageError, !schema_->fields_.empty(), "config: required() comes after the field it is about");
  return schema_->fields_.back();
}

void FieldList::set_shorthand(std::string_view key) {
  HEARTH_CHECK(UsageError, last().object != nullptr && last().object->find(key) != nullptr, "config: shorthand \"", key,
               "\" comes after an object that has such a key");
  last().shorthand = key;
}

void FieldList::set_required() {
  last().required = true;
  if (last().kind == Field::Kind::component) last().nullable = false;
}

}  // namespace hearth
