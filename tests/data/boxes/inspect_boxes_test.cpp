// SPDX-License-Identifier: Apache-2.0
#include "data/boxes/inspect_boxes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "data/inspection.h"
#include "tests/data/images/plain_images.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::inspect_boxes_test {
namespace {

struct InspectBoxes : ::testing::Test {
  test::TempDir folder;
  AnnotatedImages annotated;
  void SetUp() override {
    if (encode_png(constant(1, 1, 1, 0)).empty()) GTEST_SKIP() << "no libpng";
    annotated = {.source = "labels.json",
                 .folder = folder.path(),
                 .class_names = {"cat", "ox", "dog"},
                 .category_ids = {1, 5, 90}};
    annotated.boxes = {{{0, 0, 10, 10}, 100, 0, false, false},
                       {{0, 0, 100, 90}, 9000, 2, true, false},
                       {{50, 20, 60, 70}, 9500, 0, false, true},
                       {{5, 5, 5, 9}, 0, 0, false, false}};
    annotated.images = {{"a.png", 1, 100, 90, 0, 3}, {"b.png", 2, 40, 30, 3, 0}, {"c.png", 3, 20, 20, 3, 1}};
    for (const AnnotatedImage& image : annotated.images)
      write_png(folder / image.file, constant(image.height, image.width, 3, 50));
  }
};

TEST_F(InspectBoxes, CountsImagesAndBoxes) {
  const BoxDataset dataset(annotated, 1 << 30);
  const BoxInspection result = inspect_boxes(dataset);
  EXPECT_EQ(result.problems, 0) << result.text;
  const Json& json = result.json;
  EXPECT_EQ(json.at("images").as_integer(), 3);
  EXPECT_EQ(json.at("background").as_integer(), 1);
  EXPECT_EQ(json.at("boxes").as_integer(), 4);
  EXPECT_EQ(json.at("most_boxes").as_integer(), 3);
  EXPECT_EQ(json.at("crowds").as_integer(), 1);
  EXPECT_EQ(json.at("ignored").as_integer(), 1);
  EXPECT_EQ(json.at("without_area").as_integer(), 1);
  EXPECT_EQ(to_text(json.at("sizes")), to_text(parse_json(R"({"small": 2, "medium": 1, "large": 1})", "test")));
  EXPECT_EQ(to_text(json.at("height")), "[20.0,90.0]");
  const Json& cat = json.at("classes").at(0);
  EXPECT_EQ(cat.at("boxes").as_integer(), 3);
  EXPECT_EQ(cat.at("images").as_integer(), 2);
  EXPECT_EQ(cat.at("category_id").as_integer(), 1);
  EXPECT_EQ(json.at("warnings").as_integer(), 1);
  EXPECT_EQ(json.at("first_warnings").at(0).as_string(), "class 'ox' has no box");
  EXPECT_NE(result.text.find("3 images, of which 1 without boxes, 4 boxes, 3 classes"), std::string::npos)
      << result.text;
  EXPECT_NE(result.text.find("  cat: 3 boxes in 2 images\n"), std::string::npos) << result.text;
}

TEST_F(InspectBoxes, NamesImagesThatCannotBeRead) {
  folder.write("b.png", {'x'});
  annotated.faults.emplace(2, "c.txt: line 1: no label");
  const PartReport report = inspect_part(BoxDataset(annotated, 1 << 30), true, 1);
  EXPECT_EQ(report.problems, 2);
  EXPECT_NE(report.text.find("b.png"), std::string::npos) << report.text;
  EXPECT_NE(report.text.find("c.txt: line 1: no label"), std::string::npos) << report.text;
  EXPECT_EQ(inspect_boxes(BoxDataset(annotated, 1 << 30), 1).problems, 1) << "faults of labels count without decoding";
}

TEST_F(InspectBoxes, DrawsBoxesOnASheet) {
  const BoxDataset dataset(annotated, 1 << 30);
  const Image sheet = box_sheet(dataset, {0, 1}, 50);
  // Image 0 is 50 x 45 in its square, 2 pixels from the top; the gap is 4.
  const auto pixel = [&](int y, int x) { return std::vector<int>(sheet.row(y) + 3 * x, sheet.row(y) + 3 * x + 3); };
  const int top = 4 + 2, left = 4;
  const std::vector<int> cat{255, 64, 64}, grey{50, 50, 50};
  EXPECT_EQ(pixel(top + 10, left + 25), cat) << "the box from (50, 20), at half its size";
  EXPECT_EQ(pixel(top + 34, left + 29), cat);
  EXPECT_EQ(pixel(top + 20, left + 27), grey) << "within it";
  EXPECT_EQ(pixel(top + 10, left + 31), grey);
  const std::string file = (folder / "sheet.png").string();
  EXPECT_EQ(write_sheet(file, dataset, 64), 3);
  EXPECT_TRUE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace hearth::data::inspect_boxes_test
