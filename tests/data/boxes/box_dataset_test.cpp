// SPDX-License-Identifier: Apache-2.0
#include "data/boxes/box_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "data/boxes/box_data.h"
#include "data/fingerprint.h"
#include "data/images/codecs/decode.h"
#include "data/loading/loader.h"
#include "data/splits.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::box_dataset_test {
namespace {

using test::contains;
using test::error_message;

constexpr int images = 11;

/// Image i is black with i % 4 white rectangles, which are its boxes.
struct Drawn {
  Image image;
  std::vector<std::array<int, 4>> boxes;  // x, y, width, height
};
Drawn drawn(int i) {
  Drawn made;
  made.image.reshape(24 + 3 * i, 60 - 4 * i, 3);
  std::fill(made.image.pixels.begin(), made.image.pixels.end(), std::uint8_t{0});
  for (int b = 0; b < i % 4; ++b) {
    const std::array<int, 4> box{2 + 5 * b, 1 + 7 * b, 4, 6};
    for (int y = box[1]; y < box[1] + box[3]; ++y)
      for (int x = box[0]; x < box[0] + box[2]; ++x)
        for (int c = 0; c < 3; ++c) made.image.row(y)[3 * x + c] = 255;
    made.boxes.push_back(box);
  }
  return made;
}

struct BoxDatasetTest : ::testing::Test {
  test::TempDir folder;
  void SetUp() override {
    if (encode_png(Image{1, 1, 1, {0}}).empty()) GTEST_SKIP() << "no libpng";
    std::string listed, annotations;
    int id = 0;
    std::filesystem::create_directories(folder / "images");
    for (int i = 0; i < images; ++i) {
      const Drawn made = drawn(i);
      const std::string file = join_text("i", i, ".png");
      write_png(folder / ("images/" + file), made.image);
      listed += join_text(i == 0 ? "" : ", ", R"({"id": )", i, R"(, "file_name": ")", file, R"(", "width": )",
                          made.image.width, R"(, "height": )", made.image.height, "}");
      for (const auto& box : made.boxes) {
        annotations += join_text(id == 0 ? "" : ", ", R"({"id": )", id, R"(, "image_id": )", i, R"(, "category_id": )",
                                 i % 2 == 0 ? 3 : 7, R"(, "iscrowd": )", id % 5 == 0 ? 1 : 0, R"(, "bbox": [)", box[0],
                                 ", ", box[1], ", ", box[2], ", ", box[3], "]}");
        ++id;
      }
    }
    write(listed, annotations);
  }
  void write(const std::string& listed, const std::string& annotations) {
    const std::string text = R"({"images": [)" + listed + R"(], "annotations": [)" + annotations +
                             R"(], "categories": [{"id": 3, "name": "a"}, {"id": 7, "name": "b"}]})";
    folder.write("labels.json", {text.begin(), text.end()});
  }
  Json node(const std::string& more = "") {
    return parse_json(R"({"type": "coco", "train": {"images": ")" + (folder / "images").string() + R"(", "labels": ")" +
                          (folder / "labels.json").string() + R"("}, "augment": {"image_size": 48}, "workers": 0)" +
                          more + "}",
                      "test");
  }
};

std::vector<std::array<float, 4>> rows_of(const Tensor& boxes) {
  std::vector<std::array<float, 4>> rows(static_cast<std::size_t>(boxes.dim(0)));
  for (std::size_t i = 0; i < rows.size(); ++i) std::copy_n(boxes.data<const float>() + 4 * i, 4, rows[i].begin());
  return rows;
}

