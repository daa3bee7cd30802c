// SPDX-License-Identifier: Apache-2.0
#include "data/boxes/voc_xml.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "core/random.h"
#include "data/libraries.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::voc_xml_test {
namespace {

using test::contains;
using test::error_message;

bool reads_xml() {
  const std::vector<FileLibrary> libraries = file_libraries();
  return std::any_of(libraries.begin(), libraries.end(),
                     [](const FileLibrary& library) { return library.name == "expat" && !library.version.empty(); });
}

const std::string size_text = "<size><width>50</width><height>40</height><depth>3</depth></size>";

std::string object(const std::string& name, const std::string& box, const std::string& more = "") {
  return "<object><name>" + name + "</name>" + more + "<bndbox>" + box + "</bndbox></object>";
}
std::string edges(const std::string& xmin, const std::string& ymin, const std::string& xmax, const std::string& ymax) {
  return "<xmin>" + xmin + "</xmin><ymin>" + ymin + "</ymin><xmax>" + xmax + "</xmax><ymax>" + ymax + "</ymax>";
}
std::string annotation(const std::string& inside, const std::string& file = "a.jpg") {
  return "<?xml version=\"1.0\"?>\n<annotation>\n<filename>" + file + "</filename>" + size_text + "\n" + inside +
         "</annotation>\n";
}

struct VocXml : ::testing::Test {
  test::TempDir folder;
  void SetUp() override {
    if (!reads_xml()) GTEST_SKIP() << "no expat";
  }
  void put(const std::string& name, const std::string& text) { folder.write(name, {text.begin(), text.end()}); }
  AnnotatedImages read(const std::string& text, const VocOptions& options = {}) {
    put("a.jpg", "x");
    put("a.xml", text);
    return read_voc(find_voc(folder.path()).train, options);
  }
};

TEST_F(VocXml, PixelsFromOneBecomeEdgesFromZero) {
  const std::string text = annotation(object("dog", edges("1", "2", "50", "40.0")) +
                                      object("cat", edges(" 11 ", "12", "20", "22"), "<difficult>1</difficult>") +
                                      object("dog", edges("3", "3", "4", "4"),
                                             "<part><name>head</name><bndbox>" + edges("1", "1", "2", "2") +
                                                 "</bndbox></part><difficult>0</difficult>"));
  const AnnotatedImages result = read(text);
  EXPECT_EQ(result.class_names, (std::vector<std::string>{"cat", "dog"}));
  ASSERT_EQ(result.images.size(), 1u);
  EXPECT_EQ(result.images[0].file, "a.jpg");
  EXPECT_EQ(result.images[0].width, 50);
  EXPECT_EQ(result.images[0].height, 40);
  ASSERT_EQ(result.boxes.size(), 3u);
  EXPECT_EQ(result.boxes[0], (BoxAnnotation{{0, 1, 50, 40}, 1950, 1, false, false}));
  EXPECT_EQ(result.boxes[1], (BoxAnnotation{{10, 11, 20, 22}, 110, 0, false, true})) << "difficult";
  EXPECT_EQ(result.boxes[2].corners, (std::array<double, 4>{2, 2, 4, 4})) << "a part is no object";
  EXPECT_EQ(read(text, {.first_pixel = 0}).boxes[1].corners, (std::array<double, 4>{11, 12, 20, 22}));
  EXPECT_EQ(read(text, {.classes = {"dog", "ox", "cat"}}).boxes[1].label, 2);
}

TEST_F(VocXml, ByteOrderMarkLineEndsAndEncodingsAreRead) {
  std::string text = annotation(object("d\xC3\xB6g", edges("1", "1", "5", "5")));
  for (std::size_t at = 0; (at = text.find('\n', at)) != text.npos; at += 2) text.replace(at, 1, "\r\n");
  EXPECT_EQ(read("\xEF\xBB\xBF" + text).class_names, (std::vector<std::string>{"d\xC3\xB6g"}));
  EXPECT_EQ(read("<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><annotation>" + size_text +
                 object("d\xF6g &amp; cat", edges("1", "1", "5", "5")) + "</annotation>")
                .class_names,
            (std::vector<std::string>{"d\xC3\xB6g & cat"}));
}

TEST_F(VocXml, FindsTheSplits) {
  const std::string text = annotation("", "");
  for (const std::string name : {"Annotations/a.xml", "Annotations/b.xml", "Annotations/c.xml"})
    put("voc/" + name, text);
  for (const std::string name : {"a.jpg", "b.png", "c.JPG"}) put("voc/JPEGImages/" + name, "x");
  const auto splits = [&] { return find_voc((folder / "voc").string()); };
  EXPECT_EQ(splits().train.names, (std::vector<std::string>{"a", "b", "c"})) << "without lists";
  EXPECT_EQ(read_voc(splits().train, {}).images[1].file, "b.png");
  put("voc/ImageSets/Main/val.txt", "b\r\n");
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)splits(); }), "no train.txt; add it"));
  put("voc/ImageSets/Main/train.txt", "c\na\n");
  EXPECT_EQ(splits().train.names, (std::vector<std::string>{"c", "a"}));
  EXPECT_EQ(splits().valid.names, (std::vector<std::string>{"b"}));
  EXPECT_TRUE(splits().test.names.empty());
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)find_voc(folder.path()); }),
                       "has no labels by Pascal VOC, and " + (folder / "voc").string() + " has; give that folder"));

  put("flat/train/x.xml", text), put("flat/train/x.jpg", "x");
  put("flat/valid/y.xml", text), put("flat/valid/y.jpg", "x");
  const VocFolder flat = find_voc((folder / "flat").string());
  EXPECT_EQ(flat.train.names, (std::vector<std::string>{"x"}));
  EXPECT_EQ(flat.valid.names, (std::vector<std::string>{"y"}));
}

