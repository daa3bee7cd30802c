// SPDX-License-Identifier: Apache-2.0
// Folders of images and masks: what is read, how masks move with their images, and what is refused.
#include "data/masks/mask_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "core/error.h"
#include "core/io/checksum.h"
#include "data/fingerprint.h"
#include "data/inspection.h"
#include "data/loading/loader.h"
#include "data/splits.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::mask_dataset_test {
namespace {

using test::contains;
using test::error_message;

constexpr int images = 9;
/// The colour of each class: what an image shows where its mask says so.
constexpr std::uint8_t shade[] = {20, 120, 220};

Image mask_of(int i, int height, int width) {
  Image mask;
  mask.reshape(height, width, 1);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      mask.row(y)[x] = static_cast<std::uint8_t>(x < width / 3 + i % 3 ? 1 : y < height / 2 ? 0 : 2);
  return mask;
}

struct MaskDatasetTest : ::testing::Test {
  test::TempDir folder;
  void SetUp() override {
    if (encode_png(Image{1, 1, 1, {0}}).empty()) GTEST_SKIP() << "no libpng";
  }
  /// Images and masks i0, i1 ... of several sizes.
  void write(const std::string& images_folder, const std::string& masks_folder, int count = images) {
    std::filesystem::create_directories(folder / images_folder);
    std::filesystem::create_directories(folder / masks_folder);
    for (int i = 0; i < count; ++i) {
      const Image mask = mask_of(i, 24 + 3 * i, 60 - 4 * i);
      Image image;
      image.reshape(mask.height, mask.width, 3);
      for (std::size_t p = 0; p < image.pixels.size(); ++p) image.pixels[p] = shade[mask.pixels[p / 3]];
      write_png(folder / (images_folder + join_text("/i", i, ".png")), image);
      write_png(folder / (masks_folder + join_text("/i", i, ".png")), mask);
    }
  }
  Json node(const std::string& augment = R"("image_size": 48)", const std::string& more = "") {
    return parse_json(R"({"type": "masks", "path": ")" + folder.path().string() +
                          R"(", "classes": ["a", "b", "c"], "workers": 0, "augment": {)" + augment + "}" + more + "}",
                      "test");
  }
  std::string message(const std::string& more = "") {
    return error_message<DataError>([&] { (void)make_data(node(R"("image_size": 48)", more)); });
  }
};

/// Labels are those of the pixels' shades, but within two pixels of an edge, where a resize mixes them.
void expect_masks_on_pixels(const Batch& batch, std::uint8_t margin) {
  const Tensor images_of = batch["images"], labels = batch["labels"];
  const std::int64_t size = labels.dim(1);
  std::int64_t compared = 0;
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    const std::uint8_t* const pixels = images_of.data<const std::uint8_t>() + i * size * size * 3;
    const std::int64_t* const of = labels.data<const std::int64_t>() + i * size * size;
    const auto label_at = [&](std::int64_t y, std::int64_t x) { return of[y * size + x]; };
    for (std::int64_t y = 2; y + 2 < size; ++y)
      for (std::int64_t x = 2; x + 2 < size; ++x) {
        const std::int64_t label = label_at(y, x);
        bool is_inside = true;
        for (std::int64_t v = -2; v <= 2; ++v)
          for (std::int64_t u = -2; u <= 2; ++u) is_inside = is_inside && label_at(y + v, x + u) == label;
        if (!is_inside) continue;
        const int wanted = label == ignored_label ? margin : shade[label];
        ASSERT_NEAR(pixels[(y * size + x) * 3], wanted, 2) << "row " << i << " at " << x << ", " << y;
        compared += label != ignored_label;
      }
  }
  EXPECT_GT(compared, size * size * batch.size() / 8);
}

TEST_F(MaskDatasetTest, BatchesHaveALabelForEachPixel) {
  write("images", "masks");
  const DataSplits data = make_data(node());
  EXPECT_EQ(data.input_shape(), (ImageShape{48, 48, 3}));
  EXPECT_EQ(data.classes(), 3);
  Loader loader = data.eval_loader(data.train, 4, DeviceType::cuda);
  const Batch batch = loader.next();
  EXPECT_EQ(batch["images"].shape(), (Shape{4, 48, 48, 3}));
  EXPECT_EQ(batch["images"].dtype(), DType::u8);
  EXPECT_EQ(batch["labels"].shape(), (Shape{4, 48, 48}));
  EXPECT_EQ(batch["labels"].dtype(), DType::i64);
  const std::int64_t* const all = batch["labels"].data<const std::int64_t>();
  EXPECT_EQ(batch.count(), 4 * 48 * 48 - std::count(all, all + 4 * 48 * 48, ignored_label));
  // Of the first image, 24 x 60, 19 rows of the input are left.
  EXPECT_EQ(std::count(all, all + 48 * 48, ignored_label), 48 * (48 - 19));
  expect_masks_on_pixels(batch, 114);
  EXPECT_EQ(data.eval_loader(data.train, 4).next()["images"].dtype(), DType::f32);
}

