// SPDX-License-Identifier: Apache-2.0
#include "data/splits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/build.h"
#include "core/error.h"
#include "data/formats/digits.h"
#include "data/formats/image_folder.h"
#include "data/formats/synthetic.h"
#include "data/images/channel_statistics.h"
#include "data/images/inspect.h"
#include "data/images/memory_images.h"
#include "data/prepare.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::registry_test {
namespace {

using test::contains;
using test::error_message;

Json node(const std::string& text) { return parse_json(text, "run.json"); }

struct TintsOptions : ImageDataOptions {
  int level = 3;
};
void describe(Fields<TintsOptions>& fields) {
  describe_images(fields);
  fields.integer("level", &TintsOptions::level, {.min = 0, .max = 255}, "Grey level.");
}

TEST(DataRegistryTest, DigitsWithoutAnythingElse) {
  const DataSplits data = make_data(node(R"({"type": "digits"})"));
  EXPECT_EQ(data.train->size(), 1437);
  EXPECT_EQ(data.valid, nullptr);
  EXPECT_EQ(data.test->size(), 360);
  EXPECT_EQ(data.classes(), 10);
  EXPECT_EQ(data.input_shape(), (ImageShape{8, 8, 1}));
  Loader loader = data.train_loader(64, 1);
  EXPECT_EQ(loader.batches_per_epoch(), 22);
  double sum = 0, squares = 0, count = 0;
  for (int i = 0; i < 22; ++i) {
    for (const double value : loader.next()["images"].to_doubles()) sum += value, squares += value * value, ++count;
  }
  EXPECT_NEAR(sum / count, 0, 0.02);
  EXPECT_NEAR(squares / count, 1, 0.03);
  Loader evaluation = data.eval_loader(data.test, 100);
  EXPECT_EQ(evaluation.batches_per_epoch(), 4);
  EXPECT_EQ(evaluation.next().samples[99], 99);
}

TEST(DataRegistryTest, FieldsReachTheLoader) {
  const DataSplits data = make_data(node(R"({"type": "digits", "split": "ordered", "test_size": 300, "workers": 0,
      "prefetch": 7, "valid_fraction": 0.1, "normalize": {"mean": [0.5], "std": [0.5]},
      "augment": {"image_size": 16, "random_resized_crop": true, "scale": [0.5, 1], "flip": true, "mixup": 0.3,
                  "padded_crop": 1, "erasing": 0.1, "color_jitter": {"brightness": 0.2}}})"));
  EXPECT_EQ(data.test->size(), 300);
  EXPECT_NEAR(static_cast<double>(data.valid->size()), 150, 5);
  EXPECT_EQ(data.train->size() + data.valid->size(), 1497);
  EXPECT_EQ(data.input_shape(), (ImageShape{16, 16, 1}));
  const TransformOptions& options = data.train_transforms.options();
  EXPECT_EQ(options.crop.scale_min, 0.5);
  EXPECT_EQ(options.color_jitter.brightness, 0.2);
  EXPECT_TRUE(options.horizontal_flip && options.random_resized_crop);
  EXPECT_EQ(options.padded_crop, 1);
  EXPECT_EQ(options.mean, std::vector<double>{0.5});
  Loader loader = data.train_loader(10, 1, DeviceType::cuda);
  EXPECT_EQ(loader.options().workers, 0);
  EXPECT_EQ(loader.options().prefetch, 7);
  const Batch batch = loader.next();
  EXPECT_EQ(batch["labels"].shape(), (Shape{10, 10}));
  EXPECT_EQ(batch["images"].dtype(), DType::u8);
  const Batch plain = data.eval_loader(data.valid, 10).next();
  EXPECT_EQ(plain["labels"].shape(), (Shape{10}));
}

TEST(DataRegistryTest, FaultsNameThePath) {
  const std::string message = error_message<ConfigError>([] {
    make_data(node(
        R"({"type": "digits", "augmnet": {}, "workers": -1, "augment": {"flip": 1, "random_resized_crop": true}})"));
  });
  EXPECT_TRUE(contains(message, "augmnet") && contains(message, "augment")) << message;
  EXPECT_TRUE(contains(message, "/workers")) << message;
  EXPECT_TRUE(contains(message, "/augment/flip")) << message;
  EXPECT_TRUE(
      contains(error_message<ConfigError>([] { make_data(node(R"({"type": "fashion-mnist"})")); }), "fashion_mnist"));
  EXPECT_TRUE(contains(error_message<ConfigError>([] { make_data(node(R"({"type": "cifar10"})")); }), "path"));
  EXPECT_TRUE(contains(error_message<ConfigError>([] { make_data(node(R"({"type": "digits", "split": "sorted"})")); }),
                       "ordered"));
  for (const char* key : {"on_error", "empty_classes"})
    EXPECT_TRUE(contains(error_message<ConfigError>([&] {
                           make_data(Json(node(R"({"type": "image_folder", "path": "."})")).set(key, "maybe"));
                         }),
                         "unknown value \"maybe\"; allowed are: fail, skip"));
  EXPECT_TRUE(contains(error_message<ConfigError>(
                           [] { make_data(node(R"({"type": "digits", "augment": {"random_resized_crop": true}})")); }),
                       "needs image_size"));
}

TEST(DataRegistryTest, MeasuresWhereNothingIsUsual) {
  const DataSplits data = make_data(node(R"({"type": "synthetic", "train_size": 50, "height": 12, "width": 9})"));
  const ChannelStatistics measured = channel_statistics(*data.train->images(), 50);
  EXPECT_EQ(data.train_transforms.options().mean, measured.mean);
  EXPECT_EQ(data.image_options.normalize.std, measured.std);
  EXPECT_EQ(measured.mean.size(), 3u);
}

/// Images of one pixel, as bright as their number, that write down which of them are read.
class Sorted : public ImageDataset {
 public:
  explicit Sorted(std::int64_t size) : size_(size) {}
  std::int64_t size() const override { return size_; }
  ImageShape image_shape() const override { return {1, 1, 1}; }
  const std::vector<std::string>& class_names() const override { return names_; }
  const std::string& source() const override { return names_[0]; }
  std::int64_t label(std::int64_t) const override { return 0; }
  std::int64_t read(std::int64_t index, Image& image) const override {
    read_.push_back(index);
    image.reshape(1, 1, 1);
    image.pixels[0] = static_cast<std::uint8_t>(index);
    return 0;
  }
  mutable std::vector<std::int64_t> read_;

