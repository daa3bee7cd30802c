// SPDX-License-Identifier: Apache-2.0
// The JSON schema accepts and refuses what the library does, checked by a small validator here and, where python3 has
// the jsonschema package, by that one; and the reference page names every key.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/core/config/config_example.h"
#include "tests/support/temp_dir.h"

namespace {

using config_example::RunConfig;
using hearth::Json;
using hearth::parse_json;
using hearth::schema_of;

const std::string accepted[] = {
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 8}})",
    config_example::example_run,
    R"({"optimizer": {"type": "adamw","weight_decay": 0}, "train": {"batch_size": 1,"steps": null}, "loss_scale": 1.0})",
    R"({"comment": 1, "optimizer": {"type": "sgd", "comment": [2]}, "train": {"batch_size": 4.0}, "schedule": null})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 1}, "milestones": [], "tags": [], "betas": [0, 0.5]})",
};
const std::string refused[] = {
    "[]",
    "{}",
    R"({"optimizer": {"type": "sgd"}})",
    R"({"train": {"batch_size": 8}})",
    R"({"optimizer": {"type": "sgd"}, "train": {}})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 0}})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 1.5}})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": "8"}})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 8, "x": 1}})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 8}, "x": 1})",
    R"({"optimizer": {"type": "lion"}, "train": {"batch_size": 8}})",
    R"({"optimizer": {"lr": 1}, "train": {"batch_size": 8}})",
    R"({"optimizer": null, "train": {"batch_size": 8}})",
    R"({"optimizer": "sgd", "train": {"batch_size": 8}})",
    R"({"optimizer": {"type": "sgd", "lr": 0}, "train": {"batch_size": 8}})",
    R"({"optimizer": {"type": "sgd", "momentum": 1}, "train": {"batch_size": 8}})",
    R"({"optimizer": {"type": "sgd", "weight_decay": 0}, "train": {"batch_size": 8}})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 8}, "stem": "large"})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 8}, "name": null})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 8}, "loss_scale": "static"})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 8}, "loss_scale": 0.5})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 8}, "betas": [0.1]})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 8}, "betas": [0.1, 1]})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 8}, "milestones": [1, 2, 3, 4]})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 8}, "milestones": [0]})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 8}, "transforms": [{"type": "maybe"}]})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 8}, "transforms": {"type": "flip"}})",
    R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 8}, "deterministic": 1})",
};

// The keywords of draft 2020-12 that json_schema writes; any other is a failure of the test.
class Validator {
 public:
  explicit Validator(const Json& root) : root_(root) {}

  bool valid(const Json& schema, const Json& value) const {
    if (schema.is_boolean()) return schema.as_boolean();
    return std::all_of(schema.members().begin(), schema.members().end(),
                       [&](const hearth::JsonMember& rule) { return keyword(schema, rule.key, rule.value, value); });
  }

 private:
  bool keyword(const Json& schema, const std::string& name, const Json& rule, const Json& value) const {
    if (name == "type") return has_type(rule.as_string(), value);
    if (name == "const") return rule == value;
    if (name == "enum") return count(rule, [&](const Json& allowed) { return allowed == value; }) > 0;
    if (name == "anyOf") return count(rule, [&](const Json& option) { return valid(option, value); }) > 0;
    if (name == "oneOf") return count(rule, [&](const Json& option) { return valid(option, value); }) == 1;
    if (name == "$ref") return valid(root_.at("$defs").at(rule.as_string().substr(8)), value);
    if (name == "minimum") return !value.is_number() || value.as_number() >= rule.as_number();
    if (name == "exclusiveMinimum") return !value.is_number() || value.as_number() > rule.as_number();
    if (name == "maximum") return !value.is_number() || value.as_number() <= rule.as_number();
    if (name == "exclusiveMaximum") return !value.is_number() || value.as_number() < rule.as_number();
    if (name == "minItems") return !value.is_array() || value.size() >= static_cast<std::size_t>(rule.as_integer());
    if (name == "maxItems") return !value.is_array() || value.size() <= static_cast<std::size_t>(rule.as_integer());
    if (name == "items") {
      return !value.is_array() || count(value, [&](const Json& item) { return !valid(rule, item); }) == 0;
    }
    if (name == "required") {
      return !value.is_object() || count(rule, [&](const Json& key) { return !value.find(key.as_string()); }) == 0;
    }
    if (name == "properties") return properties(rule, value);
    if (name == "additionalProperties") return rule.as_boolean() || only_known(schema.at("properties"), value);
    const std::string annotations[] = {"$schema", "$defs", "title", "description", "default"};
    EXPECT_NE(std::count(std::begin(annotations), std::end(annotations), name), 0) << "unknown keyword " << name;
    return true;
  }

  template <class F>
  static std::ptrdiff_t count(const Json& list, F predicate) {
    return std::count_if(list.items().begin(), list.items().end(), predicate);
  }

  static bool has_type(const std::string& type, const Json& value) {
    if (type == "integer") return value.is_number() && std::trunc(value.as_number()) == value.as_number();
    if (type == "number") return value.is_number();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "array") return value.is_array();
    if (type == "object") return value.is_object();
    EXPECT_EQ(type, "null");
    return value.is_null();
  }

  bool properties(const Json& rule, const Json& value) const {
    if (!value.is_object()) return true;
    return std::all_of(value.members().begin(), value.members().end(), [&](const hearth::JsonMember& member) {
      const Json* known = rule.find(member.key);
      return !known || valid(*known, member.value);
    });
  }

  static bool only_known(const Json& known, const Json& value) {
    if (!value.is_object()) return true;
    return std::all_of(value.members().begin(), value.members().end(),
                       [&](const hearth::JsonMember& member) { return known.find(member.key) != nullptr; });
  }

  const Json& root_;
};