TEST_F(BoxDatasetTest, BatchesHaveBoxesWithoutPadding) {
  const DataSplits data = make_data(node());
  EXPECT_EQ(data.input_shape(), (ImageShape{48, 48, 3}));
  EXPECT_EQ(data.train->class_names(), (std::vector<std::string>{"a", "b"}));
  Loader loader = data.eval_loader(data.train, 4, DeviceType::cuda);
  for (const std::vector<std::int64_t>& counts : {std::vector<std::int64_t>{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2}}) {
    const Batch batch = loader.next();
    const auto n = static_cast<std::int64_t>(counts.size());
    const std::int64_t m = counts.size() == 4 ? 6 : 3;
    EXPECT_EQ(batch["images"].shape(), (Shape{n, 48, 48, 3}));
    EXPECT_EQ(batch["images"].dtype(), DType::u8);
    EXPECT_EQ(batch["boxes"].shape(), (Shape{m, 4}));
    EXPECT_EQ(batch["classes"].shape(), (Shape{m}));
    EXPECT_EQ(batch["box_flags"].shape(), (Shape{m}));
    EXPECT_EQ(batch["box_areas"].shape(), (Shape{m}));
    EXPECT_EQ(batch["image_sizes"].shape(), (Shape{n, 2}));
    EXPECT_EQ(batch["image_maps"].shape(), (Shape{n, 4}));
    EXPECT_EQ(std::vector<std::int64_t>(batch["box_counts"].data<const std::int64_t>(),
                                        batch["box_counts"].data<const std::int64_t>() + n),
              counts);
    EXPECT_EQ(batch.rows(), n);
    EXPECT_EQ(batch.count(), n);
    const std::set<std::string> ragged{"boxes", "classes", "box_flags", "box_areas"};
    for (const Batch::Named& named : batch.tensors())
      EXPECT_EQ(named.axis, ragged.contains(named.name) ? Batch::Axis::ragged : Batch::Axis::rows) << named.name;
  }
}

/// The pixels that are brighter than half lie within the boxes, and fill them.
void expect_boxes_on_pixels(const Batch& batch) {
  const std::int64_t size = batch["images"].dim(1);
  std::int64_t first = 0;
  const auto boxes = rows_of(batch["boxes"]);
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    const std::uint8_t* const pixels = batch["images"].data<const std::uint8_t>() + i * size * size * 3;
    const std::int64_t count = batch["box_counts"].data<const std::int64_t>()[i];
    double bright = 0, area = 0;
    for (std::int64_t y = 0; y < size; ++y)
      for (std::int64_t x = 0; x < size; ++x) {
        const int value = pixels[(y * size + x) * 3];
        bright += value == 114 ? 0 : value / 255.0;  // 114 is the margin's
        bool inside = false;
        for (std::int64_t b = first; b < first + count; ++b) {
          const auto& box = boxes[static_cast<std::size_t>(b)];
          const double cx = static_cast<double>(x) + 0.5, cy = static_cast<double>(y) + 0.5;
          inside = inside || (cx > box[0] && cx < box[2] && cy > box[1] && cy < box[3]);
        }
        EXPECT_TRUE(inside || value <= 150) << "row " << i << " at " << x << ", " << y;
      }
    for (std::int64_t b = first; b < first + count; ++b) {
      const auto& box = boxes[static_cast<std::size_t>(b)];
      area += static_cast<double>(box[2] - box[0]) * static_cast<double>(box[3] - box[1]);
    }
    EXPECT_NEAR(bright, area, 0.15 * area + 1e-3) << "row " << i;
    first += count;
  }
  EXPECT_EQ(first, batch["boxes"].dim(0));
}

TEST_F(BoxDatasetTest, BoxesMoveWithThePixels) {
  const DataSplits data = make_data(node());
  Loader loader = data.eval_loader(data.train, 4, DeviceType::cuda);
  for (int i = 0; i < 3; ++i) expect_boxes_on_pixels(loader.next());
}

TEST_F(BoxDatasetTest, MirrorsBoxesWithPixelsBySample) {
  Json config = node();
  config.find("augment")->set("flip", true);
  const DataSplits data = make_data(config);
  Loader loader = data.train_loader(4, 3, DeviceType::cuda);
  Loader again = data.train_loader(2, 3, DeviceType::cuda);
  std::set<double> signs;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (int i = 0; i < 2; ++i) {
      const Batch batch = loader.next();
      expect_boxes_on_pixels(batch);
      for (std::int64_t row = 0; row < 4; ++row)
        signs.insert(batch["image_maps"].data<const double>()[4 * row] > 0 ? 1 : -1);
    }
  EXPECT_EQ(signs.size(), 2u) << "some are mirrored, some are not";
  // A function of seed, epoch and sample, whatever the batch.
  Loader first = data.train_loader(4, 3, DeviceType::cuda);
  const Batch whole = first.next();
  const Batch half = again.next();
  EXPECT_EQ(half["image_maps"].to_doubles(), whole.gather({0, 1})["image_maps"].to_doubles());
  EXPECT_EQ(half["boxes"].to_doubles(), whole.gather({0, 1})["boxes"].to_doubles());
  EXPECT_EQ(half["images"].to_doubles(), whole.gather({0, 1})["images"].to_doubles());
}