TEST_F(MaskDatasetTest, MasksMoveWithTheirImages) {
  write("images", "masks");
  std::set<std::vector<std::int64_t>> masks;
  for (const char* const augment :
       {R"("flip": true)", R"("flip": true, "fit": "stretch")", R"("padded_crop": 9)",
        R"("padded_crop": 9, "flip": true)", R"("padded_crop": 9, "flip": true, "fit": "stretch")",
        R"("random_resized_crop": true)", R"("random_resized_crop": true, "flip": true, "scale": [0.1, 0.5])",
        R"("random_resized_crop": true, "flip": true, "padded_crop": 6, "scale": [0.1, 0.5])",
        R"("random_resized_crop": true, "interpolation": "area", "flip": true, "fit": "stretch")"}) {
    SCOPED_TRACE(augment);
    const DataSplits data = make_data(node(std::string(R"("image_size": 48, )") + augment));
    Loader loader = data.train_loader(3, 7, DeviceType::cuda);
    for (int i = 0; i < 9; ++i) {
      const Batch batch = loader.next();
      expect_masks_on_pixels(batch, 114);
      const Tensor labels = batch["labels"];
      const std::int64_t* const all = labels.data<const std::int64_t>();
      masks.insert({all, all + 48 * 48});
    }
  }
  EXPECT_GT(masks.size(), 40U);
}

TEST_F(MaskDatasetTest, ColourJitterLeavesMasks) {
  write("images", "masks");
  const auto batch_of = [&](const std::string& augment) {
    const DataSplits data = make_data(node(R"("image_size": 48, "flip": true, "padded_crop": 4)" + augment));
    return data.train_loader(9, 3, DeviceType::cuda).next();
  };
  const Batch plain = batch_of(""), jittered = batch_of(R"(, "color_jitter": {"brightness": 0.5, "contrast": 0.5})");
  const auto same = [&](const char* name) {
    const Tensor a = plain[name], b = jittered[name];
    return std::equal(a.bytes(), a.bytes() + a.byte_size(), b.bytes());
  };
  EXPECT_TRUE(same("labels"));
  EXPECT_FALSE(same("images"));
}

TEST_F(MaskDatasetTest, SplitsLieInFoldersOrAreDrawn) {
  write("train/images", "train/masks");
  write("valid/images", "valid/masks", 2);
  DataSplits data = make_data(node());
  EXPECT_EQ(data.train->size(), images);
  ASSERT_NE(data.valid, nullptr);
  EXPECT_EQ(data.valid->size(), 2);
  EXPECT_EQ(data.test, nullptr);
  std::filesystem::remove_all(folder / "train");
  std::filesystem::remove_all(folder / "valid");
  write("images/train", "masks/train");
  write("images/test", "masks/test", 3);
  data = make_data(node());
  EXPECT_EQ(data.test->size(), 3);
  EXPECT_EQ(data.valid, nullptr);
  data = make_data(node(R"("image_size": 48)", R"(, "valid_fraction": 0.3)"));
  ASSERT_NE(data.valid, nullptr);
  EXPECT_EQ(data.train->size() + data.valid->size(), images);
  EXPECT_GT(data.valid->size(), 0);
}

TEST_F(MaskDatasetTest, NamesMayDiffer) {
  write("JPEGImages/a", "SegmentationClass/a");
  for (int i = 0; i < images; ++i)
    std::filesystem::rename(folder / join_text("SegmentationClass/a/i", i, ".png"),
                            folder / join_text("SegmentationClass/a/i", i, "_mask.png"));
  const DataSplits data = make_data(
      node(R"("image_size": 48)", R"(, "images": "JPEGImages", "masks": "SegmentationClass", "mask_suffix": "_mask")"));
  EXPECT_EQ(data.train->size(), images);
  EXPECT_EQ(data.train->sample_name(2), "a/i2.png");
  expect_masks_on_pixels(data.eval_loader(data.train, 4, DeviceType::cuda).next(), 114);
}

