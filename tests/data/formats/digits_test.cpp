// SPDX-License-Identifier: Apache-2.0
#include "data/formats/digits.h"

#include <gtest/gtest.h>

#include <set>

#include "core/build.h"
#include "core/error.h"
#include "data/images/hold_out.h"
#include "tests/support/error_message.h"

namespace hearth::data::digits_test {
namespace {

using test::contains;
using test::error_message;

TEST(DigitsTest, HasEverySampleOfTheSource) {
  const ImageDatasetPointer set = digits();
  ASSERT_EQ(set->size(), 1797);
  EXPECT_EQ(set->image_shape(), (ImageShape{8, 8, 1}));
  std::vector<std::int64_t> histogram(10);
  for (std::int64_t i = 0; i < set->size(); ++i) ++histogram[static_cast<std::size_t>(set->label(i))];
  EXPECT_EQ(histogram, (std::vector<std::int64_t>{178, 182, 177, 183, 181, 182, 181, 179, 174, 180}));
}

TEST(DigitsTest, ScalesSixteenToFullWhite) {
  const Sample first = digits()->get(0);
  EXPECT_EQ(first.label, 0);
  // The file's first row begins 0,0,5,13,9,1,0,0.
  const std::vector<std::uint8_t> row(first.image.row(0), first.image.row(0) + 8);
  EXPECT_EQ(row, (std::vector<std::uint8_t>{0, 0, 80, 207, 143, 16, 0, 0}));
  // Its second row's second line begins 0,0,0,11,16,9.
  EXPECT_EQ(digits()->get(1).image.row(1)[3], 175);
  EXPECT_EQ(digits()->get(1).image.row(1)[4], 255);
}

TEST(DigitsTest, OrderedSplitTakesTheLastSamples) {
  const ImageSplits parts = digits({.split = DigitsSplit::ordered, .test_size = 360});
  ASSERT_EQ(parts.train->size(), 1437);
  ASSERT_EQ(parts.test->size(), 360);
  EXPECT_EQ(parts.test->get(0).image, digits()->get(1437).image);
  EXPECT_EQ(parts.test->get(359).image, digits()->get(1796).image);
}

TEST(DigitsTest, ShuffledSplitIsAPartitionDrawnByTheSeed) {
  const ImageSplits a = digits({.seed = 7});
  const ImageSplits b = digits({.seed = 7});
  const ImageSplits other = digits({.seed = 8});
  ASSERT_EQ(a.train->size() + a.test->size(), 1797);
  int same = 0, changed = 0;
  for (std::int64_t i = 0; i < a.test->size(); ++i) {
    same += a.test->get(i).image == b.test->get(i).image ? 1 : 0;
    changed += a.test->get(i).image == other.test->get(i).image ? 0 : 1;
  }
  EXPECT_EQ(same, 360);
  EXPECT_GT(changed, 300);
  const auto text_of = [](const std::vector<std::uint8_t>& pixels) {
    return std::string(pixels.begin(), pixels.end());
  };
  std::multiset<std::string> whole, split;
  for (std::int64_t i = 0; i < 1797; ++i) whole.insert(text_of(digits()->get(i).image.pixels));
  for (const auto& part : {a.train, a.test}) {
    for (std::int64_t i = 0; i < part->size(); ++i) split.insert(text_of(part->get(i).image.pixels));
  }
  EXPECT_EQ(whole, split);
}

TEST(DigitsTest, RefusesWhatItDoesNotHave) {
  EXPECT_TRUE(contains(error_message<DataError>([] { digits({.test_size = 1797}); }), "1797"));
  EXPECT_TRUE(
      contains(error_message<DataError>([] { digits({.split = DigitsSplit::ordered, .test_size = 0}); }), "0 samples"));
  EXPECT_TRUE(contains(error_message<IndexError>([] { digits()->get(1797); }), "1797"));
  EXPECT_TRUE(contains(error_message<IndexError>([] { digits()->label(-1); }), "-1"));
}

TEST(HoldOutTest, TakesTheFractionOfEveryClass) {
  const HeldOut parts = hold_out(digits(), 0.1, 3);
  EXPECT_EQ(parts.rest->size() + parts.held_out->size(), 1797);
  std::vector<int> histogram(10);
  for (std::int64_t i = 0; i < parts.held_out->size(); ++i) {
    ++histogram[static_cast<std::size_t>(parts.held_out->label(i))];
  }
  for (const int count : histogram) EXPECT_NEAR(count, 18, 1);
  EXPECT_TRUE(contains(error_message<ConfigError>([] { hold_out(digits(), 1.0, 0); }), "between 0 and 1"));
}

/// Two classes, and a third label.
class Mislabelled : public ImageDataset {
 public:
  explicit Mislabelled(std::int64_t third) : third_(third) {}
  std::int64_t size() const override { return 10; }
  ImageShape image_shape() const override { return {1, 1, 1}; }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::int64_t label(std::int64_t index) const override { return index == 7 ? third_ : index % 2; }
  std::int64_t read(std::int64_t index, Image& image) const override {
    image.reshape(1, 1, 1);
    return label(index);
  }
  const std::string& source() const override { return source_; }

 private:
  std::int64_t third_;
  std::vector<std::string> names_ = numbered_classes(2);
  std::string source_ = "own set";
};

TEST(HoldOutTest, LabelsOutsideTheClassesAreNamed) {
  for (const std::int64_t label : {std::int64_t{-1}, std::int64_t{2}, std::int64_t{1} << 60})
    EXPECT_EQ(error_message<DataError>([&] { hold_out(std::make_shared<Mislabelled>(label), 0.5, 0); }),
              join_text("own set: the label of sample 7 is ", label, ", outside the 2 classes"));
}

}  // namespace
}  // namespace hearth::data::digits_test