TEST_F(BoxDatasetTest, MapsLeadFromTheImageToTheInput) {
  Json config = node();
  config.find("augment")->set("flip", true);
  const DataSplits data = make_data(config);
  const AnnotatedImages& annotated = data.train->boxes()->annotated();
  Loader loader = data.train_loader(5, 1);
  const Batch batch = loader.next();
  std::int64_t box = 0;
  for (std::int64_t row = 0; row < 5; ++row) {
    const double* const map = batch["image_maps"].data<const double>() + 4 * row;
    const std::int64_t sample = batch.samples[static_cast<std::size_t>(row)];
    EXPECT_EQ(batch["image_sizes"].data<const std::int64_t>()[2 * row],
              annotated.images[static_cast<std::size_t>(sample)].height);
    EXPECT_EQ(batch["image_sizes"].data<const std::int64_t>()[2 * row + 1],
              annotated.images[static_cast<std::size_t>(sample)].width);
    for (const BoxAnnotation& truth : annotated.boxes_of(static_cast<std::size_t>(sample))) {
      const float* const at = batch["boxes"].data<const float>() + 4 * box;
      EXPECT_NEAR((at[map[0] > 0 ? 0 : 2] - map[2]) / map[0], truth.corners[0], 1e-5);
      EXPECT_NEAR((at[map[0] > 0 ? 2 : 0] - map[2]) / map[0], truth.corners[2], 1e-5);
      EXPECT_NEAR((at[1] - map[3]) / map[1], truth.corners[1], 1e-5);
      EXPECT_NEAR((at[3] - map[3]) / map[1], truth.corners[3], 1e-5);
      EXPECT_EQ(batch["classes"].data<const std::int64_t>()[box], truth.label);
      EXPECT_EQ(batch["box_flags"].data<const std::uint8_t>()[box], truth.crowd ? 1 : 0);
      ++box;
    }
  }
  EXPECT_EQ(box, batch["boxes"].dim(0));
  EXPECT_EQ(batch["images"].dtype(), DType::f32) << "normalised for the CPU";
}

TEST_F(BoxDatasetTest, PiecesOfRanksCutBoxesWithTheirImages) {
  const DataSplits data = make_data(node());
  Loader whole_loader = data.train_loader(5, 9, DeviceType::cuda);
  const Batch whole = whole_loader.next();
  for (const std::int64_t cuts : {2, 3, 5, 7}) {
    std::int64_t row = 0;
    for (std::int64_t piece = 0; piece < cuts; ++piece) {
      Loader loader = data.train_loader(5, 9, DeviceType::cuda, {.cuts = cuts, .of = cuts, .first = piece});
      const Batch part = loader.next();
      std::vector<std::int64_t> rows(static_cast<std::size_t>(part.size()));
      for (std::int64_t& each : rows) each = row++;
      if (rows.empty()) continue;
      const Batch expected = whole.gather(rows);
      ASSERT_EQ(part.samples, expected.samples);
      ASSERT_EQ(part.tensors().size(), expected.tensors().size());
      for (const Batch::Named& named : part.tensors()) {
        EXPECT_EQ(named.tensor.shape(), expected[named.name].shape()) << named.name;
        EXPECT_EQ(named.tensor.to_doubles(), expected[named.name].to_doubles()) << named.name;
      }
    }
    EXPECT_EQ(row, 5) << cuts << " pieces";
  }
}

TEST_F(BoxDatasetTest, WorkersChangeNothing) {
  Json config = node();
  config.find("augment")->set("flip", true);
  const auto epoch = [&](int workers) {
    config.set("workers", workers);
    const DataSplits data = make_data(config);
    Loader loader = data.train_loader(3, 4);
    std::vector<double> seen;
    for (int i = 0; i < 6; ++i) {
      const Batch batch = loader.next();
      for (const Batch::Named& named : batch.tensors())
        for (const double value : named.tensor.to_doubles()) seen.push_back(value);
    }
    return seen;
  };
  EXPECT_EQ(epoch(0), epoch(3));
}