 private:
  std::int64_t size_;
  std::vector<std::string> names_{"sorted"};
};

TEST(DataRegistryTest, MeasuresSamplesSpreadOverTheSet) {
  const Sorted many(25), few(4);
  const ChannelStatistics measured = channel_statistics(many, 10);
  EXPECT_EQ(many.read_, (std::vector<std::int64_t>{0, 2, 5, 7, 10, 12, 15, 17, 20, 22}));
  EXPECT_NEAR(measured.mean.at(0), 11.0 / 255, 1e-12);
  (void)channel_statistics(few, 10);
  EXPECT_EQ(few.read_, (std::vector<std::int64_t>{0, 1, 2, 3}));
}

TEST(DataRegistryTest, FoldersAreSplitByNamesAndTheSeed) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  test::TempDir folder;
  Image image;
  image.reshape(5, 6, 3);
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directories(folder / name);
    for (int i = 0; i < 20; ++i) write_png(folder / (std::string(name) + "/" + std::to_string(i) + ".png"), image);
  }
  Json config = node(R"({"type": "image_folder", "test_fraction": 0.2, "augment": {"image_size": 8}})");
  config.set("path", folder.path().string());
  const DataSplits data = make_data(config);
  EXPECT_EQ(data.train->size() + data.test->size(), 40);
  EXPECT_NEAR(data.test->size(), 8, 5);
  EXPECT_EQ(data.input_shape(), (ImageShape{8, 8, 3}));
  config.set("augment", Json::object());
  EXPECT_EQ(make_data(config).input_shape(), (ImageShape{224, 224, 3})) << "the set's own default";
  config.set("augment", node(R"({"image_size": 4, "fit": "pad", "fill": 1})"));
  config.set("shrink_to", 4);
  const DataSplits small = make_data(config);
  EXPECT_EQ(small.train->images()->get(0).image.width, 4) << "5 x 6, shrunk";
  EXPECT_EQ(small.eval_transforms.options().fit, Fit::pad);
  EXPECT_EQ(small.train_transforms.options().fill, 1.0);
  config.set("shrink_to", 3);
  const auto refusal = [&](const char* augment, int shrink_to) {
    config.set("augment", node(augment));
    config.set("shrink_to", shrink_to);
    return error_message<ConfigError>([&] { make_data(config); });
  };
  EXPECT_PRED2(contains, refusal(R"({"image_size": 4, "fit": "pad"})", 3), "shrink_to is 3, and evaluation needs");
  EXPECT_PRED2(contains, refusal("{}", 100), "augment.image_size 224); give at least 224");
  // Where random boxes are taken, evaluation starts from more than the image's size, if it cuts anything off.
  const std::string boxes = R"({"image_size": 7, "random_resized_crop": true)";
  EXPECT_PRED2(contains, refusal((boxes + "}").c_str(), 7), "a shorter side of 8 pixels (augment.image_size 7 / eval");
  config.set("shrink_to", 8);
  EXPECT_NO_THROW(make_data(config));
  config.set("shrink_to", 7);
  config.set("augment", node(boxes + R"(, "fit": "stretch"})"));
  EXPECT_NO_THROW(make_data(config));
  EXPECT_PRED2(contains, refusal((boxes + R"(, "eval_crop": 1e-300})").c_str(), 0), "use a larger eval_crop");
  EXPECT_PRED2(contains, refusal(R"({"image_size": 0, "fit": "pad"})", 0), "fit needs image_size");
}

