// SPDX-License-Identifier: Apache-2.0
#include "data/boxes/coco_json.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/random.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::coco_json_test {
namespace {

using test::contains;
using test::error_message;

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

const std::string images_text =
    R"("images": [{"id": 7, "file_name": "a.jpg", "width": 40, "height": 30, "license": 1},
 {"id": 3, "file_name": "sub/b.jpg", "width": 20, "height": 10}])";
const std::string categories_text =
    R"("categories": [{"id": 90, "name": "dog"}, {"id": 1, "name": "cat", "supercategory": "pet"}, {"id": 5, "name": "ox"}])";

std::string annotations_text(const std::string& list) { return R"("annotations": [)" + list + "]"; }
std::string document(const std::string& annotations) {
  return R"({"info": {"year": [1, {"id": 2}]}, )" + images_text + ", " + annotations_text(annotations) + ", " +
         categories_text + "}";
}
std::string annotation(const std::string& more) {
  return R"({"id": 1, "image_id": 7, "category_id": 90, )" + more + "}";
}

struct CocoJson : ::testing::Test {
  test::TempDir folder;
  AnnotatedImages read(const std::string& text, OnFault on_fault = OnFault::fail) {
    return read_coco(folder.write("labels.json", bytes_of(text)), folder.path(), on_fault);
  }
  std::string refusal(const std::string& text) {
    return error_message<DataError>([&] { (void)read(text); });
  }
};

