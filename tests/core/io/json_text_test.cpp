// SPDX-License-Identifier: Apache-2.0
// The JSON parser against an independent one, its error positions, and the writer's round trips.
#include "core/io/json_text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/support/temp_dir.h"

namespace {

using hearth::ConfigError;
using hearth::Json;
using hearth::parse_json;
using hearth::to_text;
using std::string_literals::operator""s;

std::string fault_of(std::string_view text) {
  try {
    parse_json(text, "run.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no fault";
}

nlohmann::json converted(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::null:
      return nullptr;
    case Json::Kind::boolean:
      return value.as_boolean();
    case Json::Kind::integer:
      return value.as_integer();
    case Json::Kind::number:
      return value.as_number();
    case Json::Kind::string:
      return value.as_string();
    case Json::Kind::array: {
      nlohmann::json result = nlohmann::json::array();
      for (const Json& item : value.items()) result.push_back(converted(item));
      return result;
    }
    case Json::Kind::object: {
      nlohmann::json result = nlohmann::json::object();
      for (const auto& member : value.members()) result[member.key] = converted(member.value);
      return result;
    }
  }
  return nullptr;
}

const std::string documents[] = {
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1",
    "-1",
    "12345",
    "9223372036854775807",
    "-9223372036854775808",
    "0.0",
    "-0.0",
    "1.5",
    "1e3",
    "1E3",
    "1e+3",
    "1e-3",
    "1.25e-10",
    "0e0",
    "2.2250738585072014e-308",
    "1.7976931348623157e308",
    "5e-324",
    "0.1",
    "0.30000000000000004",
    "123456789.123456789",
    R"("")",
    R"("abc")",
    R"("a\"b\\c\/d\b\f\n\r\t")",
    R"("\u0041")",
    R"("\u00e9\u20AC")",
    R"("\ud83d\ude00")",
    "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"",
    R"("\u0000")",
    "[]",
    "{}",
    "[1]",
    "[1,2,3]",
    " [ 1 , 2 ] ",
    "\t\r\n[\n1\n,\r\n2]\n",
    R"({"a":1})",
    R"({"a":1,"b":[true,null,{"c":{}}]})",
    R"({"":0})",
    R"({"a b":{"c/d":"~"}})",
    "[[[[[[[[[[]]]]]]]]]]",
    "\xEF\xBB\xBF[1]",
    R"([1,"x",2.5,{"k":[]}])",
    // From here on nothing is JSON.
    "",
    " ",
    "nul",
    "nulll",
    "True",
    "TRUE",
    "tru e",
    "undefined",
    "NaN",
    "Infinity",
    "-",
    "-a",
    "+1",
    "01",
    "-01",
    "1.",
    ".5",
    "1.e3",
    "1e",
    "1e+",
    "1ee3",
    "0x10",
    "1_000",
    "1 2",
    "1,",
    "[",
    "]",
    "[1",
    "[1,",
    "[1,]",
    "[,1]",
    "[1 2]",
    "[1,,2]",
    "{",
    "}",
    R"({"a"})",
    R"({"a":})",
    R"({"a":1,})",
    R"({,"a":1})",
    R"({"a" 1})",
    R"({"a":1 "b":2})",
    R"({a:1})",
    R"({'a':1})",
    R"({1:1})",
    R"({"a":1)",
    R"({"a":1]})",
    "[1}",
    R"(")",
    R"("abc)",
    R"("\x")",
    R"("\u12")",
    R"("\u12G4")",
    R"("\ud800")",
    R"("\ud800\u0041")",
    R"("\udc00")",
    R"("\)",
    "\"a\nb\"",
    "\"a\tb\"",
    "\"\x01\"",
    "\"\xC0\x80\"",
    "\"\xED\xA0\x80\"",
    "\"\xF4\x90\x80\x80\"",
    "\"\xFF\"",
    "\"\xE2\x82\"",
    "\"\xC3\"",
    "// c\n1",
    "/* c */ 1",
    "1 // c",
    "[1]x",
    "{}{}",
    "\"a\"\"b\"",
    "\xEF\xBB",
    "'a'",
    "[1;2]",
    "\f1",
    "\v1",
    "1e400",
    "-1e400",

    "\0"s,
};

TEST(JsonParse, AgreesWithAnIndependentParserOnEveryDocument) {
  int accepted = 0;
  int refused = 0;
  for (const std::string& text : documents) {
    const nlohmann::json expected = nlohmann::json::parse(text, nullptr, false);
    const std::string fault = fault_of(text);
    EXPECT_EQ(expected.is_discarded(), fault != "no fault") << "text: " << text << "\nfault: " << fault;
    if (expected.is_discarded() || fault != "no fault") {
      ++refused;
      continue;
    }
    ++accepted;
    const nlohmann::json found = converted(parse_json(text, "x"));
    EXPECT_EQ(found, expected) << text;
    EXPECT_EQ(found.type(), nlohmann::json(expected).type() == nlohmann::json::value_t::number_unsigned
                                ? nlohmann::json::value_t::number_integer
                                : expected.type())
        << text;
  }
  EXPECT_GE(accepted, 45);
  EXPECT_GE(refused, 75);
}