TEST(DataRegistryTest, NamesThatNoCheckpointCouldKeepAreRefused) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  test::TempDir folder;
  Image image;
  image.reshape(2, 2, 3);
  const auto put = [&](const std::string& name) {
    std::filesystem::create_directories(folder / ("images/" + name));
    for (const char* file : {"/1.png", "/2.png"}) write_png(folder / ("images/" + name + file), image);
  };
  Json images = node(R"({"type": "image_folder", "valid_fraction": 0, "test_fraction": 0})");
  images.set("path", (folder / "images").string());
  // U+00E9 in UTF-8, and the same letter in Latin-1.
  put("caf\xc3\xa9");
  put("bar");
  EXPECT_NO_THROW(make_data(images));
  put("zo\xe9");
  EXPECT_PRED2(contains, error_message<DataError>([&] { make_data(images); }),
               "images: the name of class 2, \"zo\xe9\", is not UTF-8 from byte 3 on");

  const std::string lines = "zo\xe9\tab\ncat\tba\n";
  Json sequences = node(R"({"type": "labelled_text", "length": 8})");
  sequences.set("train", Json::array().push_back(folder.write("texts.tsv", {lines.begin(), lines.end()})));
  EXPECT_PRED2(contains, error_message<DataError>([&] { make_data(sequences); }), "UTF-8");

  add<TintsOptions>(
      "named_tints",
      [](const TintsOptions&) -> Splits {
        return {
            std::make_shared<MemoryImages>("tints", ImageShape{1, 1, 1}, std::vector<std::uint8_t>(2),
                                           std::vector<std::int32_t>{0, 1}, std::vector<std::string>{"light", "\xff"}),
            nullptr, nullptr};
      },
      "A name of one byte.");
  EXPECT_PRED2(contains, error_message<DataError>([] { make_data(node(R"({"type": "named_tints"})")); }),
               "the name of class 1");
}

