// SPDX-License-Identifier: Apache-2.0
// Several safetensors files behind one index, and what an index must not be believed.
#include "models/weights/safetensors_set.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "core/io/file.h"
#include "core/random.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::safetensors_set_test {
namespace {

using test::contains;
using test::error_message;

class SafetensorsSets : public testing::Test {
 protected:
  void SetUp() override {
    const auto bytes = std::as_bytes(std::span(values_));
    write_plain_safetensors(folder_ / "one.safetensors",
                            {{"a", DType::f32, {2}, bytes}, {"b", DType::f32, {2, 1}, bytes}}, {{"made", "here"}});
    write_plain_safetensors(folder_ / "two.safetensors", {{"c", DType::f32, {2}, bytes}});
  }
  std::string put(const std::string& text) const {
    return folder_.write("model.safetensors.index.json", {text.begin(), text.end()});
  }
  std::string refusal(const std::string& index) const {
    const std::string path = put(index);
    return error_message<FileError>([&] { SafetensorsSet{path}; });
  }

  test::TempDir folder_;
  std::vector<float> values_ = {1, 2};
};

constexpr const char* good =
    R"({"metadata": {"total_size": 24}, "weight_map": {"c": "two.safetensors", "a": "one.safetensors",
        "b": "one.safetensors"}})";

TEST_F(SafetensorsSets, AnIndexJoinsFiles) {
  const std::string path = put(good);
  for (const auto& named : {std::filesystem::path(path), folder_.path()}) {
    const SafetensorsSet set(named);
    ASSERT_EQ(set.items().size(), 3U);
    EXPECT_EQ(set.items()[0].record->name, "a");
    EXPECT_EQ(set.items()[1].record->name, "b");
    EXPECT_EQ(set.items()[2].record->name, "c");
    EXPECT_EQ(set.items()[2].read().size(), 8U);
    EXPECT_EQ(set.metadata().at("made"), "here");
    set.verify();
  }
  EXPECT_EQ(SafetensorsSet(folder_ / "one.safetensors").items().size(), 2U);
}

TEST_F(SafetensorsSets, FilesOutsideTheFolderAreNotOpened) {
  for (const char* name : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..", ".", "", "a\\\\b",
                           "one.safetensors\\u0000.json"}) {
    const std::string index = join_text(R"({"weight_map": {"a": ")", name, "\"}}");
    EXPECT_PRED2(contains, refusal(index), "InvalidIndex: tensor 'a' is said to be in") << name;
  }
}

TEST_F(SafetensorsSets, AMapThatIsNotThatOfTheFiles) {
  EXPECT_PRED2(contains, refusal(R"({"weight_map": {"a": "one.safetensors"}})"),
               "IndexMismatch: tensor 'b' of one.safetensors is not in the weight_map");
  EXPECT_PRED2(contains, refusal(R"({"weight_map": {"a": "two.safetensors"}})"),
               "IndexMismatch: tensor 'a' is said to be in two.safetensors");
  EXPECT_PRED2(contains, refusal(R"({"weight_map": {"a": "three.safetensors"}})"), "three.safetensors: IoError");
  EXPECT_PRED2(contains, refusal(R"({"weight_map": {"c": "two.safetensors", "c": "one.safetensors"}})"),
               "/weight_map/c: this key was given before");
  EXPECT_PRED2(contains, refusal(R"({"weight_map": {}})"), "InvalidIndex: the weight_map is empty");
  EXPECT_PRED2(contains, refusal(R"({"weight_map": {"a": 1}})"), "InvalidIndex");
  EXPECT_PRED2(contains, refusal(R"({"weight_map": ["a"]})"), "InvalidIndex");
  EXPECT_PRED2(contains, refusal(R"({"map": {}})"), "InvalidIndex");
  EXPECT_PRED2(contains, refusal("[]"), "InvalidIndex");
  EXPECT_PRED2(contains, refusal(""), "InvalidIndex");
}

TEST_F(SafetensorsSets, AFolderWithoutWeightsIsNamed) {
  EXPECT_PRED2(contains, error_message<FileError>([&] { SafetensorsSet{folder_.path()}; }), "IoError: the folder has");
}

TEST_F(SafetensorsSets, DamageIsRefusedOrReadButNeverMore) {
  // What is changed at random in an index, or in a file without checksums, is an error or other numbers.
  const std::string index = put(good), file = folder_ / "one.safetensors";
  const std::string sequences[] = {read_text(index), read_text(file)};
  const auto put_text = [&](bool of_index, const std::string& text) {
    std::ofstream(of_index ? index : file, std::ios::binary) << text;
  };
  Random random(11, 1);
  int refused = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const bool of_index = trial % 3 == 0;
    std::string damaged = sequences[of_index ? 0 : 1];
    const std::uint64_t flips = 1 + random.below(4);
    for (std::uint64_t i = 0; i < flips; ++i)
      damaged[random.below(damaged.size())] = static_cast<char>(random.below(256));
    if (random.below(4) == 0) damaged.resize(random.below(damaged.size()));
    put_text(of_index, damaged);
    try {
      const SafetensorsSet set{index};
      std::size_t total = 0;
      for (const SafetensorsSet::Item& item : set.items())
        for (const std::byte byte : item.read()) total += static_cast<std::size_t>(byte);
      EXPECT_LT(total, 24U * 256);
    } catch (const FileError&) {
      ++refused;
    }
    put_text(of_index, sequences[of_index ? 0 : 1]);
  }
  EXPECT_GT(refused, 100);
  EXPECT_LT(refused, 300);
}

}  // namespace
}  // namespace hearth::safetensors_set_test