TEST_F(CocoJson, IsReadInTheOrderOfTheImages) {
  const AnnotatedImages result = read(document(
      R"({"id": 11, "image_id": 3, "category_id": 1, "bbox": [1, 2, 3.5, 4], "area": 9.25, "iscrowd": 0, "segmentation": [[1, 2, 4, 2, 4, 6], [1,2,3,4,-0.5,6e-1]]},
         {"iscrowd": 1, "segmentation": {"counts": [3, 4, 600], "size": [30, 40]}, "bbox": [0, 0, 40, 30], "category_id": 90, "image_id": 7, "id": 12},
         {"id": 10, "image_id": 3, "category_id": 90, "bbox": [0, 0, 20, 10], "ignore": 1, "segmentation": []})"));
  EXPECT_EQ(result.class_names, (std::vector<std::string>{"cat", "ox", "dog"})) << "by rising id";
  EXPECT_EQ(result.category_ids, (std::vector<std::int64_t>{1, 5, 90}));
  ASSERT_EQ(result.images.size(), 2u);
  EXPECT_EQ(result.images[0].file, "a.jpg");
  EXPECT_EQ(result.images[1].file, "sub/b.jpg");
  EXPECT_EQ(result.images[1].id, 3);
  EXPECT_EQ(result.images[0].width, 40);
  EXPECT_EQ(result.images[0].height, 30);
  ASSERT_EQ(result.boxes_of(0).size(), 1u);
  EXPECT_EQ(result.boxes_of(0)[0], (BoxAnnotation{{0, 0, 40, 30}, 1200, 2, true, false})) << "its area is the box's";
  ASSERT_EQ(result.boxes_of(1).size(), 2u);
  EXPECT_EQ(result.boxes_of(1)[0], (BoxAnnotation{{1, 2, 4.5, 6}, 9.25, 0, false, false}));
  EXPECT_EQ(result.boxes_of(1)[1], (BoxAnnotation{{0, 0, 20, 10}, 200, 2, false, true}));
  EXPECT_EQ(result.warnings.count, 0);
}

TEST_F(CocoJson, ImagesWithoutBoxesAreBackground) {
  const AnnotatedImages result = read(document(annotation(R"("bbox": [1, 2, 3, 4])")));
  EXPECT_EQ(result.images.size(), 2u);
  EXPECT_EQ(result.boxes_of(0).size(), 1u);
  EXPECT_TRUE(result.boxes_of(1).empty());
}

TEST_F(CocoJson, NumbersInQuotesByteOrderMarkAndLineEnds) {
  std::string text = document(annotation(R"("bbox": ["1", "2.5", "3", 4.0], "area": "12", "iscrowd": "0")"));
  for (std::size_t at = 0; (at = text.find('\n', at)) != text.npos; at += 2) text.replace(at, 1, "\r\n");
  const AnnotatedImages result = read("\xEF\xBB\xBF" + text + "\r\n");
  ASSERT_EQ(result.boxes.size(), 1u);
  EXPECT_EQ(result.boxes[0], (BoxAnnotation{{1, 2.5, 4, 6.5}, 12, 2, false, false}));
  EXPECT_EQ(read(document(annotation(R"("bbox": [1.0, 2, 3, 4], "iscrowd": false)"))).boxes.size(), 1u);
}

TEST_F(CocoJson, ClipsWhatIsRounding) {
  const AnnotatedImages result = read(document(annotation(R"("bbox": [-0.5, 0, 41, 30.75])")));
  EXPECT_EQ(result.boxes[0].corners, (std::array<double, 4>{0, 0, 40, 30}));
  ASSERT_EQ(result.warnings.count, 1);
  EXPECT_TRUE(contains(result.warnings.first[0], "labels.json: annotation 1 of a.jpg")) << result.warnings.first[0];
}

TEST_F(CocoJson, BoxesWithoutAreaAndRepeatedOnesAreWarnings) {
  const AnnotatedImages result = read(document(
      R"({"id": 1, "image_id": 7, "category_id": 1, "bbox": [1, 1, 5, 0]},
         {"id": 2, "image_id": 7, "category_id": 1, "bbox": [1, 1, 5, 5]}, {"id": 3, "image_id": 7, "category_id": 5, "bbox": [1, 1, 5, 5]},
         {"id": 4, "image_id": 7, "category_id": 1, "bbox": [1, 1, 5, 5]})"));
  EXPECT_EQ(result.boxes.size(), 3u) << "another class is another box";
  ASSERT_EQ(result.warnings.count, 2);
  EXPECT_TRUE(contains(result.warnings.first[0], "annotation 1 of a.jpg: a box without area"));
  EXPECT_TRUE(contains(result.warnings.first[1], "a.jpg: 1 box is there twice"));
}

struct Wrong {
  std::string text;
  std::string message;
};

TEST_F(CocoJson, RefusesByName) {
  const std::string box = R"("bbox": [1, 2, 3, 4])";
  const std::vector<Wrong> cases{
      {"", "labels.json: is empty"},
      {"\x1f\x8b\x08", "labels.json: is compressed; unpack it"},
      {"[" + annotation(box) + "]", "is a list; wanted is an object of images, annotations and categories"},
      {"3", "line 1, byte 2: is 3; wanted is an object"},
      {"{" + images_text + "}", "labels.json: has no \"annotations\""},
      {"{" + images_text + ", " + categories_text + "}", "a list of images alone, as of a test set, has no truth"},
      {"{" + images_text + ", " + annotations_text("") + "}", "labels.json: has no \"categories\""},
      {document("") + "}", "line 2, byte"},
      {document("") + std::string(1, '\0') + "1", "there is more behind the end of the JSON"},
      {R"({"images": {}})", "\"images\" is an object; wanted is a list"},
      {R"({"images": null})", "\"images\" is null; wanted is a list"},
      {R"({"images": [3]})", "images[0] is 3; wanted is an object"},
      {R"({"images": [[]]})", "images[0] is a list; wanted is an object"},
      {R"({"images": [], "images": []})", "\"images\" is there twice"},
      {R"({"images": [{"id": 1, "id": 2}]})", "images[0]: \"id\" is there twice"},
      {R"({"images": [{"id": 1}]})", "images[0] has no \"file_name\""},
      {R"({"images": [{"id": 1, "file_name": "a.jpg"}]})", "images[0] has no \"width\""},
      {R"({"images": [{"id": 1, "width": 0}]})", "images[0]: \"width\" is 0; wanted is a number of pixels"},
      {R"({"images": [{"id": "a"}]})", "images[0]: \"id\" is the text \"a\"; wanted is an integer"},
      {R"({"images": [{"id": 1.5}]})", "images[0]: \"id\" is 1.5; wanted is an integer"},
      {R"({"images": [{"file_name": 3}]})", "images[0]: \"file_name\" is 3; wanted is a text"},
      {R"({"images": [{"id": 18446744073709551615}]})", "images[0]: \"id\" is 1.84467e+19; wanted is an integer"},
      {R"({"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"}]})", "labels.json: lists no images"},
      {"{" + images_text + R"(, "annotations": [], "categories": []})", "labels.json: lists no categories"},
      {document(annotation(box) + ", " + annotation(box)),
       "the annotation id 1 is there twice, annotations[0] and [1]"},
      {document(R"({"image_id": 8, "category_id": 1, "id": 4, )" + box + "}"),
       "annotation 4 is of the image 8, which \"images\" does not list"},
      {document(annotation(R"("segmentation": [[1, 2, 3, 4, 5, 6]])")), "annotations[0] has no \"bbox\""},
      {document(R"({"id": 1, "image_id": 7, )" + box + "}"), "annotations[0] has no \"category_id\""},
      {document(R"({"id": 1, "image_id": 7, "category_id": 2, )" + box + "}"),
       "annotation 1 of a.jpg: the category 2 is none of \"categories\""},
      {document(annotation(R"("bbox": [1, 2, 3])")),
       "annotations[0]: \"bbox\" is a list of 3 numbers; wanted is [x, y"},
      {document(annotation(R"("bbox": [1, 2, 3, 4, 5])")), "is a list of 5 numbers"},
      {document(annotation(R"("bbox": [1, 2, [3], 4])")), "\"bbox\" is a list of lists"},
      {document(annotation(R"("bbox": [1, 2, null, 4])")), "\"bbox\" is null"},
      {document(annotation(R"("bbox": [1, "two", 3, 4])")), "\"bbox\" is the text \"two\""},
      {document(annotation(R"("bbox": 17)")), "\"bbox\" is 17"},
      {document(annotation(R"("bbox": [NaN, 2, 3, 4])")), "NaN and Infinity are no JSON"},
      {document(annotation(R"("bbox": [1e999, 2, 3, 4])")), "is no JSON"},
      {document(annotation(R"("bbox": [1, 2, -3, 4])")), "annotation 1 of a.jpg: a box of width -3 and height 4"},
      {document(annotation(R"("bbox": [30, 2, 12, 4])")),
       "annotation 1 of a.jpg: the box from (30, 2) to (42, 6) leaves the image of 40 x 30"},
      {document(annotation(R"("bbox": [22, 3, 35, 25])")),
       "annotation 1 of a.jpg: the box of 35 x 25 at (22, 3) leaves the image of 40 x 30, and as corners it would not"},
      {document(annotation(R"("bbox": [0.1, 0, 0.5, 1])")), "the numbers of all 1 boxes are between 0 and 1"},
      {document(""), "labels.json: lists no annotations"},
      {document(annotation(R"("bbox": [-2, 2, 12, 4])")),
       "leaves the image of 40 x 30; correct the labels, or set "
       "\"bad_samples\" to \"skip\""},
      {document(annotation(box + R"(, "iscrowd": 2)")), "\"iscrowd\" is 2; wanted is 0 or 1"},
      {document(annotation(box + R"(, "area": -1)")), "\"area\" is -1; wanted is a number of 0 or more"},
      {document(annotation(box + R"(, "segmentation": [[]])")), "annotation 1 of a.jpg: a polygon of 0 numbers"},
      {document(annotation(box + R"(, "segmentation": [[1, 2, 3, 4]])")), "a polygon of 4 numbers; three points"},
      {document(annotation(box + R"(, "segmentation": [[1, 2, 3, 4, 5, 6, 7]])")), "a polygon of 7 numbers"},
      {document(annotation(box + R"(, "segmentation": [1, 2, 3, 4, 5, 6])")), "is no list of polygons"},
      {document(annotation(box + R"(, "segmentation": [[1, 2, 3, 4, 5, 01]])")), "is no list of polygons"},
      {document(annotation(box + R"(, "segmentation": [[1, 2, 3, 4, 5, 6],])")), "is no list of polygons"},
      {document(annotation(box + R"(, "segmentation": {"counts": [1, 2]})")),
       "\"segmentation\" is an object without \"counts\" and \"size\""},
      {"{" + images_text + ", " + annotations_text("") + R"(, "categories": [{"id": 1, "name": ""}]})",
       "category 1 has an empty name"},
      {document(annotation(box + R"(, "segmentation": "RLE")")), "\"segmentation\" is the text \"RLE\""},
      {"{" + images_text + R"(, "annotations": [{"segmentation": [[1, 2)", "is no list of polygons"},
      {R"({"images": [{"id": 1, "file_name": "a", "width": 1, "height": 1}, {"id": 1, "file_name": "b", "width": 1, "height": 1}], )" +
           annotations_text("") + ", " + categories_text + "}",
       "the image id 1 is there twice, images[0] and [1]"},
      {R"({"images": [{"id": 1, "file_name": "a", "width": 1, "height": 1}, {"id": 2, "file_name": "a", "width": 1, "height": 1}], )" +
           annotations_text("") + ", " + categories_text + "}",
       "two images have the file_name a"},
      {R"({"images": [{"id": 1, "file_name": "/data/a.jpg", "width": 1, "height": 1}], )" + annotations_text("") +
           ", " + categories_text + "}",
       "the file_name \"/data/a.jpg\" is not below the folder of images"},
      {"{" + images_text + ", " + annotations_text("") +
           R"(, "categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]})",
       "the category id 1 is there twice"},
      {"{" + images_text + ", " + annotations_text("") +
           R"(, "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "a"}]})",
       "two categories have the name \"a\""},
  };
  for (const Wrong& wrong : cases) {
    const std::string message = refusal(wrong.text);
    EXPECT_TRUE(contains(message, wrong.message)) << wrong.text << "\n  " << message;
    EXPECT_TRUE(contains(message, "labels.json")) << message;
  }
}