TEST_F(MaskDatasetTest, RefusesFilesWithoutTheirOther) {
  write("images", "masks");
  std::filesystem::remove(folder / "masks/i3.png");
  EXPECT_PRED2(contains, message(), "images/i3.png: has no mask, " + (folder / "masks/i3.png").string());
  write("images", "masks");
  std::filesystem::remove(folder / "images/i4.png");
  EXPECT_PRED2(contains, message(), "masks/i4.png: a mask without an image");
  std::filesystem::remove(folder / "masks/i3.png");
  const DataSplits data = make_data(node(R"("image_size": 48)", R"(, "bad_samples": {"policy": "skip", "budget": 1})"));
  EXPECT_EQ(data.train->size(), images - 1);
  EXPECT_EQ(data.train->warnings().count, 1);
  Loader loader = data.eval_loader(data.train, images - 1, DeviceType::cuda);
  const Batch batch = loader.next();
  EXPECT_EQ(std::count(batch.samples.begin(), batch.samples.end(), 3), 0);  // i3
  expect_masks_on_pixels(batch, 114);
}

TEST_F(MaskDatasetTest, NamesBadMasksWhenTheyAreRead) {
  write("images", "masks");
  const auto read_all = [&] {
    const DataSplits data = make_data(node());
    return error_message<DataError>([&] { (void)data.eval_loader(data.train, images).next(); });
  };
  write_png(folder / "masks/i5.png", mask_of(5, 39, 39));
  EXPECT_PRED2(contains, read_all(), "masks/i5.png: a mask of 39 x 39 pixels for ");
  EXPECT_PRED2(contains, read_all(), "images/i5.png of 40 x 39");
  Image wrong = mask_of(5, 39, 40);
  wrong.row(2)[7] = 3;
  write_png(folder / "masks/i5.png", wrong);
  EXPECT_PRED2(contains, read_all(), "masks/i5.png: row 2, column 7 has the id 3");
  const DataSplits data = make_data(node());
  const PartReport report = inspect_part(*data.train, true, 1);
  EXPECT_EQ(report.problems, 1);
  EXPECT_PRED2(contains, report.text, "row 2, column 7");
}

TEST_F(MaskDatasetTest, RefusesOrientationsThatLeaveThePixelsOpen) {
  write("images", "masks");
  // It is stored with 23 rows of 37 pixels, and has 37 rows of 23 upright.
  std::filesystem::copy_file(test::source_dir() + "/tests/golden/images/orientation_6.jpg", folder / "images/i0.jpg");
  std::filesystem::remove(folder / "images/i0.png");
  const DataSplits data = make_data(node());
  const auto* const set = data.train->masks();
  Image image, mask;
  write_png(folder / "masks/i0.png", mask_of(0, 23, 37));
  EXPECT_PRED2(contains, error_message<DataError>([&] { set->read(0, image, mask); }), "EXIF orientation is 6");
  write_png(folder / "masks/i0.png", mask_of(0, 37, 23));
  set->read(0, image, mask);
  EXPECT_EQ(image.height, 37);
  EXPECT_EQ(mask.width, 23);
}

TEST_F(MaskDatasetTest, RefusesWrongLayouts) {
  EXPECT_PRED2(contains, message(), "wanted are the folders images and masks; it has 0 files and no folder");
  write("photos", "labels");
  EXPECT_PRED2(contains, message(), "it has the folders labels, photos; name them by \"images\" and \"masks\"");
  write("set/images", "set/masks");
  EXPECT_PRED2(contains, message(), "; give " + (folder / "set").string());
  EXPECT_PRED2(contains, error_message<DataError>([&] {
                 Json below = node();
                 below.set("path", (folder / "set/images").string());
                 (void)make_data(below);
               }),
               "; give " + (folder / "set").string());
  EXPECT_PRED2(contains, error_message<DataError>([&] {
                 Json absent = node();
                 absent.set("path", (folder / "absent").string());
                 (void)make_data(absent);
               }),
               "no such folder");
}

TEST_F(MaskDatasetTest, RefusesSplitsThatDoNotMatch) {
  write("images/train", "masks/train");
  write("images/val", "masks/valid");
  EXPECT_PRED2(contains, message(), "images has the folder val, and the masks have the folders train, valid");
  std::filesystem::rename(folder / "masks/valid", folder / "masks/val");
  EXPECT_EQ(make_data(node()).valid->size(), images);
  write("images", "masks", 1);
  EXPECT_PRED2(contains, message(), "i0.png: lies beside the folders of splits");
  std::filesystem::remove(folder / "images/i0.png");
  write("train/images", "train/masks", 1);
  EXPECT_PRED2(contains, message(), "which of them train is open");
  std::filesystem::remove_all(folder / "images");
  std::filesystem::create_directories(folder / "test/images");
  EXPECT_PRED2(contains, message(), "test: wanted are the folders images and masks");
}

