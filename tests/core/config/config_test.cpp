// SPDX-License-Identifier: Apache-2.0
// Described fields and registries: values, defaults, every kind of fault with its position, overrides, resolving.
#include "core/config/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/core/config/config_example.h"

namespace {

using config_example::example_run;
using config_example::RunConfig;
using config_example::Stem;
using hearth::apply_override;
using hearth::ConfigError;
using hearth::Json;
using hearth::parse_fields;
using hearth::parse_json;
using hearth::resolve;
using hearth::schema_of;

const char* const minimal = R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 8}})";

std::string fault_of(std::string_view text) {
  try {
    parse_fields<RunConfig>(parse_json(text, "run.json"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no fault";
}

// The fault of the minimal document with one member more.
std::string fault_with(const std::string& member) {
  return fault_of("{\"optimizer\": {\"type\": \"sgd\"}, \"train\": {\"batch_size\": 8},\n  " + member + "}");
}

TEST(Config, ValuesArriveInTheStruct) {
  const RunConfig run = parse_fields<RunConfig>(parse_json(example_run, "run.json"));
  EXPECT_EQ(run.name, "cifar");
  EXPECT_EQ(run.seed, 7u);
  EXPECT_EQ(run.stem, Stem::small);
  EXPECT_EQ(run.device, "cuda");
  EXPECT_EQ(run.loss_scale, 0.0) << "\"dynamic\" stands for 0";
  EXPECT_EQ(run.train.batch_size, 128);
  EXPECT_FLOAT_EQ(run.train.label_smoothing, 0.1f);
  EXPECT_EQ(run.train.epochs, std::optional<int>(30));
  EXPECT_EQ(run.train.steps, std::nullopt);
  EXPECT_EQ(run.betas, (std::array<double, 2>{0.8, 0.99}));
  EXPECT_EQ(run.milestones, (std::vector<std::int64_t>{10, 20}));
  EXPECT_EQ(run.tags, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(run.transforms.size(), 2u);
  EXPECT_EQ(run.transforms[1].node().at("inner").at("type").as_string(), "crop");
}

struct Average {
  std::optional<double> decay;
  bool warmup = false;
};
void describe(hearth::Fields<Average>& f) {
  f.number("decay", &Average::decay, {.above = 0, .below = 1}, "Decay.");
  f.boolean("warmup", &Average::warmup, "Warm-up.");
}
struct Averaging {
  Average average;
};
void describe(hearth::Fields<Averaging>& f) {
  f.object("average", &Averaging::average, "An average.").shorthand("decay");
}

TEST(Config, AValueMayStandForOneKeyOfAnObject) {
  const auto parsed = [](const char* text) { return parse_fields<Averaging>(parse_json(text, "run.json")).average; };
  EXPECT_EQ(parsed("{}").decay, std::nullopt);
  EXPECT_EQ(parsed(R"({"average": null})").decay, std::nullopt);
  EXPECT_EQ(parsed(R"({"average": 0.5})").decay, 0.5);
  EXPECT_FALSE(parsed(R"({"average": 0.5})").warmup);
  const Average whole = parsed(R"({"average": {"decay": 0.25, "warmup": true}})");
  EXPECT_EQ(whole.decay, 0.25);
  EXPECT_TRUE(whole.warmup);
  const Json full = resolve(*schema_of<Averaging>(), parse_json(R"({"average": 0.5})", "run.json"));
  EXPECT_EQ(to_text(full), R"({"average":{"decay":0.5,"warmup":false}})");
  for (const auto& [text, fault] :
       {std::pair{R"({"average": 2})", "run.json:1:13: /average/decay: expected a number > 0 and < 1, found 2"},
        std::pair{R"({"average": "x"})",
                  "run.json:1:13: /average/decay: expected a number > 0 and < 1, found the string \"x\""}})
    try {
      parsed(text);
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_STREQ(error.what(), fault);
    }
  EXPECT_EQ(schema_of<Averaging>()->fields()[0].expected(), "a number > 0 and < 1 or null or an object");
  const Json schema = json_schema(*schema_of<Averaging>(), "Test").at("properties").at("average").at("anyOf");
  EXPECT_EQ(schema.size(), 2u);
}

using Nothing = hearth::Registry<int()>;
Nothing& nothing() {
  static Nothing registry("nothing", "Types that a program adds.");
  return registry;
}
struct Open {
  std::vector<Nothing::Component> parts;
};
void describe(hearth::Fields<Open>& f) { f.component("parts", &Open::parts, nothing(), "Parts."); }

// A choice among none would be no valid schema.
TEST(Config, ARegistryWithoutTypesHasASchema) {
  const Json of_registry = json_schema(*schema_of<Open>(), "Test").at("$defs").at("nothing");
  EXPECT_EQ(of_registry.find("oneOf"), nullptr);
  EXPECT_EQ(of_registry.find("properties"), nullptr);
  EXPECT_EQ(of_registry.at("required").at(0).as_string(), "type");
  try {
    (void)parse_fields<Open>(parse_json(R"({"parts": [{"type": "any"}]})", "run.json"));
    ADD_FAILURE() << "an unknown type was accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("known types of nothing: none"), std::string::npos) << error.what();
  }
}

TEST(Config, AbsentKeysKeepTheMembersDefaults) {
  const RunConfig run = parse_fields<RunConfig>(parse_json(minimal, "run.json"));
  EXPECT_EQ(run.name, "run");
  EXPECT_EQ(run.loss_scale, 0.0);
  EXPECT_EQ(run.train.label_smoothing, 0.25f) << "the default is the outer struct's, not TrainOptions's own";
  EXPECT_EQ(run.schedule.type(), "constant");
  EXPECT_TRUE(run.transforms.empty());
}

TEST(Config, EachFaultNamesItsPlaceAndTheRemedy) {
  EXPECT_EQ(fault_with(R"("nmae": "x")"),
            "run.json:2:3: /nmae: unknown key \"nmae\"; did you mean \"name\"? known keys: name, seed, device, stem, "
            "loss_scale, betas, milestones, tags, transforms, optimizer, schedule, train, deterministic");
  EXPECT_EQ(fault_with(R"("name": 3)"), "run.json:2:11: /name: expected a string, found 3");
  EXPECT_EQ(fault_with(R"("deterministic": "yes")"),
            "run.json:2:20: /deterministic: expected true or false, found the string \"yes\"");
  EXPECT_EQ(fault_with(R"("seed": 2.5)"), "run.json:2:11: /seed: expected an integer >= 0, found 2.5");
  EXPECT_EQ(fault_with(R"("seed": -1)"), "run.json:2:11: /seed: expected an integer >= 0, found -1");
  EXPECT_EQ(fault_with(R"("stem": "imagnet")"),
            "run.json:2:11: /stem: unknown value \"imagnet\"; did you mean \"imagenet\"? allowed are: imagenet, small");
  EXPECT_EQ(fault_with(R"("stem": 1)"), "run.json:2:11: /stem: expected one of imagenet, small, found 1");
  EXPECT_EQ(fault_with(R"("loss_scale": 0.5)"),
            "run.json:2:17: /loss_scale: expected a number >= 1 or \"dynamic\", found 0.5");
  EXPECT_EQ(
      fault_with(R"("loss_scale": "dinamic")"),
      "run.json:2:17: /loss_scale: expected a number >= 1 or \"dynamic\", found the string \"dinamic\"; did you mean "
      "\"dynamic\"?");
  EXPECT_EQ(fault_with(R"("betas": [0.9])"),
            "run.json:2:12: /betas: expected an array of 2 numbers >= 0 and < 1, found an array of 1");
  EXPECT_EQ(fault_with(R"("betas": [0.9, 1.0])"), "run.json:2:18: /betas/1: expected a number >= 0 and < 1, found 1.0");
  EXPECT_EQ(fault_with(R"("milestones": 3)"),
            "run.json:2:17: /milestones: expected an array of at most 3 integers > 0, found 3");
  EXPECT_EQ(fault_with(R"("milestones": [1, "2"])"),
            "run.json:2:21: /milestones/1: expected an integer > 0, found the string \"2\"");
  EXPECT_EQ(fault_with(R"("milestones": [1, 2, 3, 4])"),
            "run.json:2:17: /milestones: expected an array of at most 3 integers > 0, found an array of 4");
  EXPECT_EQ(fault_with(R"("name": null)"), "run.json:2:11: /name: expected a string, found null");
}

TEST(Config, AKeyOfAnotherSectionIsSuggestedByItsPath) {
  const auto meant = [](const std::string& member, const std::string& train = "\"batch_size\": 8") {
    const std::string fault =
        fault_of("{\"optimizer\": {\"type\": \"sgd\"}, \"train\": {" + train + "}" + member + "}");
    const std::size_t begin = fault.find("did you mean "), end = fault.find("? known keys");
    return begin == std::string::npos ? "" : fault.substr(begin + 13, end - begin - 13);
  };
  EXPECT_EQ(meant(R"(, "epochs": 3)"), "\"train.epochs\"");
  EXPECT_EQ(meant(R"(, "epcohs": 3)"), "\"train.epochs\"");
  EXPECT_EQ(meant(R"(, "momentum": 3)"), "\"optimizer.momentum\"");
  EXPECT_EQ(meant(R"(, "weight_decay": 3)"), "") << "this optimizer has none";
  EXPECT_EQ(meant("", R"("batch_size": 8, "lr": 1)"), "\"optimizer.lr\"");
  EXPECT_EQ(meant("", R"("batch_size": 8, "stpes": 1)"), "\"steps\"") << "its own come first";
  EXPECT_EQ(meant(R"(, "warmup": 1, "schedule": {"type": "constant"})"), "\"schedule.warmup\"");
}

TEST(Config, FaultsEscapeControlCharacters) {
  const std::string fault = fault_with(R"("a\u001b[31m\nb": 1)");
  EXPECT_EQ(fault.find(R"(run.json:2:3: /a\x1b[31m\nb: unknown key "a\x1b[31m\nb"; known keys: )"), 0u) << fault;
}

TEST(Config, NestedObjectsAreChecked) {
  EXPECT_EQ(fault_of(R"({"optimizer": {"type": "sgd"}})"),
            "run.json:1:1: /train: this key is missing and required: an object. The training loop.");
  EXPECT_EQ(fault_of(R"({"optimizer": {"type": "sgd"}, "train": {}})"),
            "run.json:1:41: /train/batch_size: this key is missing and required: an integer >= 1. Samples a step.");
  EXPECT_EQ(fault_of(R"({"optimizer": {"type": "sgd"}, "train": [1]})"),
            "run.json:1:41: /train: expected an object, found an array");
  EXPECT_EQ(
      fault_of(R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 3000000000}})"),
      "run.json:1:56: /train/batch_size: 3000000000 is outside what this key can hold, -2147483648 to 2147483647");
  EXPECT_EQ(fault_of(R"({"optimizer": {"type": "sgd"}, "train": {"batch_size": 1, "epochs": 1, "steps": 2}})"),
            "run.json:1:41: /train: give epochs or steps, not both");
  EXPECT_EQ(fault_of("[]"), "run.json:1:1: /: expected an object, found an empty array");
}

TEST(Config, ComponentsAreCheckedAgainstTheirType) {
  const auto fault = [](const std::string& optimizer) {
    return fault_of("{\"train\": {\"batch_size\": 8}, \"optimizer\": " + optimizer + "}");
  };
  EXPECT_EQ(
      fault(R"({"type": "sdg"})"),
      "run.json:1:52: /optimizer/type: unknown optimizer \"sdg\"; did you mean \"sgd\"? known types of optimizer: "
      "sgd, adamw");
  EXPECT_EQ(fault(R"({"lr": 1})"),
            "run.json:1:43: /optimizer/type: this key is missing and required; known types of optimizer: sgd, adamw");
  EXPECT_EQ(fault(R"({"type": 1})"),
            "run.json:1:52: /optimizer/type: expected a string, found 1; known types of optimizer: sgd, adamw");
  EXPECT_EQ(fault("\"sgd\""),
            "run.json:1:43: /optimizer: expected an object with \"type\" (optimizer), found the string \"sgd\"; write "
            "{\"type\": \"sgd\"}");
  EXPECT_EQ(fault("null"), "run.json:1:43: /optimizer: expected an object with \"type\" (optimizer), found null");
  EXPECT_EQ(fault(R"({"type": "adamw", "momentum": 0})"),
            "run.json:1:61: /optimizer/momentum: unknown key \"momentum\"; known keys: type, lr, weight_decay");
  EXPECT_EQ(fault(R"({"type": "sgd", "lr": 0})"), "run.json:1:65: /optimizer/lr: expected a number > 0, found 0");
  EXPECT_EQ(fault(R"({"type": "sgd", "nesterov": true})"), "run.json:1:43: /optimizer: nesterov needs momentum");
  EXPECT_EQ(fault_with(R"("transforms": [{"type": "flip"}, {"type": "maybe", "inner": {"type": "crop", "size": 0}}])"),
            "run.json:2:88: /transforms/1/inner/size: expected an integer >= 1, found 0");
}

TEST(Config, AllFaultsAreReportedTogether) {
  const std::string faults =
      fault_of(R"({"sede": 1, "name": 2, "optimizer": {"type": "sgd", "lr": -1}, "train": {"x": 1}})");
  EXPECT_EQ(std::count(faults.begin(), faults.end(), '\n'), 4) << faults;
  for (const char* part : {"/sede: ", "/name: ", "/optimizer/lr: ", "/train/x: ", "/train/batch_size: "}) {
    EXPECT_NE(faults.find(part), std::string::npos) << part << " in\n" << faults;
  }
}

TEST(Config, SchemaAndCommentKeysAreIgnoredEverywhere) {
  EXPECT_EQ(fault_of(R"({"$schema": "x", "comment": [1], "optimizer": {"comment": "c", "type": "sgd", "$schema": 1},
                         "train": {"comment": {}, "batch_size": 8}})"),
            "no fault");
}

TEST(Config, EveryMistypedKeySuggestsTheOriginal) {
  std::mt19937 random(5);
  const std::string alphabet = "abcdefghijklmnopqrstuvwxyz_";
  for (const std::string& key : schema_of<RunConfig>()->names()) {
    for (int round = 0; round < 60; ++round) {
      std::string wrong = key;
      const std::size_t at = random() % wrong.size();
      const char c = alphabet[random() % alphabet.size()];
      switch (round % 4) {
        case 0:
          wrong[at] = c;
          break;
        case 1:
          wrong.insert(at, 1, c);
          break;
        case 2:
          wrong.erase(at, 1);
          break;
        default:
          std::swap(wrong[at], wrong[at + 1 < wrong.size() ? at + 1 : at - 1]);
      }
      if (schema_of<RunConfig>()->find(wrong)) continue;
      EXPECT_NE(fault_with("\"" + wrong + "\": 0").find("did you mean \"" + key + "\"?"), std::string::npos)
          << wrong << " for " << key;
    }
  }
  EXPECT_EQ(fault_with("\"qqqqqq\": 0").find("did you mean"), std::string::npos);
}

TEST(Config, RegistriesMakeWhatTheNodeDescribes) {
  const auto& optimizers = config_example::optimizers();
  const Json node = parse_json(R"({"type": "sgd", "lr": 0.5, "momentum": 0.9})", "o.json");
  EXPECT_EQ(optimizers.make(node, 10), "sgd 0.5 0.9 for 10");
  EXPECT_EQ(optimizers.make(Json::object().set("type", "adamw"), 3), "adamw 0.001 for 3");
  try {
    (void)optimizers.make(parse_json(R"({"type": "sgd", "momentum": 2, "x": 1})", "o.json"), 1);
    FAIL() << "made from a faulty node";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("o.json:1:29: /momentum: expected a number >= 0 and < 1, found 2"), std::string::npos) << text;
    EXPECT_NE(text.find("o.json:1:32: /x: unknown key"), std::string::npos) << text;
  }
  EXPECT_THROW((void)optimizers.make(Json(), 1), ConfigError);
}

TEST(Config, TypesAreAddedAtRunTimeAndOnlyOnce) {
  hearth::Registry<int()> registry("thing", "Things.");
  registry.add<hearth::NoOptions>("one", "One.", [](const hearth::NoOptions&) { return 1; });
  EXPECT_EQ(registry.make(Json::object().set("type", "one")), 1);
  const auto again = [&] { registry.add<hearth::NoOptions>("one", "", [](const hearth::NoOptions&) { return 2; }); };
  EXPECT_THROW(again(), hearth::UsageError);
  EXPECT_EQ(registry.make(Json::object().set("type", "one")), 1);
}

struct Twice {
  int a = 0;
};
TEST(Config, DescriptionsRefuseRepeatedAndReservedKeys) {
  hearth::Fields<Twice> fields;
  EXPECT_THROW(fields.required(), hearth::UsageError);
  fields.integer("a", &Twice::a, {}, "");
  EXPECT_THROW(fields.integer("a", &Twice::a, {}, ""), hearth::UsageError);
  EXPECT_THROW(fields.integer("type", &Twice::a, {}, ""), hearth::UsageError);
  EXPECT_THROW(fields.integer("comment", &Twice::a, {}, ""), hearth::UsageError);
  EXPECT_THROW(fields.integer("", &Twice::a, {}, ""), hearth::UsageError);
}

struct Span {
  int first = 0;
  int last = 0;
};
void describe(hearth::Fields<Span>& f) {
  f.integer("first", &Span::first, {}, "");
  f.integer("last", &Span::last, {}, "");
  f.rule([](const Span& s) { return s.first > s.last ? "first is after last" : ""; });
}
struct Outer {
  Span span{.first = 5, .last = 9};
};
void describe(hearth::Fields<Outer>& f) { f.object("span", &Outer::span, ""); }

TEST(Config, DefaultsOfANestedStructAreThoseOfTheOuterOne) {
  const Json node = parse_json(R"({"span": {"first": 7}})", "x");
  EXPECT_EQ(parse_fields<Outer>(node).span.last, 9) << "and the rule sees them";
  EXPECT_EQ(hearth::to_text(resolve(*schema_of<Outer>(), node)), R"({"span":{"first":7,"last":9}})");
  EXPECT_THROW(parse_fields<Span>(node.at("span")), ConfigError);
  EXPECT_THROW(parse_fields<Outer>(parse_json(R"({"span": {"first": 10}})", "x")), ConfigError);
}

TEST(Config, StructsRoundTripThroughJson) {
  const RunConfig run = parse_fields<RunConfig>(parse_json(example_run, "run.json"));
  const Json json = hearth::to_json(run);
  EXPECT_EQ(json.at("loss_scale").as_string(), "dynamic");
  EXPECT_EQ(json.at("stem").as_string(), "small");
  EXPECT_EQ(hearth::to_text(json.at("train").at("label_smoothing")), "0.1") << "a float is shown as it was written";
  EXPECT_EQ(hearth::to_json(parse_fields<RunConfig>(parse_json(hearth::to_text(json, 2), "again"))), json);
}

TEST(ConfigResolve, EveryKeyIsPresentWithItsOrigin) {
  Json root =
      parse_json(R"({"seed": 3, "optimizer": {"type": "sgd", "lr": 0.5}, "train": {"batch_size": 8}})", "run.json");
  apply_override(root, "train.epochs=4");
  apply_override(root, "optimizer.momentum=0.5");
  apply_override(root, "device=cpu");
  const Json full = resolve(*schema_of<RunConfig>(), root);
  EXPECT_EQ(full.at("seed").as_integer(), 3);
  EXPECT_EQ(full.at("name").as_string(), "run");
  EXPECT_EQ(full.at("train").at("epochs").as_integer(), 4);
  EXPECT_EQ(hearth::to_text(full.at("optimizer")), R"({"type":"sgd","lr":0.5,"momentum":0.5,"nesterov":false})");
  EXPECT_EQ(hearth::to_text(full.at("schedule")), R"({"type":"constant","warmup":0})");
  std::vector<std::string> keys;
  for (const auto& member : full.members()) keys.push_back(member.key);
  EXPECT_EQ(keys, schema_of<RunConfig>()->names());
  const Json from = hearth::origins(full);
  EXPECT_EQ(from.at("/seed").as_string(), "file");
  EXPECT_EQ(from.at("/name").as_string(), "default");
  EXPECT_EQ(from.at("/train/epochs").as_string(), "--set");
  EXPECT_EQ(from.at("/device").as_string(), "--set");
  EXPECT_EQ(from.at("/train/batch_size").as_string(), "file");
  EXPECT_EQ(from.at("/train/label_smoothing").as_string(), "default");
  EXPECT_EQ(from.at("/optimizer/momentum").as_string(), "--set");
  EXPECT_EQ(from.at("/optimizer/nesterov").as_string(), "default");
  EXPECT_EQ(from.at("/schedule/type").as_string(), "default");
  EXPECT_EQ(resolve(*schema_of<RunConfig>(), full), full) << "a resolved document resolves to itself";
}

TEST(ConfigResolve, ListsOfComponentsAreResolvedInDepth) {
  const Json full = resolve(*schema_of<RunConfig>(), parse_json(example_run, "run.json"));
  EXPECT_EQ(hearth::to_text(full.at("transforms")),
            R"([{"type":"flip"},{"type":"maybe","probability":0.5,"inner":{"type":"crop","size":32}}])");
  EXPECT_EQ(hearth::origins(full).at("/transforms/1/probability").as_string(), "default");
}

std::string after_override(std::string_view document, std::string_view assignment) {
  Json root = parse_json(document, "run.json");
  try {
    apply_override(root, assignment);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return hearth::to_text(root);
}

TEST(ConfigOverride, WhatAConfigCouldNotKeepIsRefused) {
  EXPECT_EQ(after_override("{}", "path=caf\xc3\xa9"), "{\"path\":\"caf\xc3\xa9\"}");
  for (const char* assignment : {"path=caf\xe9", "path=\"caf\xe9\"", "caf\xe9=1"})
    EXPECT_NE(after_override("{}", assignment).find("is not UTF-8"), std::string::npos) << assignment;
}

TEST(ConfigOverride, ValuesAreSetByEitherSpelling) {
  EXPECT_EQ(after_override(R"({"o":{"lr":1}})", "o.lr=0.5"), R"({"o":{"lr":0.5}})");
  EXPECT_EQ(after_override(R"({"o":{"lr":1}})", "/o/lr=0.5"), R"({"o":{"lr":0.5}})");
  EXPECT_EQ(after_override(R"({"a":[1,2,{"b":3}]})", "a[2].b=4"), R"({"a":[1,2,{"b":4}]})");
  EXPECT_EQ(after_override(R"({"a":[1,2,{"b":3}]})", "a.2.b=4"), R"({"a":[1,2,{"b":4}]})");
  EXPECT_EQ(after_override(R"({"a":[[1,2]]})", "a[0][1]=x"), R"({"a":[[1,"x"]]})");
  EXPECT_EQ(after_override("{}", "a.b.c=true"), R"({"a":{"b":{"c":true}}})");
  EXPECT_EQ(after_override(R"({"a":null})", "a.b=1"), R"({"a":{"b":1}})");
  EXPECT_EQ(after_override("{}", "/a~1b/~0=1"), R"({"a/b":{"~":1}})");
  EXPECT_EQ(after_override("{}", "name=hello world"), R"({"name":"hello world"})");
  EXPECT_EQ(after_override("{}", "name=a=b"), R"({"name":"a=b"})");
  EXPECT_EQ(after_override("{}", "name="), R"({"name":""})");
  EXPECT_EQ(after_override("{}", "o={\"type\": \"sgd\"}"), R"({"o":{"type":"sgd"}})");
}

TEST(ConfigOverride, MalformedOnesAreRefused) {
  EXPECT_EQ(after_override("{}", "name"), "--set name: expected PATH=VALUE, as in optimizer.lr=0.1");
  EXPECT_EQ(after_override("{}", "=1"),
            "--set =1: there is no path before '='; expected PATH=VALUE, as in optimizer.lr=0.1");
  EXPECT_EQ(after_override("{}", "a..b=1"), "--set a..b=1: the path a..b has an empty key");
  EXPECT_EQ(after_override("{}", "/=1"), "--set /=1: the path / has an empty key");
  EXPECT_EQ(after_override("{}", "a[x]=1"), "--set a[x]=1: an element is written [NUMBER], as in transforms[2].size");
  EXPECT_EQ(after_override("{}", "a[1=1"), "--set a[1=1: an element is written [NUMBER], as in transforms[2].size");
  EXPECT_EQ(after_override("{}", "a[1]b=1"), "--set a[1]b=1: an element is written [NUMBER], as in transforms[2].size");
  EXPECT_EQ(after_override("{}", "a]=1"), "--set a]=1: ']' without '['");
  EXPECT_EQ(after_override("{}", "/a~2=1"), "--set /a~2=1: '~' in a JSON pointer is written ~0, and '/' in a key ~1");
  EXPECT_EQ(after_override(R"({"a":[1]})", "a[1]=1"), "--set a[1]=1: /a has 1 elements, there is no element 1");
  EXPECT_EQ(after_override(R"({"a":[1]})", "a.x=1"), "--set a.x=1: /a is an array; give an index in place of \"x\"");
  EXPECT_EQ(after_override(R"({"a":3})", "a.x=1"), "--set a.x=1: /a is 3; it has no key \"x\"");
  EXPECT_EQ(after_override(R"({"a":{}})", "a[0]=1"),
            "--set a[0]=1: /a is an object, not an array; [0] is an element of one");
  EXPECT_EQ(after_override("{}", "a={\"b\": }"), "--set a={\"b\": }: /b: expected a value, found '}'");
  EXPECT_NE(after_override("{}", "a[99999999999999999999]=1").find("--set"), std::string::npos);
}

TEST(ConfigOverride, FaultsOfSuchValuesNameTheAssignment) {
  const auto fault = [](std::string_view assignment) -> std::string {
    Json root = parse_json(minimal, "run.json");
    apply_override(root, assignment);
    try {
      (void)hearth::resolve(*schema_of<RunConfig>(), root);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no fault";
  };
  EXPECT_EQ(fault("optimizer.lr=-1"), "--set optimizer.lr=-1: /optimizer/lr: expected a number > 0, found -1");
  EXPECT_EQ(
      fault("optimizer.l=1")
          .find("--set optimizer.l=1: /optimizer/l: unknown key \"l\"; did you mean \"lr\"? known keys: type, lr"),
      0u);
  EXPECT_EQ(fault("train={\"batch_size\": \"x\"}"),
            "--set train={\"batch_size\": \"x\"}: /train/batch_size: expected an integer >= 1, found the string \"x\"");
  EXPECT_EQ(fault("train.batch_size=64"), "no fault");
}

struct Renamed {
  double probability = 0;
};
void describe(hearth::Fields<Renamed>& f) {
  f.number("probability", &Renamed::probability, {.min = 0, .max = 1}, "How often.").formerly("rate");
}

TEST(Config, AFormerNameIsReadWithAHint) {
  const Json root = parse_json(R"({"rate": 0.5})", "run.json");
  Json full;
  EXPECT_EQ(parse_fields<Renamed>(root, "", &full).probability, 0.5);
  EXPECT_EQ(full, Json::object().set("probability", 0.5));
  EXPECT_EQ(hearth::renamed_keys(*schema_of<Renamed>(), root),
            std::vector<std::string>{"run.json:1:2: /rate: this key is now called \"probability\"; the next release "
                                     "will not know the former name"});
  const Json now = parse_json(R"({"probability": 0.5})", "run.json");
  EXPECT_TRUE(hearth::renamed_keys(*schema_of<Renamed>(), now).empty());
  EXPECT_THROW(parse_fields<Renamed>(parse_json(R"({"rate": 0.5, "probability": 0.4})", "run.json")), ConfigError);
  EXPECT_THROW(parse_fields<Renamed>(parse_json(R"({"rate": 2})", "run.json")), ConfigError);
}

}  // namespace
