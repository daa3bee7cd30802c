// SPDX-License-Identifier: Apache-2.0
#include "data/boxes/yolo_folder.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/random.h"
#include "data/boxes/flat_yaml.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::yolo_folder_test {
namespace {

using test::contains;
using test::error_message;

/// A set of two training images, a.jpg with labels and b.png without. Images need not be readable to be listed.
struct YoloFolder : ::testing::Test {
  test::TempDir folder;
  std::string put(const std::string& name, const std::string& text) {
    return folder.write(name, {text.begin(), text.end()});
  }
  YoloFolder() {
    put("images/train/a.jpg", "x");
    put("images/train/b.png", "x");
    put("labels/train/a.txt", "1 0.5 0.5 0.25 0.5\n");
  }
  std::string yaml(const std::string& text) { return put("data.yaml", text); }
  AnnotatedImages read(const std::string& text, OnFault on_fault = OnFault::fail) {
    const YoloDescription description = read_yolo_description(yaml(text));
    return read_yolo(description, description.train, on_fault);
  }
  AnnotatedImages read_labels(const std::string& labels, OnFault on_fault = OnFault::fail) {
    put("labels/train/a.txt", labels);
    return read("train: images/train\nnames: [cat, dog]\n", on_fault);
  }
};

TEST_F(YoloFolder, IsRead) {
  const AnnotatedImages result = read_labels("1 0.5 0.5 0.25 0.5\n0 0.1 0.2 0.2 0.4");
  EXPECT_EQ(result.class_names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(result.category_ids, (std::vector<std::int64_t>{0, 1}));
  EXPECT_TRUE(result.normalized);
  ASSERT_EQ(result.images.size(), 2u);
  EXPECT_EQ(result.path_of(0), (folder / "images/train/a.jpg").string());
  EXPECT_EQ(result.images[0].file, "a.jpg");
  ASSERT_EQ(result.boxes_of(0).size(), 2u);
  EXPECT_EQ(result.boxes_of(0)[0].corners, (std::array<double, 4>{0.375, 0.25, 0.625, 0.75}));
  EXPECT_EQ(result.boxes_of(0)[0].label, 1);
  EXPECT_TRUE(result.boxes_of(1).empty()) << "an image without labels is background";
  EXPECT_EQ(result.warnings.count, 0);
}

TEST_F(YoloFolder, PolygonsBecomeTheirBoxes) {
  const AnnotatedImages result = read_labels(
      "\xEF\xBB\xBF"
      "0 0.1 0.2 0.5 0.25 0.3 0.75\r\n\r\n\t1  0.25 0.25 0.5 0.5 \r\n");
  ASSERT_EQ(result.boxes.size(), 2u);
  EXPECT_EQ(result.boxes[0].corners, (std::array<double, 4>{0.1, 0.2, 0.5, 0.75}));
  EXPECT_EQ(result.boxes[1].corners, (std::array<double, 4>{0, 0, 0.5, 0.5}));
}

TEST_F(YoloFolder, NamesMayBeAMapAndEntriesListsOfFoldersAndFiles) {
  put("images/more/c.jpg", "x");
  put("labels/more/c.txt", "0 0.5 0.5 1 1\n");
  put("list.txt", "./images/train/a.jpg\r\nimages/train/b.png\n");
  const AnnotatedImages result = read(
      "# a comment\npath: .\ntrain:\n  - list.txt  # listed\n  - images/more\nval: images/train\ntest:\nnc: 2\nnames:\n"
      "  1: 'a dog'\n  0: \"cat\"\ndownload: |\n  some: code\n    deeper\nroboflow:\n  a:\n    b: c\n");
  EXPECT_EQ(result.class_names, (std::vector<std::string>{"cat", "a dog"}));
  EXPECT_EQ(result.images.size(), 3u);
  EXPECT_EQ(result.images[0].file, "train/a.jpg");
  EXPECT_EQ(result.images[2].file, "more/c.jpg");
  const YoloDescription description = read_yolo_description(folder / "data.yaml");
  EXPECT_EQ(description.valid, (std::vector<std::string>{folder / "images/train"}));
  EXPECT_TRUE(description.test.empty());
}

TEST_F(YoloFolder, UpperFolderOfOneProgramIsTakenForThisOne) {
  const AnnotatedImages result = read("train: ../images/train\nnames: ['cat', \"dog\"]\n");
  EXPECT_EQ(result.images.size(), 2u);
}

TEST_F(YoloFolder, PathsFromTheCurrentFolderAreRead) {
  const std::filesystem::path before = std::filesystem::current_path();
  put("c.jpg", "x"), put("c.txt", "0 0.5 0.5 1 1\n"), put("list.txt", "c.jpg\n");
  std::filesystem::current_path(folder.path());
  const YoloDescription description =
      read_yolo_description((put("data.yaml", "train: list.txt\nnames: [cat]\n"), "data.yaml"));
  const AnnotatedImages result = read_yolo(description, description.train, OnFault::fail);
  std::filesystem::current_path(before);
  EXPECT_EQ(result.path_of(0), "c.jpg");
  EXPECT_EQ(result.boxes.size(), 1u);
}

TEST_F(YoloFolder, LabelsLieBesideImagesOutsideOfFoldersOfThatName) {
  put("photos/a.jpg", "x");
  put("photos/a.txt", "0 0.5 0.5 1 1\n");
  put("photos/classes.txt", "cat\n");
  put("photos/gone.txt", "0 0.5 0.5 1 1\n");
  const AnnotatedImages result = read("train: photos\nnames: [cat]\n");
  EXPECT_EQ(result.boxes.size(), 1u);
  ASSERT_EQ(result.warnings.count, 1);
  EXPECT_TRUE(contains(result.warnings.first[0], "photos/gone.txt: is the label file of no image"));
}

TEST_F(YoloFolder, RefusesLabelsByLine) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"0 0.5 0.5 0.5\n", "labels/train/a.txt: line 1: 4 numbers; a box has 5"},
      {"\n0 0.5 0.5 0.5 0.5 0.9\n",
       "line 2: 6 numbers; a box has 5, class x y w h, and a polygon of n points 1 + 2 n. A "
       "sixth number is the confidence of a prediction"},
      {"0 0.1 0.1 0.2 0.2 0.3 0.3 0.4\n", "line 1: 8 numbers"},
      {"2 0.5 0.5 0.5 0.5\n", "line 1: the class 2 is none of the 2, numbered from 0, of \"names\""},
      {"-1 0.5 0.5 0.5 0.5\n", "the class -1 is none of the 2"},
      {"0.5 0.5 0.5 0.5 0.5\n", "the class 0.5 is none of the 2"},
      {"cat 0.5 0.5 0.5 0.5\n", "line 1: \"cat\" is no number; a line is: class x y w h"},
      {"0 0.5 nan 0.5 0.5\n", "\"nan\" is no number"},
      {"0,0.5,0.5,0.5,0.5\n", "is no number"},
      {"0 320 240 100 50\n", "line 1: 320 is above 1; numbers are shares of the image's width and height"},
      {"0 0.5 0.5 -0.5 0.5\n", "a box of width -0.5 and height 0.5"},
      {"0 0.1 0.5 0.5 0.5\n", "line 1: the box from (-0.15, 0.25) to (0.35, 0.75) leaves the image of 1 x 1"},
      {"0 -0.1 0.5 0.5 0.6 0.7 0.8\n", "leaves the image"},
  };
  for (const auto& [labels, part] : cases) {
    const std::string message = error_message<DataError>([&, text = labels] { (void)read_labels(text); });
    EXPECT_TRUE(contains(message, part)) << labels << "  " << message;
    EXPECT_TRUE(contains(message, "set \"bad_samples\" to \"skip\"")) << message;
    EXPECT_EQ(read_labels(labels, OnFault::skip).faults.count(0), 1u) << labels;
  }
}