TEST_F(MaskDatasetTest, RefusesNamesThatDoNotMatch) {
  write("images", "masks", 3);
  std::filesystem::copy_file(folder / "images/i1.png", folder / "images/i1.jpg");
  EXPECT_PRED2(contains, message(), "has the same name, and which of them is the image is open");
  std::filesystem::remove(folder / "images/i1.jpg");
  for (int i = 0; i < 3; ++i)
    std::filesystem::rename(folder / join_text("masks/i", i, ".png"), folder / join_text("masks/i", i, "_mask.png"));
  EXPECT_PRED2(contains, message(), "none of the 3 images has a mask");
  EXPECT_PRED2(contains, message(), "mask_suffix");
  EXPECT_PRED2(contains, message(), "i0_mask.png without an image");
  EXPECT_PRED2(contains, message(R"(, "bad_samples": "skip")"), "none of the 3 images");
  (void)folder.write("masks/i0.tiff", {1, 2});
  EXPECT_PRED2(contains, message(), "masks are PNG files");
}

TEST_F(MaskDatasetTest, RefusesBlackAndWhiteMasks) {
  write("images", "masks", 3);
  for (int i = 0; i < 3; ++i) {
    Image mask = mask_of(i, 24 + 3 * i, 60 - 4 * i);
    for (std::uint8_t& value : mask.pixels) value = value == 1 ? 255 : 0;
    write_png(folder / join_text("masks/i", i, ".png"), mask);
  }
  EXPECT_PRED2(contains, message(), "values 0 and 255 alone, and 255 is ignored");
  Json binary = node(R"("image_size": 48)", R"(, "ids": [0, 255], "ignored": [])");
  binary.set("classes", Json::array().push_back("rest").push_back("object"));
  const DataSplits data = make_data(binary);
  const Batch batch = data.eval_loader(data.train, 1).next();
  const std::int64_t* const all = batch["labels"].data<const std::int64_t>();
  EXPECT_GT(std::count(all, all + 48 * 48, 1), 200);
}

TEST_F(MaskDatasetTest, IsInspectedAndDrawn) {
  write("images", "masks");
  const DataSplits data = make_data(node());
  const PartReport report = inspect_part(*data.train, true, 1);
  EXPECT_EQ(report.problems, 0) << report.text;
  EXPECT_EQ(report.json.at("decoded").as_integer(), images);
  std::int64_t pixels = 0, of_second = 0;
  for (int i = 0; i < images; ++i) {
    const Image mask = mask_of(i, 24 + 3 * i, 60 - 4 * i);
    pixels += static_cast<std::int64_t>(mask.pixels.size());
    of_second += std::count(mask.pixels.begin(), mask.pixels.end(), 1);
  }
  const Json& second = report.json.at("classes").at(1);
  EXPECT_EQ(second.at("pixels").as_integer(), of_second);
  EXPECT_DOUBLE_EQ(second.at("share").as_number(), static_cast<double>(of_second) / static_cast<double>(pixels));
  EXPECT_EQ(second.at("images").as_integer(), images);
  EXPECT_EQ(write_sheet(folder / "sheet.png", *data.train, 4), 4);
  EXPECT_GT(std::filesystem::file_size(folder / "sheet.png"), 500U);
}

TEST_F(MaskDatasetTest, FingerprintsTellOtherMasks) {
  write("images", "masks");
  const DataSplits data = make_data(node());
  const auto* const set = data.train->masks();
  Sha256 before, after;
  set->identify(2, before);
  Image other = mask_of(2, 30, 52);
  for (std::size_t p = 0; p < other.pixels.size(); ++p) other.pixels[p] = static_cast<std::uint8_t>(p * p % 3);
  write_png(folder / "masks/i2.png", other);
  set->identify(2, after);
  EXPECT_NE(before.hex(), after.hex());
}

TEST(ResizeMask, TakesTheNearestPixelAndRefusesBoxesOutside) {
  Image mask{2, 4, 1, {0, 1, 2, 3, 4, 5, 6, 7}};
  Image small;
  resize_mask(mask, {{0, 0, 2, 4}, 1, 2, {0, 0, 1, 2}}, small);
  EXPECT_EQ(small.pixels, (std::vector<std::uint8_t>{5, 7}));
  resize_mask(mask, {.box = {0, 0, 2, 4}, .height = 2, .width = 8, .window = {1, 3, 1, 4}, .mirrored = true}, small);
  EXPECT_EQ(small.pixels, (std::vector<std::uint8_t>{7, 6, 6, 5}));
  EXPECT_THROW(resize_mask(mask, {{0, 1, 2, 4}, 1, 2, {0, 0, 1, 2}}, small), ShapeError);
}

}  // namespace
}  // namespace hearth::data::mask_dataset_test
