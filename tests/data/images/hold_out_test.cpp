// SPDX-License-Identifier: Apache-2.0
// Samples set aside by their names.
#include "data/images/hold_out.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "tests/support/error_message.h"

namespace hearth::data::hold_out_test {
namespace {

using test::contains;
using test::error_message;

/// Samples of two classes with names and nothing else.
class Named : public ImageDataset {
 public:
  explicit Named(std::vector<std::string> names) : names_(std::move(names)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(names_.size()); }
  ImageShape image_shape() const override { return {1, 1, 1}; }
  const std::vector<std::string>& class_names() const override { return classes_; }
  std::int64_t label(std::int64_t index) const override { return index % 2; }
  std::int64_t read(std::int64_t index, Image&) const override { return label(index); }
  std::string sample_name(std::int64_t index) const override { return names_[static_cast<std::size_t>(index)]; }
  const std::string& source() const override { return source_; }

 private:
  std::vector<std::string> names_;
  std::vector<std::string> classes_ = numbered_classes(2);
  std::string source_ = "named";
};

std::vector<std::string> numbered(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("class/" + std::to_string(i) + ".png");
  return names;
}

std::set<std::string> names_of(const ImageDatasetPointer& set) {
  std::set<std::string> names;
  for (std::int64_t i = 0; i < set->size(); ++i) names.insert(set->sample_name(i));
  return names;
}

std::set<std::string> held_out(const std::vector<std::string>& names, double fraction, std::uint64_t seed,
                               const char* split = "test") {
  return names_of(hold_out(std::make_shared<Named>(names), fraction, seed, split).held_out);
}

TEST(HoldOutByNameTest, TheFractionIsThatOfTheDraws) {
  // 4,000 draws at 0.1 have a standard deviation of 19.
  for (const std::uint64_t seed : {0u, 1u, 2u}) EXPECT_NEAR(held_out(numbered(4'000), 0.1, seed).size(), 400, 80);
  const HeldOut parts = hold_out(std::make_shared<Named>(numbered(4'000)), 0.1, 0);
  EXPECT_EQ(parts.rest->size() + parts.held_out->size(), 4'000);
  std::int64_t first_class = 0;
  for (std::int64_t i = 0; i < parts.held_out->size(); ++i) first_class += parts.held_out->label(i) == 0 ? 1 : 0;
  EXPECT_NEAR(first_class, 200, 60);
}

TEST(HoldOutByNameTest, SeedsAndSplitsDrawOnTheirOwn) {
  const std::vector<std::string> names = numbered(2'000);
  const std::set<std::string> one = held_out(names, 0.5, 1), two = held_out(names, 0.5, 2);
  const std::set<std::string> valid = held_out(names, 0.5, 1, "valid");
  for (const std::set<std::string>& other : {two, valid}) {
    const auto both = std::count_if(one.begin(), one.end(), [&](const auto& name) { return other.contains(name); });
    EXPECT_NEAR(both, 500, 100);
  }
  EXPECT_EQ(held_out(names, 0.5, 1), one);
  // By another implementation of SHA-256. What is drawn never changes, or runs would test on what they trained on.
  EXPECT_EQ(held_out(numbered(12), 0.25, 7),
            (std::set<std::string>{"class/11.png", "class/4.png", "class/5.png", "class/7.png", "class/9.png"}));
}

TEST(HoldOutByNameTest, OthersMayComeAndGo) {
  std::vector<std::string> names = numbered(300);
  const std::set<std::string> before = held_out(names, 0.1, 3);
  for (int i = 300; i < 900; ++i) names.insert(names.begin() + i % 7, "more/" + std::to_string(i));
  names.erase(names.begin() + 100, names.begin() + 200);
  const std::set<std::string> now = held_out(names, 0.1, 3);
  for (const std::string& name : names) {
    if (name.starts_with("more/")) continue;
    EXPECT_EQ(now.contains(name), before.contains(name)) << name;
  }
}

TEST(HoldOutByNameTest, NeitherSideIsEmpty) {
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    for (const double fraction : {0.001, 0.1, 0.5, 0.999})
      for (const int size : {2, 3, 10}) {
        const std::size_t held = held_out(numbered(size), fraction, seed).size();
        EXPECT_TRUE(held >= 1 && held + 1 <= static_cast<std::size_t>(size)) << held << " of " << size;
      }
  // The one that comes in is the one that a slightly larger fraction would take.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::set<std::string> one = held_out(numbered(10), 1e-9, seed);
    const std::set<std::string> more = held_out(numbered(10), 0.4, seed);
    EXPECT_EQ(one.size(), 1u);
    EXPECT_TRUE(more.contains(*one.begin()));
  }
  EXPECT_PRED2(contains, error_message<DataError>([] { held_out({"only"}, 0.5, 0); }), "leaves one split empty");
  EXPECT_PRED2(contains, error_message<DataError>([] {
                 held_out({"same", "same"}, 0.5, 0);
               }),
               "leaves one split empty");
}

}  // namespace
}  // namespace hearth::data::hold_out_test