TEST_F(VocXml, RefusesByLine) {
  const std::string box = edges("1", "1", "5", "5");
  put("other.jpg", "x");
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "a.xml: line 1: is no XML: no element found"},
      {"<annotation>", "is no XML: no element found"},
      {annotation("<object>"), "a.xml: line 4: is no XML: mismatched tag"},
      {"{}", "a.xml: line 1: is no XML"},
      {"<!DOCTYPE a [<!ENTITY b \"c\">]><annotation/>", "line 1: has a document type, which is not read"},
      {"<labels/>", "line 1: <labels>, where <annotation> is wanted"},
      {"<annotation></annotation>", "a.xml: has no <size> with <width> and <height>"},
      {annotation(object("", box)), "line 4: an object without <name>, its class"},
      {annotation("<object><name>a</name></object>"), "line 4: an object without all of <bndbox>"},
      {annotation(object("a", "<xmin>1</xmin>")), "an object without all of <bndbox>"},
      {annotation(object("a", edges("one", "1", "5", "5"))), "line 4: <xmin> is \"one\"; wanted is a number"},
      {annotation(object("a", edges("", "1", "5", "5"))), "<xmin> is \"\"; wanted is a number"},
      {annotation(object("a", edges("inf", "1", "5", "5"))), "<xmin> is \"inf\"; wanted is a number"},
      {annotation(object("a", box + "<xmin>2</xmin>")), "a second <xmin> of one box"},
      {annotation("<object><name>a</name><bndbox>" + box + "</bndbox><bndbox></bndbox></object>"),
       "a second <bndbox> of one object"},
      {annotation(object("a", box, "<difficult>2</difficult>")), "<difficult> is \"2\"; wanted is 0 or 1"},
      {annotation(object("a", edges("1", "1", "60", "5"))),
       "a.xml: line 4: the box from (0, 0) to (60, 5) leaves the image of 50 x 40"},
      {annotation(object("a", edges("9", "1", "5", "5"))), "a box of width -3 and height 5"},
      {annotation(size_text), "wanted once is a number of pixels"},
      {annotation("", "other.jpg"), "<filename> is other.jpg, another image of the folder than a.jpg"},
  };
  for (const auto& [text, part] : cases) {
    const std::string message = error_message<DataError>([&, xml = text] { (void)read(xml); });
    EXPECT_TRUE(contains(message, part)) << text << "\n  " << message;
    EXPECT_TRUE(contains(message, "set \"bad_samples\" to \"skip\"")) << message;
    EXPECT_EQ(read(text, {.classes = {"a"}, .on_fault = OnFault::skip}).faults.count(0), 1u) << text;
  }
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)read(annotation(object("a", box)), {.classes = {"b"}}); }),
                       "a.xml: line 4: the class \"a\" is none of the 1 that are known"));
  EXPECT_THROW((void)read(annotation(object("a", box)), {.classes = {"a", "a"}}), ConfigError);
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "<a>";
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)read("<annotation>" + deep); }), "more than 64 levels"));
}

TEST_F(VocXml, RefusesLayouts) {
  const auto refusal = [&](const std::string& name) {
    return error_message<Error>([&] {
      for (const VocFolder result = find_voc((folder / name).string()); const VocSplit& split : {result.train})
        (void)read_voc(split, {});
    });
  };
  put("none/readme.md", "x");
  EXPECT_TRUE(contains(refusal("none"), "has no labels by Pascal VOC; wanted are XML files beside images"));
  EXPECT_TRUE(contains(refusal("gone"), "no such folder"));
  put("half/Annotations/a.xml", annotation(""));
  EXPECT_TRUE(contains(refusal("half"), "has the folder Annotations, and no JPEGImages"));
  put("half/JPEGImages/b.jpg", "x");
  EXPECT_TRUE(contains(refusal("half"), "JPEGImages: has none of the 1 images of"));
  put("half/Annotations/b.xml", annotation("", "b.jpg"));
  EXPECT_TRUE(contains(refusal("half"), "a.xml: the image"));
  std::filesystem::remove(folder / "half/Annotations/b.xml");
  put("half/ImageSets/Main/train.txt", "a 1\n");
  EXPECT_TRUE(contains(refusal("half"), "train.txt: line 1: \"a 1\" is not the name of one image"));
  put("half/ImageSets/Main/train.txt", "a\na\n");
  EXPECT_TRUE(contains(refusal("half"), "train.txt: line 2: a is there twice"));
  put("half/ImageSets/Main/train.txt", "b\n");
  EXPECT_TRUE(contains(refusal("half"), "b.xml")) << "a list that names what has no labels";
}

TEST_F(VocXml, DamagedFilesNeverCrash) {
  const std::string whole = annotation(object("dog", edges("1", "2", "50", "40"), "<difficult>0</difficult>") +
                                       "<!-- c --><x y=\"z\">&lt;</x>");
  Random random(9, 0);
  int refused = 0;
  for (int i = 0; i < 500; ++i) {
    std::string text = whole;
    for (std::uint64_t changes = 1 + random.below(3); changes > 0; --changes) {
      const std::size_t at = random.below(text.size());
      constexpr std::string_view likely = "<>/&;\"'!?- 0";
      if (random.below(2) == 0)
        text.erase(at, 1 + random.below(4));
      else if (random.below(2) == 0)
        text.insert(at, 1, likely[random.below(likely.size())]);
      else
        text[at] = static_cast<char>(random.below(256));
    }
    try {
      (void)read(text);
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace hearth::data::voc_xml_test