TEST_F(CocoJson, NamesTheLine) {
  EXPECT_TRUE(contains(refusal("{\n\"images\": [\n\n  {\"id\": 1,\n  \"width\": -4}]}"),
                       "labels.json: line 5, byte 15: images[0]"));
}

TEST_F(CocoJson, PassesOverImagesWithFaultsIfAsked) {
  const AnnotatedImages result = read(document(annotation(R"("bbox": [30, 2, 12, 4])") +
                                               R"(, {"id": 2, "image_id": 3, "category_id": 1, "bbox": [1, 1, 5, 5]})"),
                                      OnFault::skip);
  ASSERT_EQ(result.faults.size(), 1u);
  EXPECT_TRUE(contains(result.faults.at(0), "leaves the image"));
  EXPECT_EQ(result.boxes_of(1).size(), 1u);
}

TEST_F(CocoJson, RecordsMayLieAcrossWindows) {
  // Longer than the window of 2^20 bytes, so that its edge meets polygons, numbers and texts.
  std::string list;
  constexpr int count = 40'000;
  for (int i = 0; i < count; ++i)
    list += (i == 0 ? "" : ", ") + join_text(R"({"id": )", i, R"(, "image_id": )", i % 2 == 0 ? 7 : 3,
                                             R"(, "category_id": 5, "segmentation": [[1, 2.25, 3, 4, 5, 6)",
                                             std::string(static_cast<std::size_t>(i % 7), ' '), R"(]], "bbox": [)",
                                             i % 10, ", ", i % 9, R"(, 3, )", 1 + i / 50000.0, "]}");
  const AnnotatedImages result = read(document(list));
  std::int64_t boxes = 0;
  for (std::size_t i = 0; i < 2; ++i)
    for (const BoxAnnotation& box : result.boxes_of(i)) {
      ++boxes;
      EXPECT_EQ(box.corners[2] - box.corners[0], 3);
    }
  EXPECT_EQ(boxes, count);
}