TEST_F(BoxDatasetTest, PassesOverBadSamples) {
  folder.write("images/i4.png", {'x'});
  const auto first_epoch = [&](const Json& config) {
    const DataSplits data = make_data(config);
    Loader loader = data.eval_loader(data.train, images, DeviceType::cuda);
    return loader.next();
  };
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)first_epoch(node()); }), "i4.png"));
  const Batch batch = first_epoch(node(R"(, "bad_samples": "skip")"));
  EXPECT_EQ(batch.samples[4], 5) << "the next one stands in";
  expect_boxes_on_pixels(batch);
}

const std::string box_of_first_image = R"({"id": 1, "image_id": 1, "category_id": 3, "bbox": [2, 3, 4, 5]})";

TEST_F(BoxDatasetTest, LabelsMeanPixelsThatTheImageHas) {
  write(R"({"id": 1, "file_name": "i2.png", "width": 52, "height": 29})", box_of_first_image);
  const std::string message = error_message<DataError>([&] {
    const DataSplits data = make_data(node());
    Loader loader = data.eval_loader(data.train, 1);
    (void)loader.next();
  });
  EXPECT_TRUE(contains(message, "i2.png: has 52 x 30 pixels, and ")) << message;
  EXPECT_TRUE(contains(message, "says 52 x 29; boxes mean other pixels than these")) << message;
}

TEST_F(BoxDatasetTest, AnOrientationThatMayMeanOtherPixelsIsRefused) {
  for (const int orientation : {3, 6}) {
    // JPEG may be absent from a build; what is read goes by content.
    const std::string name = orientation == 6 ? "orientation_6.png" : "orientation_3.jpg";
    const std::string golden = test::source_dir() + "/tests/golden/images/" + name;
    std::filesystem::copy_file(golden, folder / "images/turned.png", std::filesystem::copy_options::overwrite_existing);
    Image upright;
    try {
      upright = decode_image(golden);
    } catch (const DataError&) {
      continue;
    }
    const auto read = [&](int width, int height) {
      write(join_text(R"({"id": 1, "file_name": "turned.png", "width": )", width, R"(, "height": )", height, "}"),
            box_of_first_image);
      const DataSplits data = make_data(node());
      Loader loader = data.eval_loader(data.train, 1);
      return loader.next();
    };
    if (orientation == 6) {
      EXPECT_EQ(read(upright.width, upright.height)["image_sizes"].to_doubles(),
                (std::vector<double>{1.0 * upright.height, 1.0 * upright.width}));
      EXPECT_TRUE(contains(error_message<DataError>([&] { (void)read(upright.height, upright.width); }),
                           "turned.png: its EXIF orientation is 6"));
    } else {
      EXPECT_TRUE(contains(error_message<DataError>([&] { (void)read(upright.width, upright.height); }),
                           "turned.png: its EXIF orientation is 3"));
    }
  }
}

TEST_F(BoxDatasetTest, RefusesFoldersAndSplits) {
  const auto refusal = [&](const Json& config) { return error_message<Error>([&] { (void)make_data(config); }); };
  Json above = node();
  above.find("train")->set("images", folder.path().string());
  EXPECT_TRUE(contains(refusal(above), "has none of the 11 images of"));
  EXPECT_TRUE(contains(refusal(above), "the first of which is i0.png; give " + (folder / "images").string() +
                                           " as the folder of images, which has it"));
  Json gone = node();
  gone.find("train")->set("images", (folder / "gone").string());
  EXPECT_TRUE(contains(refusal(gone), "gone: no such folder of images"));
  std::filesystem::remove(folder / "images/i3.png");
  EXPECT_TRUE(contains(refusal(node()), "i3.png: is an image of"));
  EXPECT_EQ(make_data(node(R"(, "bad_samples": "skip")")).train->size(), images);

  const std::string other =
      R"({"images": [{"id": 1, "file_name": "i0.png", "width": 60, "height": 24}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 9, "bbox": [1, 2, 30, 4]}], "categories": [{"id": 9, "name": "b"}, {"id": 11, "name": "new"}]})";
  folder.write("other.json", {other.begin(), other.end()});
  Json with_valid = node(R"(, "bad_samples": "skip")");
  with_valid.set(
      "valid",
      Json::object().set("images", (folder / "images").string()).set("labels", (folder / "other.json").string()));
  EXPECT_TRUE(contains(refusal(with_valid), "other.json: the class \"new\" is none of the 2 of the training split"));
  Json half = node();
  half.set("valid", Json::object().set("images", "x"));
  EXPECT_TRUE(contains(refusal(half), "images and labels are given together"));
}