TEST(JsonParse, AgreesWithAnIndependentParserOnDamagedDocuments) {
  const std::string whole = R"({"a":[1,-2.5e3,true,null],"b":{"c":"x\n\u00e9","d":[{},[]]},"e":"\ud83d\ude00"})";
  const std::string alphabet = "{}[]\",:0123456789.eE+-truefalsn\\u \n\xC3\xA9";
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = whole;
    for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      const char c = alphabet[random() % alphabet.size()];
      switch (random() % 3) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, 1, c);
          break;
        default:
          text.erase(at, 1);
      }
    }
    const nlohmann::json expected = nlohmann::json::parse(text, nullptr, false);
    const std::string fault = fault_of(text);
    // The other parser lets a repeated key, and an integer beyond 64 bits, pass.
    if (fault.find("given before") != std::string::npos || fault.find("64-bit") != std::string::npos) continue;
    ASSERT_EQ(expected.is_discarded(), fault != "no fault") << "text: " << text << "\nfault: " << fault;
    refused += expected.is_discarded();
    if (expected.is_discarded()) continue;
    ASSERT_EQ(converted(parse_json(text, "x")), expected) << text;
  }
  EXPECT_GT(refused, 5000);
}

TEST(JsonParse, FaultsNameTheirPlaceAndPointer) {
  EXPECT_EQ(fault_of("{\n  \"a\": 1,\n  \"a\": 2\n}"), "run.json:3:3: /a: this key was given before");
  EXPECT_EQ(fault_of("{\"a\": [1, 2,\n]}"), "run.json:2:1: /a: trailing comma before ']'");
  EXPECT_EQ(fault_of("{\"a\": 1,}"), "run.json:1:9: /: trailing comma before '}'");
  EXPECT_EQ(fault_of("{\"x\": {\"y\":\n   tru}}"), "run.json:2:4: /x/y: expected true, false or null, found 'tru'");
  EXPECT_EQ(fault_of("[1]\n\n  2"), "run.json:3:3: /: expected the end of the text after the value, found '2'");
  EXPECT_EQ(fault_of("[0, 99999999999999999999]"),
            "run.json:1:5: /1: the number 99999999999999999999 does not fit a 64-bit integer");
  EXPECT_EQ(fault_of("{\"a/b\": {\"~\": 1e999}}"), "run.json:1:15: /a~1b/~0: the number 1e999 does not fit a double");
  EXPECT_EQ(fault_of("[\"abc"), "run.json:1:2: /0: this string has no closing quote");
  EXPECT_EQ(fault_of("{\"a\": \"b\n\"}"), "run.json:1:9: /a: a string cannot contain a line break; write \\n");
  EXPECT_EQ(fault_of("[-x]"), "run.json:1:2: /0: expected a digit at the beginning of a number, found 'x'");
  EXPECT_EQ(fault_of("[1 2]"), "run.json:1:4: /: expected ',' or ']' after an element, found '2'");
  EXPECT_EQ(fault_of("{\"a\" 1}"), "run.json:1:6: /a: expected ':' after a key, found '1'");
  EXPECT_EQ(fault_of("[1]\0"s), "run.json:1:4: /: expected the end of the text after the value, found the byte 0");
  EXPECT_EQ(fault_of(""), "run.json:1:1: /: expected a value, found the end of the text");
  EXPECT_EQ(fault_of("[\"\xC3\xA9\xC3\xA9\", x]"), "run.json:1:8: /1: expected a value, found 'x'")
      << "columns count characters";
}

TEST(JsonParse, SixtyFourLevelsAreTheLimit) {
  EXPECT_EQ(fault_of(std::string(64, '[') + std::string(64, ']')), "no fault");
  EXPECT_EQ(fault_of(std::string(64, '[') + "1" + std::string(64, ']')), "no fault");
  const std::string fault = fault_of(std::string(65, '[') + std::string(65, ']'));
  EXPECT_EQ(fault.find("run.json:1:65: /0/0/"), 0u) << fault;
  EXPECT_NE(fault.find("more than 64 levels of nesting"), std::string::npos) << fault;
  EXPECT_NE(fault_of(std::string(1000000, '[')).find("run.json:1:65: /0/0/"), std::string::npos);
}

// A text of 8 MB takes a gigabyte otherwise.
TEST(JsonParse, FourMillionValuesAreTheLimit) {
  std::string text = "[0";
  for (int i = 1; i < 1 << 22; ++i) text += ",0";
  EXPECT_NE(fault_of(text + "]").find("more than 4194304 values"), std::string::npos);
}

