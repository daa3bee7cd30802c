// SPDX-License-Identifier: Apache-2.0
// Every key of every shipped configuration, misspelt by one letter, is refused with the right one suggested.
#include <gtest/gtest.h>

#include <fstream>

#include "core/io/file.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"
#include "train/config/run_config.h"

namespace hearth::train::misspelt_config_test {
namespace {

std::string misspelt(const std::string& key) {
  if (key.size() < 4) return key + key.back();
  std::string result = key;
  result.erase(key.size() / 2, 1);
  return result;
}

// f(key, set) for every key below `node`; set(text) renames the key in the document.
template <class F>
void for_each_key(Json& node, const F& f) {
  if (node.is_array())
    for (Json& item : node.items()) for_each_key(item, f);
  if (!node.is_object()) return;
  for (JsonMember& member : node.members()) {
    if (member.key == "comment" || member.key == "$schema") continue;
    const std::string key = member.key;
    f(key, [&](const std::string& text) { member.key = text; });
    for_each_key(member.value, f);
  }
}

TEST(MisspeltConfig, is_refused_and_the_key_suggested) {
  const test::TempDir folder;
  const std::string path = folder / "run.json";
  const std::string configs = test::source_dir() + "/examples/configs";
  std::size_t keys = 0, suggested = 0;
  for (const std::string& name : list_directory(configs)) {
    Json root = read_json(configs + "/" + name);
    for_each_key(root, [&](const std::string& key, const auto& rename) {
      const std::string wrong = misspelt(key);
      rename(wrong);
      std::ofstream(path) << to_text(root, 2);
      rename(key);
      const std::string message = test::error_message<ConfigError>([&] { load_config(path, {}); });
      EXPECT_PRED2(test::contains, message, wrong == "tye" ? "/type" : wrong) << name;
      ++keys;
      if (test::contains(message, "\"" + key + "\"") || key == "type") ++suggested;
    });
    std::ofstream(path) << to_text(root, 2);
    EXPECT_NO_THROW(load_config(path, {})) << name << ", with every key right again";
  }
  EXPECT_GE(keys, 50u);
  EXPECT_GE(static_cast<double>(suggested), 0.95 * static_cast<double>(keys));
}

}  // namespace
}  // namespace hearth::train::misspelt_config_test
