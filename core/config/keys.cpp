// SPDX-License-Identifier: Apache-2.0
#include "core/config/keys.h"

#include <algorithm>

#include "core/nearest.h"

namespace hearth::config_detail {
namespace {

struct PlacedKey {
  std::string name, path;
};

void collect_keys(const Schema& schema, const Json* node, const std::string& prefix, std::vector<PlacedKey>& keys) {
  for (const Field& field : schema.fields()) {
    const std::string path = prefix + field.name;
    const Json* const below = node != nullptr ? node->find(field.name) : nullptr;
    keys.push_back({field.name, path});
    if (field.kind == Field::Kind::object && !field.list) collect_keys(*field.object, below, path + ".", keys);
    if (field.kind != Field::Kind::component || field.list || below == nullptr) continue;
    const Json* const type = below->find("type");
    const ComponentTypes::Type* const known =
        type != nullptr && type->is_string() ? field.types->find(type->as_string()) : nullptr;
    if (known != nullptr) collect_keys(*known->schema(), below, path + ".", keys);
  }
}

}  // namespace

std::string suggest_key(std::string_view key, const std::vector<std::string>& own, const Schema& schema,
                        const Json& document) {
  std::vector<PlacedKey> keys;
  collect_keys(schema, &document, "", keys);
  std::vector<std::string> names = own;
  for (const PlacedKey& placed : keys) names.push_back(placed.name);
  const std::string meant = nearest(key, names);
  const std::string known = suggest("", own, "known keys");
  if (meant.empty()) return known;
  if (std::find(own.begin(), own.end(), meant) != own.end()) return "did you mean \"" + meant + "\"? " + known;
  std::string paths;
  for (const PlacedKey& placed : keys)
    if (placed.name == meant) paths += (paths.empty() ? "\"" : " or \"") + placed.path + "\"";
  return "did you mean " + paths + "? " + known;
}

std::string suggest_type(const std::string& type, const ComponentTypes& types) {
  const std::string label = "known types of " + types.name();
  for (const ComponentTypes::Type& known : types.types()) {
    if (!type.starts_with(known.name)) continue;
    for (const Field& field : known.schema()->fields())
      for (const Word& word : field.limits.words)
        if (field.kind == Field::Kind::choice && word.text == type)
          return join_text("did you mean {\"type\": \"", known.name, "\", \"", field.name, "\": \"", type, "\"}? ",
                           suggest("", types.names(), label));
  }
  return suggest(type, types.names(), label);
}

}  // namespace hearth::config_detail