TEST(JsonParse, FindsDuplicatesInLargeObjects) {
  std::string text = "{";
  for (int i = 0; i < 100; ++i) text += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_EQ(fault_of(text + "\"z\":1}"), "no fault");
  EXPECT_NE(fault_of(text + "\"k3\":1}").find("/k3: this key was given before"), std::string::npos);
  EXPECT_NE(fault_of(text + "\"k99\":1}").find("/k99: this key was given before"), std::string::npos);
}

TEST(JsonParse, EveryNodeKnowsWhereItBegins) {
  const Json json = parse_json("{\n  \"a\": [1,\n    {\"b\": null}],\n  \"c\": \"x\"}", "f.json");
  EXPECT_EQ(json.position().text(), "f.json:1:1");
  EXPECT_EQ(json.at("a").position().text(), "f.json:2:8");
  EXPECT_EQ(json.at("a").at(0).position().text(), "f.json:2:9");
  EXPECT_EQ(json.at("a").at(1).position().text(), "f.json:3:5");
  EXPECT_EQ(json.at("a").at(1).at("b").position().text(), "f.json:3:11");
  EXPECT_EQ(json.members()[1].key_position.text(), "f.json:4:3");
  EXPECT_EQ(json.position().origin, hearth::JsonOrigin::file);
}

TEST(JsonValue, AccessorsRefuseOtherKindsWithThePosition) {
  const Json json = parse_json(R"({"a": "x", "n": 1.5, "i": 4.0})", "f.json");
  EXPECT_EQ(json.at("i").as_integer(), 4);
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message([&] { (void)json.at("a").as_integer(); }),
            "f.json:1:7: expected an integer, found the string \"x\"");
  EXPECT_EQ(message([&] { (void)json.at("n").as_integer(); }), "f.json:1:17: expected an integer, found 1.5");
  EXPECT_EQ(message([&] { (void)json.at("a").items(); }), "f.json:1:7: expected an array, found the string \"x\"");
  EXPECT_EQ(message([&] { (void)json.at("z"); }), "f.json:1:1: no member \"z\"; there are: a, n, i");
  EXPECT_THROW(Json::array().at(std::size_t{0}), ConfigError);
  EXPECT_THROW(Json().push_back(1), ConfigError);
  EXPECT_THROW((void)Json(std::numeric_limits<std::uint64_t>::max()), hearth::UsageError);
}

TEST(JsonWrite, BuildersGiveTheExpectedText) {
  Json json = Json::object();
  json.set("step", 3).set("loss", 2.5).set("split", "train").set("ok", true).set("none", nullptr);
  json.set("list", Json::array_of(std::vector<int>{1, 2})).set("empty", Json::object()).set("step", 4);
  EXPECT_EQ(to_text(json), R"({"step":4,"loss":2.5,"split":"train","ok":true,"none":null,"list":[1,2],"empty":{}})");
  EXPECT_EQ(to_text(parse_json(R"({"a":[{"b":1},2],"c":[1,2]})", "x"), 2),
            "{\n  \"a\": [\n    {\n      \"b\": 1\n    },\n    2\n  ],\n  \"c\": [1, 2]\n}");
  EXPECT_EQ(to_text(Json("\x1f ")), "\"\\u001f \"");
  EXPECT_EQ(to_text(Json("\x01\"\\\n\xFF\xC3\xA9")), "\"\\u0001\\\"\\\\\\n\xEF\xBF\xBD\xC3\xA9\"");
  EXPECT_EQ(to_text(Json(std::numeric_limits<double>::infinity())), "null");
}

TEST(JsonWrite, DoublesReadBackAsTheSameBits) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 20000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    const std::string text = to_text(Json(value));
    const Json back = parse_json(text, "x");
    ASSERT_EQ(back.kind(), Json::Kind::number) << text;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(back.as_number()), std::bit_cast<std::uint64_t>(value)) << text;
  }
  EXPECT_EQ(to_text(Json(3.0)), "3.0");
  EXPECT_EQ(to_text(Json(0.1f)), "0.10000000149011612");
  EXPECT_EQ(to_text(Json(1e21)), "1e+21");
}

TEST(JsonWrite, AcceptedDocumentsRoundTrip) {
  for (const std::string& text : documents) {
    if (fault_of(text) != "no fault") continue;
    const Json value = parse_json(text, "x");
    EXPECT_EQ(parse_json(to_text(value), "y"), value) << text;
    EXPECT_EQ(parse_json(to_text(value, 3), "y"), value) << text;
  }
}

TEST(JsonRead, FilesAreReadAndMissingOnesNamed) {
  const hearth::test::TempDir folder;
  const std::string path = folder / "config.json";
  std::ofstream(path) << "{\"a\": [1, 2]}\n";
  EXPECT_EQ(hearth::read_json(path).at("a").at(1).as_integer(), 2);
  std::remove(path.c_str());
  try {
    hearth::read_json(path);
    FAIL() << "a missing file was read";
  } catch (const hearth::FileError& error) {
    EXPECT_NE(std::string(error.what()).find(path + ": opening failed: No such file"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(hearth::read_json(folder.path()), hearth::FileError) << "a folder is not a file";
}

}  // namespace