bool library_accepts(const Json& document) {
  try {
    (void)hearth::resolve(*schema_of<RunConfig>(), document);
  } catch (const hearth::ConfigError&) {
    return false;
  }
  return true;
}

TEST(ConfigSchema, AgreesWithTheLibraryOnEveryDocument) {
  const Json schema = hearth::json_schema(*schema_of<RunConfig>(), "Example");
  const Validator validator(schema);
  for (const std::string& text : accepted) {
    const Json document = parse_json(text, "x");
    EXPECT_TRUE(library_accepts(document)) << text;
    EXPECT_TRUE(validator.valid(schema, document)) << text;
    const Json full = hearth::resolve(*schema_of<RunConfig>(), document);
    EXPECT_TRUE(validator.valid(schema, full)) << "resolved: " << hearth::to_text(full, 2);
  }
  for (const std::string& text : refused) {
    const Json document = parse_json(text, "x");
    EXPECT_FALSE(library_accepts(document)) << text;
    EXPECT_FALSE(validator.valid(schema, document)) << text;
  }
}

TEST(ConfigSchema, AnIndependentValidatorAgrees) {
  if (std::system("python3 -c 'from jsonschema import Draft202012Validator' >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "python3 has no jsonschema package with draft 2020-12";
  }
  const hearth::test::TempDir folder;
  Json cases = Json::array();
  const auto add = [&](const Json& document, bool valid) {
    cases.push_back(Json::object().set("document", document).set("valid", valid));
  };
  for (const std::string& text : accepted) {
    add(parse_json(text, "x"), true);
    add(hearth::resolve(*schema_of<RunConfig>(), parse_json(text, "x")), true);
  }
  for (const std::string& text : refused) add(parse_json(text, "x"), false);
  const std::string schema_path = folder / "hearth_config_schema_test.json";
  const std::string cases_path = folder / "hearth_config_schema_test_cases.json";
  const std::string script_path = folder / "hearth_config_schema_test.py";
  std::ofstream(schema_path) << hearth::to_text(hearth::json_schema(*schema_of<RunConfig>(), "Example"), 2);
  std::ofstream(cases_path) << hearth::to_text(cases);
  std::ofstream(script_path) << "import json, sys\n"
                                "from jsonschema import Draft202012Validator\n"
                                "schema = json.load(open(sys.argv[1]))\n"
                                "Draft202012Validator.check_schema(schema)\n"
                                "validator = Draft202012Validator(schema)\n"
                                "for case in json.load(open(sys.argv[2])):\n"
                                "    if validator.is_valid(case['document']) != case['valid']:\n"
                                "        sys.exit('wrong verdict on ' + json.dumps(case))\n";
  const std::string command = "python3 '" + script_path + "' '" + schema_path + "' '" + cases_path + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST(ConfigSchema, CarriesDefaultsDescriptionsAndDefinitions) {
  const Json schema = hearth::json_schema(*schema_of<RunConfig>(), "Example");
  EXPECT_EQ(schema.at("$schema").as_string(), "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(hearth::to_text(schema.at("properties").at("loss_scale")),
            R"({"anyOf":[{"type":"number","minimum":1},{"enum":["dynamic"]}],"description":"Factor of the loss.",)"
            R"("default":"dynamic"})");
  EXPECT_EQ(hearth::to_text(schema.at("properties").at("optimizer")),
            R"({"$ref":"#/$defs/optimizer","description":"How weights are updated."})");
  EXPECT_EQ(hearth::to_text(schema.at("required")), R"(["optimizer","train"])");
  EXPECT_EQ(hearth::to_text(schema.at("properties").at("train").at("properties").at("label_smoothing").at("default")),
            "0.25");
  EXPECT_EQ(schema.at("$defs").size(), 3u);
  EXPECT_EQ(hearth::to_text(schema.at("$defs").at("transform").at("properties").at("type")),
            R"({"enum":["flip","crop","maybe"]})");
}

TEST(ConfigSchema, TheReferencePageNamesEveryKeyOnce) {
  const std::string page = hearth::reference_markdown(*schema_of<RunConfig>(), "Configuration");
  EXPECT_EQ(page.find("# Configuration\n"), 0u);
  for (const char* line : {
           "| `name` | a string | `\"run\"` | Name of the run. |\n",
           "| `betas` | an array of 2 numbers >= 0 and < 1 | `[0.9,0.999]` | Decay of the moments. |\n",
           "| `loss_scale` | a number >= 1 or \"dynamic\" | `\"dynamic\"` | Factor of the loss. |\n",
           "| `optimizer` | [optimizer](#component-optimizer) | required | How weights are updated. |\n",
           "| `transforms` | array of [transform](#component-transform) | `[]` | What is done to each image. |\n",
           "| `epochs` | an integer >= 1 or null | `null` | Passes over the data. |\n",
           "| `weight_decay` | a number >= 0 | `0.01` | Decoupled weight decay \\| a step. |\n",
           "\n## `train`\n",
           "\n## Component `optimizer`\n",
           "\n### `{\"type\": \"sgd\"}`\n",
       }) {
    const std::size_t at = page.find(line);
    EXPECT_NE(at, std::string::npos) << line << "in\n" << page;
    if (at == std::string::npos) continue;
    EXPECT_EQ(page.find(line, at + 1), std::string::npos) << line;
  }
}

}  // namespace
