// SPDX-License-Identifier: Apache-2.0
#include "data/described.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/build.h"
#include "core/random.h"
#include "data/images/codecs/encode.h"
#include "data/images/image_dataset.h"
#include "data/text/labelled.h"
#include "data/text/tokenizers/tokenizer_files.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::described_test {
namespace {

using test::contains;
using test::error_message;

Json node(const std::string& text) { return parse_json(text, "node"); }

TEST(DescribedData, HasTheTransformsAndClassesOfTheTraining) {
  const Json config = node(R"({"type": "synthetic", "height": 9, "width": 7, "channels": 3, "classes": 4,
                               "train_size": 20, "test_size": 8, "workers": 1, "augment": {"image_size": 5}})");
  const DataSplits trained = make_data(config);
  const DataFacts facts = facts_of(trained);
  EXPECT_EQ(facts.kind, "images");
  EXPECT_EQ(facts.image, (ImageShape{9, 7, 3}));
  const DataSplits described = described_data(datasets().parse(config), facts);
  EXPECT_EQ(described.train->size(), 0);
  EXPECT_EQ(described.train->class_names(), trained.train->class_names());
  EXPECT_EQ(described.input_shape(), trained.input_shape());
  EXPECT_EQ(described.options.workers, 1);
  EXPECT_EQ(described.image_options.normalize.mean, trained.image_options.normalize.mean);
  const auto values = described.eval_transforms.normalizer().values(),
             before = trained.eval_transforms.normalizer().values();
  EXPECT_TRUE(std::equal(values.begin(), values.end(), before.begin(), before.end()));
  EXPECT_THROW((void)described.train->images()->get(0), IndexError);
  Json other = config;
  other.set("normalize", node(R"({"mean": [0.5], "std": []})"));
  EXPECT_EQ(described_data(datasets().parse(other), facts).image_options.normalize.mean, std::vector<double>{0.5})
      << "it was asked for";
  EXPECT_EQ(described_data(datasets().parse(other), facts).image_options.normalize.std,
            trained.image_options.normalize.std);
}

TEST(DescribedData, OfTextsNeedsTheirTokenizer) {
  const test::TempDir folder;
  const std::string lines = "a\txy\nb\tyx\n";
  Json config = node(R"({"type": "labelled_text", "length": 5, "workers": 0})");
  config.set("train", Json::array_of(std::vector<std::string>{folder.write("t", {lines.begin(), lines.end()})}));
  const DataSplits trained = make_data(config);
  DataFacts facts = facts_of(trained);
  EXPECT_EQ(facts.kind, "labelled_text");
  EXPECT_EQ(facts.length, 5);
  EXPECT_EQ(facts.classes, (std::vector<std::string>{"a", "b"}));
  EXPECT_PRED2(contains, error_message<DataError>([&] { (void)described_data(datasets().parse(config), facts); }),
               "without a tokenizer");
  facts.tokenizer = parse_tokenizer(trained.train->tokens()->tokenizer().to_json(), "saved");
  const DataSplits described = described_data(datasets().parse(config), facts);
  const auto input = [](const DataSplits& data) { return data.train->tokens()->labelled()->input_of("xyyxxyyx"); };
  EXPECT_EQ(input(described), input(trained));
  EXPECT_EQ(described.train->tokens()->longest(), trained.train->tokens()->longest());
  EXPECT_THROW((void)described.eval_loader(described.train, 1), DataError);
}

TEST(DescribedData, EvaluatesOnTheTestFilesOfCifar) {
  const test::TempDir folder;
  std::vector<std::uint8_t> records;
  for (std::uint8_t label : {3, 7, 3}) {
    records.push_back(label);
    records.insert(records.end(), 3072, label);
  }
  (void)folder.write("test_batch.bin", records);
  DataFacts facts;
  facts.classes = numbered_classes(10);
  facts.image = {32, 32, 3};
  facts.normalize = {{0}, {1}};
  const Json config = node(R"({"type": "cifar10", "path": "absent", "augment": {}})");
  const DataSplits data = evaluation_data(datasets().parse(config), facts, folder.path());
  EXPECT_EQ(data.test->size(), 3);
  EXPECT_EQ(data.valid, nullptr);
  EXPECT_EQ(data.eval_loader(data.test, 3).next()["labels"].to_doubles(), (std::vector<double>{3, 7, 3}));
  facts.classes = {"one", "two"};
  EXPECT_PRED2(contains,
               error_message<DataError>([&] { (void)evaluation_data(datasets().parse(config), facts, folder.path()); }),
               "was \"one\" of 2 classes");
}

TEST(DescribedData, ImagesOfTheSetsSizeAreDecodedAsTheSetHasThem) {
  if (!HEARTH_HAS_JPEG) GTEST_SKIP() << "this build lacks libjpeg";
  const test::TempDir folder;
  Image image;
  image.reshape(200, 160, 3);
  Random random(2, 0);
  for (auto& value : image.pixels) value = static_cast<std::uint8_t>(random.below(256));
  for (const char* name : {"own/train/a/0.jpg", "own/train/b/0.jpg", "own/test/a/0.jpg"})
    folder.write(name, encode_jpeg(image, 95));
  image.reshape(180, 160, 3);
  folder.write("other/test/a/0.jpg", encode_jpeg(image, 95));
  const Json config = node(R"({"type": "image_folder", "workers": 0, "augment": {"image_size": 24}})");
  const auto of = [&](const char* name) { return Json(config).set("path", (folder / name).string()); };
  const DataSplits own = make_data(of("own"));
  DataFacts facts = facts_of(own);
  const auto pixels = [](const DataSplits& data) {
    return data.eval_loader(data.test, 1).next()["images"].to_doubles();
  };
  const auto evaluated = [&](const char* name) {
    return pixels(evaluation_data(datasets().parse(of("own")), facts, folder / name));
  };
  const std::vector<double> other = evaluated("other");
  facts.image = {200, 160, 3};  // as of a packed set whose images have one size
  EXPECT_EQ(evaluated("own"), pixels(own));
  EXPECT_NE(evaluated("other"), other) << "is resized to that size first";
  facts.image = {200, 160, 1};
  facts.normalize = {{0.5}, {0.5}};
  EXPECT_EQ(evaluated("own").size(), std::size_t{24} * 24) << "becomes grey";
}

TEST(DescribedData, ClassesAreComparedByName) {
  EXPECT_EQ(classes_differ({"a", "b"}, {"a", "b"}), "");
  EXPECT_EQ(classes_differ({"a", "b"}, {"0", "1"}), "") << "numbers are no names";
  EXPECT_EQ(classes_differ({"0", "1"}, {"a", "b"}), "");
  EXPECT_PRED2(contains, classes_differ({"a", "b"}, {"a", "c"}), "label 1 was \"b\" of 2 classes");
  EXPECT_PRED2(contains, classes_differ({"a", "b"}, {"a"}), "is no class of 1");
  EXPECT_PRED2(contains, classes_differ({"0", "1"}, {"0", "1", "2"}), "is \"2\" of 3");
}

}  // namespace
}  // namespace hearth::data::described_test
