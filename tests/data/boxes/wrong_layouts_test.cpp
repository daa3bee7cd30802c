// SPDX-License-Identifier: Apache-2.0
// Wrong folders and labels as users bring them: each is refused, or warned of, in the words of the table in
// docs/boxes.md.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "core/error.h"
#include "core/io/json_text.h"
#include "data/boxes/box_dataset.h"
#include "data/registry.h"
#include "data/splits.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::wrong_layouts_test {
namespace {

namespace fs = std::filesystem;

/// Right sets, one in each form, which a case makes wrong.
struct Layout {
  test::TempDir folder;
  Json config;  ///< of the data

  void put(const std::string& name, const std::string& text) const { folder.write(name, {text.begin(), text.end()}); }
  void remove(const std::string& name) const { fs::remove_all(folder / name); }
  void rename(const std::string& from, const std::string& to) const {
    fs::create_directories((folder / to).parent_path());
    fs::rename(folder / from, folder / to);
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }
};

std::string coco_text(const std::string& split, const std::string& annotations) {
  return R"({"images": [{"id": 1, "file_name": ")" + split +
         R"(1.jpg", "width": 40, "height": 30}, {"id": 2, "file_name": ")" + split +
         R"(2.jpg", "width": 40, "height": 30}], "annotations": [)" + annotations +
         R"(], "categories": [{"id": 1, "name": "hen"}, {"id": 3, "name": "egg"}]})";
}
std::string coco_box(const std::string& box) {
  return R"({"id": 1, "image_id": 1, "category_id": 3, "bbox": [)" + box + "]}";
}

void make_coco(Layout& set) {
  const auto split = [&](const std::string& name) {
    set.put(name + "/" + name + "1.jpg", "x"), set.put(name + "/" + name + "2.jpg", "x");
    set.put(name + ".json", coco_text(name, coco_box("2, 3, 10, 12")));
    return Json::object().set("images", set.path(name)).set("labels", set.path(name + ".json"));
  };
  set.config = Json::object().set("type", "coco").set("train", split("train")).set("valid", split("val"));
}

void make_yolo(Layout& set) {
  for (const std::string split : {"train", "val"}) {
    set.put("images/" + split + "/a.jpg", "x");
    set.put("labels/" + split + "/a.txt", "1 0.4 0.5 0.3 0.2\n");
  }
  set.put("data.yaml", "train: images/train\nval: images/val\nnames: [hen, egg]\n");
  set.config = Json::object().set("type", "yolo").set("path", set.path("data.yaml"));
}

std::string voc_text(const std::string& edges) {
  return "<annotation><filename>a.jpg</filename><size><width>40</width><height>30</height></size>"
         "<object><name>hen</name><bndbox>" +
         edges + "</bndbox></object></annotation>";
}

void make_voc(Layout& set) {
  set.put("JPEGImages/a.jpg", "x");
  set.put("Annotations/a.xml", voc_text("<xmin>3</xmin><ymin>4</ymin><xmax>12</xmax><ymax>15</ymax>"));
  set.put("ImageSets/Main/train.txt", "a\n");
  set.config = Json::object().set("type", "voc").set("path", set.folder.path().string());
}

struct Wrong {
  void (*make)(Layout&);
  std::function<void(Layout&)> change;
};