TEST(DataRegistryTest, AFileThatComesMovesNoOther) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  test::TempDir folder;
  Image image;
  image.reshape(1, 1, 3);
  // Its pixel tells the file.
  std::uint8_t written = 0;
  const auto put = [&](const std::string& name) {
    image.pixels.assign(3, written++);
    std::filesystem::create_directories((folder / name).parent_path());
    write_png(folder / name, image);
  };
  Json config = node(R"({"type": "image_folder", "test_fraction": 0.2, "valid_fraction": 0.25, "workers": 0})");
  config.set("path", folder.path().string());
  const auto parts = [&] {
    const DataSplits data = make_data(config);
    std::map<int, std::string> found;
    for (const auto& [name, set] : {std::pair{"train", data.train}, {"valid", data.valid}, {"test", data.test}})
      for (std::int64_t i = 0; i < set->size(); ++i) found[set->images()->get(i).image.pixels[0]] = name;
    return found;
  };
  for (int i = 0; i < 60; ++i) put((i % 2 ? "a/" : "b/") + std::to_string(i) + ".png");
  const std::map<int, std::string> before = parts();
  ASSERT_EQ(before.size(), 60u);
  for (const char* part : {"train", "valid", "test"})
    EXPECT_GE(std::count_if(before.begin(), before.end(), [&](const auto& file) { return file.second == part; }), 5);
  for (const char* name : {"a/00.png", "b/x.png", "a/30b.png", "c/new.png", "b/zz.png", "a/deeper/1.png"}) {
    put(name);
    const std::map<int, std::string> now = parts();
    for (const auto& [file, part] : before) EXPECT_EQ(now.at(file), part) << name << " moved " << file;
  }
}

TEST(DataRegistryTest, OneFileIsPreparedAsItsSetIs) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  test::TempDir folder;
  Image image;
  image.reshape(50, 90, 3);
  for (std::size_t p = 0; p < image.pixels.size(); ++p) image.pixels[p] = static_cast<std::uint8_t>(p * 37 % 251);
  for (const char* name : {"train/a", "train/b", "test/a"}) {
    std::filesystem::create_directories(folder / name);
    for (const char* file : {"/1.png", "/2.png"}) write_png(folder / (std::string(name) + file), image);
  }
  Json config = node(R"({"type": "image_folder", "shrink_to": 20, "valid_fraction": 0.5, "workers": 0,
                         "augment": {"image_size": 10, "fit": "pad"}})");
  config.set("path", folder.path().string());
  const DataSplits data = make_data(config);
  const Tensor one = load_input(folder / "test/a/1.png", folder_options(datasets().parse(config)),
                                *data.train->images(), data.eval_transforms);
  EXPECT_EQ(one.to_doubles(), data.eval_loader(data.test, 1).next()["images"].to_doubles());
}

TEST(DataRegistryTest, ProgramsAddTheirOwn) {
  add<TintsOptions>(
      "tints",
      [](const TintsOptions& options) -> Splits {
        std::vector<std::uint8_t> pixels(8 * 4, static_cast<std::uint8_t>(options.level));
        return {std::make_shared<MemoryImages>("tints", ImageShape{2, 2, 1}, pixels,
                                               std::vector<std::int32_t>{0, 1, 0, 1, 0, 1, 0, 1}, numbered_classes(2)),
                nullptr, nullptr};
      },
      "Squares of one grey level.");
  const DataSplits data = make_data(node(R"({"type": "tints", "level": 51, "valid_fraction": 0.5})"));
  EXPECT_EQ(data.valid->size(), 4);
  EXPECT_EQ(data.train->images()->get(0).image.pixels[0], 51);
  const Batch batch = data.train_loader(4, 0).next();
  EXPECT_EQ(batch["images"].to_doubles(), std::vector<double>(16, 0.0))
      << "a constant is its own mean; its deviation is 1";
}