TEST_F(YoloFolder, RefusesDescriptions) {
  put("empty/readme.md", "x");
  put("bare/images/a.jpg", "x");
  put("twice.txt", "images/train/a.jpg\nimages/train/a.jpg\n");
  put("gone.txt", "images/train/a.jpg\nimages/train/z.jpg\n");
  const std::vector<std::pair<std::string, std::string>> cases{
      {"names: [a]\n", "data.yaml: has no \"train\""},
      {"train: images/train\n", "has neither \"names\" nor \"nc\""},
      {"train: images/train\nnames:\n  0: a\n  2: b\n", "line 2: \"names\" has 2 classes and one of number 2"},
      {"train: images/train\nnames: {0: a, 0: b}\n", "\"names\" has the class 0 twice"},
      {"train: images/train\nnames: {x: a}\n", "a key of \"names\" is \"x\"; wanted is an integer"},
      {"train: images/train\nnames: [a, a]\n", "two classes have the name \"a\""},
      {"train: images/train\nnames: [a, '']\n", "a class of \"names\" has an empty name"},
      {"train: images/train\nnames: cat\n", "\"names\" is no list of names"},
      {"train: images/train\nnc: 3\nnames: [a, b]\n", "line 2: \"nc\" is 3, and \"names\" has 2; make them agree"},
      {"train: images/train\nnc: many\nnames: [a, b]\n", "\"nc\" is \"many\"; wanted is an integer"},
      {"train: images/trian\nnames: [a]\n", "line 1: \"images/trian\" is not there"},
      {"path: nowhere\ntrain: images/train\nnames: [a]\n", "line 1: \"path\" is"},
      {"train: images/train\nval: empty\nvalid: empty\nnames: [a]\n", "\"valid\" is a second key of one split"},
      {"train: images/train\nkpt_shape: [17, 3]\nnames: [a]\n", "line 2: labels with keypoints are not read"},
      {"train: {a: b}\nnames: [a]\n", "line 1: wanted is a folder of images, a .txt that lists them, or a list"},
      {"train: empty\nnames: [a]\n", "empty: has no JPEG, PNG, WebP or BMP file"},
      {"train: data.yaml\nnames: [a]\n", "data.yaml: is neither a folder of images nor a .txt that lists images"},
      {"train: bare/images\nnames: [a]\n", "none of the 1 images has labels; those of"},
      {"train: twice.txt\nnames: [a, b]\n", "a.jpg: is listed twice by"},
      {"train: [images/train, images]\nnames: [a, b]\n", "is listed twice by"},
      {"train: gone.txt\nnames: [a, b]\n", "z.jpg: is an image of"},
      {"train: images/train\ntrain: images/train\nnames: [a]\n", "line 2: the key \"train\" is there twice"},
      {"train: images/train\nnames: [a, b\n", "line 2: the bracket that begins here is not closed by ']'"},
      {"train: images/train\nnames: ['a, b]\n", "line 2: a quote is not closed on its line"},
      {"train: images/train\nnames: &x [a]\n", "anchors, aliases, tags"},
      {"train: images/train\nnames:\n\t- a\n", "line 3: a tab indents; YAML takes spaces"},
      {"train images/train\nnames: [a]\n", "line 1: wanted is \"key: value\""},
      {"train: a: b\n", "a key within a value"},
      {"{\"train\": 1}\n", "line 1: '{' begins a string"},
  };
  for (const auto& [text, part] : cases) {
    const std::string message = error_message<DataError>([&, yaml_text = text] { (void)read(yaml_text); });
    EXPECT_TRUE(contains(message, part)) << text << "  " << message;
  }
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)read_yolo_description(folder.path()); }),
                       "is a folder; give the data.yaml in it"));
}

TEST_F(YoloFolder, DamagedFilesNeverCrash) {
  const std::string yaml_text =
      "path: .\ntrain:\n  - images/train\nnc: 2\nnames: {0: 'a', 1: \"b\\n\"} # c\ntext: |\n  more\nlist: [x,\n  y]\n";
  const std::string labels = "0 0.1 0.2 0.5 0.25 0.3 0.75\r\n1 0.25 0.25 0.5 0.5\n";
  Random random(7, 0);
  int refused = 0;
  const auto damaged = [&](std::string text) {
    for (std::uint64_t changes = 1 + random.below(3); changes > 0 && !text.empty(); --changes) {
      const std::size_t at = random.below(text.size());
      constexpr std::string_view likely = "[]{},:\"'-\n #|\t.0";
      if (random.below(2) == 0)
        text.erase(at, 1 + random.below(4));
      else if (random.below(2) == 0)
        text.insert(at, 1, likely[random.below(likely.size())]);
      else
        text[at] = static_cast<char>(random.below(256));
    }
    return text;
  };
  for (int i = 0; i < 1500; ++i) {
    try {
      (void)parse_flat_yaml(damaged(yaml_text), "fuzzed");
      (void)read_labels(damaged(labels));
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace hearth::data::yolo_folder_test