/// By the first cell of a row of docs/boxes.md.
const std::map<std::string, Wrong>& wrong_layouts() {
  const auto labels = [](const std::string& text) { return [text](Layout& set) { set.put("train.json", text); }; };
  const auto of_train = [](const char* field, const char* name) {
    return [=](Layout& set) { set.config.find("train")->set(field, set.path(name)); };
  };
  const auto lines = [](const std::string& text) {
    return [text](Layout& set) { set.put("labels/train/a.txt", text); };
  };
  const auto yaml = [](const std::string& text) { return [text](Layout& set) { set.put("data.yaml", text); }; };
  const auto xml = [](const std::string& text) { return [text](Layout& set) { set.put("Annotations/a.xml", text); }; };
  static const std::map<std::string, Wrong> table{
      {"COCO: images one level too high", {make_coco, of_train("images", "")}},
      {"COCO: labels of another split", {make_coco, of_train("labels", "val.json")}},
      {"COCO: a folder of images that is not there", {make_coco, of_train("images", "trian")}},
      {"COCO: some images are missing", {make_coco, [](Layout& set) { set.remove("train/train2.jpg"); }}},
      {"COCO: a file of results", {make_coco, labels("[" + coco_box("1, 2, 3, 4") + "]")}},
      {"COCO: captions, or panoptic labels",
       {make_coco, labels(coco_text("train", R"({"id": 1, "image_id": 1, "category_id": 1, "caption": "a hen"})"))}},
      {"COCO: images to be predicted, `image_info_test2017.json`", {make_coco, labels(coco_text("train", ""))}},
      {"COCO: a download that was cut", {make_coco, labels(coco_text("train", coco_box("1, 2, 3, 4")).substr(0, 150))}},
      {"COCO: a web page in place of the labels", {make_coco, labels("<!DOCTYPE html>\n<html></html>\n")}},
      {"COCO: boxes as shares of the sides", {make_coco, labels(coco_text("train", coco_box("0.1, 0.2, 0.5, 0.4")))}},
      {"COCO: boxes as corners", {make_coco, labels(coco_text("train", coco_box("22, 3, 35, 25")))}},
      {"COCO: a category that is not listed",
       {make_coco, labels(coco_text("train", R"({"id": 1, "image_id": 1, "category_id": 91, "bbox": [1, 2, 3, 4]})"))}},
      {"COCO: `valid` has the labels of `train`",
       {make_coco, [](Layout& set) { set.config.set("valid", *set.config.find("train")); }}},
      {"YOLO: no labels where they are looked for", {make_yolo, [](Layout& set) { set.rename("labels", "label"); }}},
      {"YOLO: a set that was moved",
       {make_yolo, yaml("path: /data/elsewhere\ntrain: images/train\nval: images/val\nnames: [hen, egg]\n")}},
      {"YOLO: a folder in place of the `data.yaml`",
       {make_yolo, [](Layout& set) { set.config.set("path", set.path("images")); }}},
      {"YOLO: no names of classes", {make_yolo, yaml("train: images/train\nval: images/val\n")}},
      {"YOLO: another number of classes than names",
       {make_yolo, yaml("train: images/train\nval: images/val\nnc: 3\nnames: [hen, egg]\n")}},
      {"YOLO: pixels in place of shares", {make_yolo, lines("1 20 15 10 8\n")}},
      {"YOLO: classes from 1 on", {make_yolo, lines("2 0.4 0.5 0.3 0.2\n")}},
      {"YOLO: predictions, with a confidence", {make_yolo, lines("1 0.4 0.5 0.3 0.2 0.9\n")}},
      {"YOLO: names in place of numbers", {make_yolo, lines("egg 0.4 0.5 0.3 0.2\n")}},
      {"VOC: one level too high",
       {make_voc,
        [](Layout& set) {
          for (const std::string name : {"JPEGImages", "Annotations", "ImageSets"}) set.rename(name, "VOC2007/" + name);
        }}},
      {"VOC: the images are elsewhere",
       {make_voc, [](Layout& set) { set.rename("JPEGImages/a.jpg", "JPEGImages/b.jpg"); }}},
      {"VOC: XML of another program", {make_voc, xml("<annotations><version>1.1</version></annotations>")}},
      {"VOC: edges in another order",
       {make_voc, xml(voc_text("<xmin>12</xmin><ymin>15</ymin><xmax>3</xmax><ymax>4</ymax>"))}},
      {"VOC: pixels counted from 0",
       {make_voc, xml(voc_text("<xmin>0</xmin><ymin>4</ymin><xmax>12</xmax><ymax>15</ymax>"))}},
      {"VOC: a class that `classes` lacks",
       {make_voc, [](Layout& set) { set.config.set("classes", Json::array().push_back("hens")); }}},
  };
  return table;
}

/// The rows of the table: what is wrong, and what is said.
std::map<std::string, std::string> documented() {
  std::ifstream page(test::source_dir() + "/docs/boxes.md");
  std::map<std::string, std::string> rows;
  for (std::string line; std::getline(page, line);) {
    const std::size_t middle = line.find(" | `");
    const bool is_row = line.starts_with("| COCO: ") || line.starts_with("| YOLO: ") || line.starts_with("| VOC: ");
    if (is_row && middle != line.npos)
      rows[line.substr(2, middle - 2)] = line.substr(middle + 4, line.rfind('`') - middle - 4);
  }
  return rows;
}

/// What is said of the set, refused or warned of.
std::string said_of(const Json& config) {
  try {
    const DataSplits data = make_data(config);
    std::string warnings;
    for (const DatasetPointer& part : {data.train, data.valid})
      if (part != nullptr)
        for (const std::string& text : part->warnings().first) warnings += text + '\n';
    return warnings;
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(WrongLayouts, AreNamedAsThePageSays) {
  const std::map<std::string, std::string> rows = documented();
  for (const auto& [name, message] : rows) EXPECT_TRUE(wrong_layouts().contains(name)) << name;
  for (const auto& [name, wrong] : wrong_layouts()) {
    SCOPED_TRACE(name);
    Layout set;
    wrong.make(set);
    if (said_of(set.config).find("expat") != std::string::npos) continue;  // XML is not read here
    ASSERT_EQ(said_of(set.config), "") << "the set without the change";
    wrong.change(set);
    ASSERT_TRUE(rows.contains(name)) << "no row of docs/boxes.md";
    EXPECT_NE(said_of(set.config).find(rows.at(name)), std::string::npos)
        << said_of(set.config) << "\n  the page says: " << rows.at(name);
  }
}

}  // namespace
}  // namespace hearth::data::wrong_layouts_test