TEST_F(CocoJson, DamagedFilesNeverCrash) {
  const std::string whole = document(
      R"({"id": 11, "image_id": 3, "category_id": 1, "bbox": [1, 2, 3.5, 4], "area": 9.25, "iscrowd": 0, "segmentation": [[1, 2, 4, 2, 4, 6]]},
         {"iscrowd": 1, "segmentation": {"counts": [3, 4, 600], "size": [30, 40]}, "bbox": [0, 0, "40", 30], "category_id": 90, "image_id": 7, "id": 12})");
  int refused = 0;
  const auto meet = [&](const std::string& text) {
    try {
      (void)read(text);
    } catch (const DataError&) {
      ++refused;
    }
  };
  for (std::size_t size = 0; size < whole.size(); ++size) meet(whole.substr(0, size));
  EXPECT_EQ(refused, static_cast<int>(whole.size())) << "a text that is cut";
  Random random(5, 0);
  for (int i = 0; i < 1000; ++i) {
    std::string text = whole;
    for (std::uint64_t changes = 1 + random.below(3); changes > 0; --changes) {
      const std::size_t at = random.below(text.size());
      constexpr std::string_view likely = "[]{},:\"0-e. nt\\";
      if (random.below(3) == 0)
        text.erase(at, 1 + random.below(5));
      else if (random.below(2) == 0)
        text.insert(at, 1, likely[random.below(likely.size())]);
      else
        text[at] = static_cast<char>(random.below(256));
    }
    meet(text);
  }
}

}  // namespace
}  // namespace hearth::data::coco_json_test