TEST(SyntheticTest, IsLearnableAndAPureFunctionOfTheIndex) {
  const SyntheticOptions options{.train_size = 40, .test_size = 20, .height = 9, .width = 11, .classes = 4};
  const ImageSplits a = synthetic(options), b = synthetic(options);
  EXPECT_EQ(a.train->image_shape(), (ImageShape{9, 11, 3}));
  // Nearest class mean of the training split must tell the test split's classes apart.
  std::vector<std::vector<double>> means(4, std::vector<double>(9 * 11 * 3));
  for (std::int64_t i = 0; i < 40; ++i) {
    const Sample sample = a.train->get(i);
    EXPECT_EQ(sample.image, b.train->get(i).image);
    EXPECT_EQ(sample.label, i % 4);
    auto& mean = means[static_cast<std::size_t>(sample.label)];
    for (std::size_t p = 0; p < mean.size(); ++p) mean[p] += sample.image.pixels[p] / 10.0;
  }
  for (std::int64_t i = 0; i < 20; ++i) {
    const Sample sample = a.test->get(i);
    EXPECT_NE(sample.image, a.train->get(i).image);
    std::int64_t nearest = 0;
    double least = 1e30;
    for (std::size_t label = 0; label < 4; ++label) {
      double distance = 0;
      for (std::size_t p = 0; p < means[label].size(); ++p)
        distance += std::pow(means[label][p] - sample.image.pixels[p], 2);
      if (distance < least) least = distance, nearest = static_cast<std::int64_t>(label);
    }
    EXPECT_EQ(nearest, sample.label);
  }
  SyntheticOptions other = options;
  other.seed = 1;
  EXPECT_NE(synthetic(other).train->get(0).image, a.train->get(0).image);
  other.classes = 0;
  EXPECT_THROW(synthetic(other), ConfigError);
}

/// Digits with one sample that cannot be read and one label outside the classes.
class Faulty : public ImageDataset {
 public:
  std::int64_t size() const override { return 30; }
  ImageShape image_shape() const override { return {8, 8, 1}; }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::int64_t label(std::int64_t index) const override { return index == 7 ? 99 : digits()->label(index); }
  std::int64_t read(std::int64_t index, Image& image) const override {
    if (index == 11) throw DataError("torn page");
    return digits()->read(index, image);
  }
  const std::string& source() const override { return source_; }

 private:
  std::vector<std::string> names_ = numbered_classes(11);
  std::string source_ = "faulty";
};

TEST(InspectTest, CountsAndMeasures) {
  const Inspection all = verify(*digits());
  EXPECT_EQ(all.samples, 1797);
  EXPECT_EQ(all.decoded, 1797);
  EXPECT_EQ(all.problems.count, 0);
  EXPECT_EQ(all.histogram[3], 183);
  EXPECT_NEAR(all.statistics.mean[0], 0.3053, 1e-4);
  EXPECT_NEAR(all.statistics.std[0], 0.3759, 1e-4);
  EXPECT_EQ(all.sha256.size(), 64u);
  const Inspection some = inspect(*digits(), 10);
  EXPECT_EQ(some.decoded, 10);
  EXPECT_EQ(some.histogram, all.histogram);
  EXPECT_TRUE(some.sha256.empty());
  const Json json = to_json(all);
  EXPECT_EQ(json.at("classes").at("3").as_integer(), 183);
  EXPECT_TRUE(contains(to_text(all), "1797 samples, 10 classes"));
}

TEST(InspectTest, ListsProblems) {
  const Inspection found = verify(Faulty());
  EXPECT_EQ(found.problems.count, 2);
  EXPECT_EQ(found.warnings.count, 1) << "a class without samples makes no sample unreadable";
  EXPECT_EQ(found.decoded, 29);
  EXPECT_TRUE(found.sha256.empty());
  const std::string text = to_text(found);
  EXPECT_TRUE(contains(text, "sample 7: label 99")) << text;
  EXPECT_TRUE(contains(text, "class '10' has no sample")) << text;
  EXPECT_TRUE(contains(text, "sample 11: torn page")) << text;
}

}  // namespace
}  // namespace hearth::data::registry_test