TEST_F(BoxDatasetTest, ClassesOfOtherSplitsAreMatchedByName) {
  const std::string other = R"({"images": [{"id": 1, "file_name": "i0.png", "width": 60, "height": 24}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 2, "bbox": [1, 2, 3, 4]}], "categories": [{"id": 2, "name": "b"}]})";
  folder.write("other.json", {other.begin(), other.end()});
  Json config = node();
  config.set(
      "valid",
      Json::object().set("images", (folder / "images").string()).set("labels", (folder / "other.json").string()));
  const DataSplits data = make_data(config);
  const AnnotatedImages& valid = data.valid->boxes()->annotated();
  EXPECT_EQ(valid.class_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(valid.category_ids, (std::vector<std::int64_t>{-1, 2}));
  EXPECT_EQ(valid.boxes[0].label, 1);
}

TEST_F(BoxDatasetTest, SomeImagesAreSetAsideByName) {
  const DataSplits data = make_data(node(R"(, "valid_fraction": 0.4, "split_seed": 3)"));
  ASSERT_NE(data.valid, nullptr);
  EXPECT_EQ(data.train->size() + data.valid->size(), images);
  EXPECT_GT(data.valid->size(), 0);
  std::set<std::string> names;
  for (const DatasetPointer& split : {data.train, data.valid})
    for (std::int64_t i = 0; i < split->size(); ++i) {
      const std::string name = split->sample_name(i);
      EXPECT_TRUE(names.insert(name).second) << name;
      const auto boxes = split->boxes()->annotated().boxes_of(static_cast<std::size_t>(i));
      const Drawn made = drawn(std::stoi(name.substr(1)));
      ASSERT_EQ(boxes.size(), made.boxes.size()) << name;
      for (std::size_t b = 0; b < boxes.size(); ++b) EXPECT_EQ(boxes[b].corners[0], made.boxes[b][0]);
    }
  // The next image with faults keeps them.
  std::filesystem::remove(folder / "images/i3.png");
  const DataSplits skipping = make_data(node(R"(, "valid_fraction": 0.4, "split_seed": 3, "bad_samples": "skip")"));
  std::size_t faults = 0;
  for (const DatasetPointer& split : {skipping.train, skipping.valid})
    for (const auto& [index, fault] : split->boxes()->annotated().faults) {
      EXPECT_EQ(split->sample_name(index), "i3.png");
      ++faults;
    }
  EXPECT_EQ(faults, 1u);
}

TEST_F(BoxDatasetTest, IsIdentifiedByNamesAndBoxes) {
  const auto digest = [&] { return to_text(fingerprint(make_data(node()))); };
  const std::string before = digest();
  EXPECT_EQ(before, digest());
  write(R"({"id": 1, "file_name": "i1.png", "width": 56, "height": 27})",
        R"({"id": 1, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4]})");
  const std::string changed = digest();
  write(R"({"id": 1, "file_name": "i1.png", "width": 56, "height": 27})",
        R"({"id": 1, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 5]})");
  const std::string other_box = digest();
  EXPECT_NE(changed, other_box);
  write(R"({"id": 1, "file_name": "i1.png", "width": 56, "height": 27})",
        R"({"id": 1, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 5], "area": 7})");
  EXPECT_NE(other_box, digest()) << "evaluations measure by areas";
}

TEST_F(BoxDatasetTest, NeedsTransforms) {
  const DataSplits data = make_data(node());
  EXPECT_THROW(Loader(data.train, LoaderOptions{.batch_size = 2}), ConfigError);
  EXPECT_THROW(Loader(data.train, Transforms({0, 0, 3}, {.image_size = 32}, false), {.batch_size = 2}), ConfigError)
      << "the fit is not pad";
  EXPECT_THROW(Loader(data.train, data.train_transforms, {.batch_size = 2, .mixup_alpha = 1}), ConfigError);
}

}  // namespace
}  // namespace hearth::data::box_dataset_test
