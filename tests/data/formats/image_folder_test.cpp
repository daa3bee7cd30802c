// SPDX-License-Identifier: Apache-2.0
#include "data/formats/image_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/build.h"
#include "core/error.h"
#include "data/images/hold_out.h"
#include "data/images/transforms/resize.h"
#include "data/loading/loader.h"
#include "data/splits.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::image_folder_test {
namespace {

using test::contains;
using test::error_message;

namespace fs = std::filesystem;

struct ImageFolderTest : testing::Test {
  test::TempDir folder;

  void SetUp() override {
    if (!HEARTH_HAS_PNG || !HEARTH_HAS_JPEG) GTEST_SKIP() << "this build lacks libjpeg-turbo or libpng";
  }
  // A square of one grey level, by which a test knows it again.
  void put(const std::string& name, std::uint8_t level, int side = 4) const {
    fs::create_directories(fs::path(folder / name).parent_path());
    Image image;
    image.reshape(side, side, 1);
    std::fill(image.pixels.begin(), image.pixels.end(), level);
    write_png(folder / name, image);
  }
  std::vector<int> levels(const ImageDataset& set) const {
    std::vector<int> result;
    for (std::int64_t i = 0; i < set.size(); ++i) result.push_back(set.get(i).image.pixels[0]);
    return result;
  }
};

TEST_F(ImageFolderTest, SortsClassesAndFilesAndIgnoresTheRest) {
  put("b/2.png", 20);
  put("b/1.PNG", 10, 7);
  put("a/deep/er/x.png", 30);
  fs::copy_file(test::source_dir() + "/tests/golden/images/grey.jpg", folder / "a/z.JpEg");
  folder.write("a/notes.txt", {'h', 'i'});
  folder.write("README.md", {'h', 'i'});
  put(".hidden/1.png", 1);
  const ImageDatasetPointer set = image_folder(folder.path(), {});
  EXPECT_EQ(set->class_names(), (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(set->size(), 4);
  EXPECT_EQ(set->label(0), 0);
  EXPECT_EQ(set->get(0).image.pixels[0], 30);
  EXPECT_EQ(set->get(1).image.width, 37);
  EXPECT_EQ(set->get(2).image.height, 7);
  EXPECT_EQ(set->get(2).image.channels, 3);
  EXPECT_EQ(set->get(3).image.pixels[0], 20);
  EXPECT_EQ(set->get(3).label, 1);
  EXPECT_EQ(set->warnings().count, 0);
  EXPECT_EQ(set->image_shape(), (ImageShape{0, 0, 3}));
}

TEST_F(ImageFolderTest, LinksAreFollowedAndLoopsEnd) {
  put("a/1.png", 1);
  put("elsewhere/2.png", 2);
  fs::create_directory_symlink(folder / "a", folder / "a/self");
  fs::create_directory_symlink(folder.path(), folder / "a/up");
  fs::create_directory_symlink(folder / "elsewhere", folder / "a/other");
  fs::create_directory_symlink(folder / "elsewhere", folder / "a/other_again");
  fs::create_symlink(folder / "elsewhere/2.png", folder / "a/3.png");
  const ImageDatasetPointer set = image_folder(folder.path(), {}, {"a", "elsewhere"});
  std::int64_t in_a = 0;
  for (std::int64_t i = 0; i < set->size(); ++i) in_a += set->label(i) == 0 ? 1 : 0;
  // 1.png, 3.png, and 2.png once, by whichever way it is met first; a second way to the same folder adds nothing.
  EXPECT_EQ(in_a, 3);
}

TEST_F(ImageFolderTest, ALinkToAFolderAboveBringsNoOtherClassIn) {
  put("set/a/1.png", 1);
  put("set/b/2.png", 2);
  fs::create_directory_symlink("..", folder / "set/a/up");
  fs::create_directory_symlink("../..", folder / "set/b/top");
  const ImageDatasetPointer set = image_folder(folder / "set", {}, {"a", "b"});
  ASSERT_EQ(set->size(), 2);
  EXPECT_EQ(set->label(0), 0);
  EXPECT_EQ(set->label(1), 1);
  // However the folder is written.
  EXPECT_EQ(image_files(folder / "set/").paths.size(), 2U);
  EXPECT_EQ(image_files(folder / "set/a/..").paths.size(), 2U);
}

TEST_F(ImageFolderTest, ClassesThatAreAlikeAreRefused) {
  for (const char* twin : {"Cat", "cat ", "CAT"}) {
    put("alike/cat/1.png", 1);
    put("alike/dog/1.png", 1);
    put(join_text("alike/", twin, "/1.png"), 2);
    EXPECT_PRED2(contains, error_message<DataError>([&] { (void)image_folder_splits(folder / "alike", {}); }),
                 "differ in blanks or case only; write them alike, or rename one of the folders");
    fs::remove_all(folder / "alike");
  }
}

TEST_F(ImageFolderTest, BrokenFilesStopTheRun) {
  put("a/1.png", 1);
  folder.write("a/2.png", {0x89, 'P', 'N', 'G', 13, 10, 26, 10});
  const ImageDatasetPointer set = image_folder(folder.path(), {});
  EXPECT_EQ(set->get(0).label, 0);
  EXPECT_TRUE(contains(error_message<DataError>([&] { set->get(1); }), folder / "a/2.png"));
  fs::create_symlink(folder / "nowhere.png", folder / "a/3.png");
  EXPECT_TRUE(
      contains(error_message<DataError>([&] { image_folder(folder.path(), {}); }), "a/3.png: a link to nothing"));
}

TEST_F(ImageFolderTest, BrokenFilesAreSkippedAndCountedOnce) {
  put("a/1.png", 1);
  folder.write("a/2.png", {'n', 'o'});
  folder.write("b/1.png", {});
  put("b/2.png", 22);
  fs::create_symlink(folder / "nowhere.png", folder / "b/3.png");
  const ImageDatasetPointer set = image_folder(folder.path(), {.on_error = OnFault::skip});
  ASSERT_EQ(set->size(), 4);
  EXPECT_EQ(set->unreadable().count, 1) << "the link";
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(levels(*set), (std::vector<int>{1, 22, 22, 22}));
    EXPECT_EQ(set->get(1).label, 1) << "the stand-in brings its own label";
    EXPECT_EQ(set->unreadable().count, 3);
    EXPECT_EQ(set->warnings().count, 0);
  }
  EXPECT_TRUE(contains(set->unreadable().first[1], "a/2.png: neither JPEG, PNG, WebP nor BMP"));
  folder.write("a/1.png", {});
  folder.write("b/2.png", {});
  const ImageDatasetPointer none = image_folder(folder.path(), {.on_error = OnFault::skip});
  EXPECT_TRUE(contains(error_message<DataError>([&] { none->get(0); }), "none of the 4 samples"));
}

TEST_F(ImageFolderTest, TheEarlierAndTheLaterPolicyAreOne) {
  for (int i = 0; i < 8; ++i)
    put(join_text("train/", i < 6 ? "a/" : "b/", i, ".png"), static_cast<std::uint8_t>(10 + i));
  folder.write("train/a/3.png", {'n', 'o'});
  for (const char* policy :
       {R"("on_error": "skip")", R"("bad_samples": "skip")", R"("bad_samples": {"policy": "skip", "budget": null})"}) {
    const DataSplits data = make_data(parse_json(join_text(R"({"type": "image_folder", "workers": 0, "path": ")",
                                                           folder.path().string(), R"(", "test_fraction": 0,
        "augment": {"image_size": 2}, )",
                                                           policy, "}"),
                                                 "test"));
    ASSERT_NE(data.quarantines[0], nullptr);
    EXPECT_EQ(data.quarantines[0]->limit(), contains(policy, "bad_samples\": \"") ? 1 : 8) << policy;
    Loader loader = data.eval_loader(data.train, 8);
    EXPECT_EQ(loader.next().samples, (std::vector<std::int64_t>{0, 1, 2, 4, 4, 5, 6, 7}));
    ASSERT_EQ(data.quarantines[0]->count(), 1);
    EXPECT_TRUE(contains(data.quarantines[0]->delivered()[0].fault, "a/3.png: neither JPEG"));
  }
}

TEST_F(ImageFolderTest, StandInsComeFromTheSamePart) {
  for (int i = 0; i < 40; ++i) put("a/" + std::to_string(10 + i) + ".png", static_cast<std::uint8_t>(10 + i));
  for (int i = 0; i < 40; i += 2) folder.write("a/" + std::to_string(10 + i) + ".png", {'n', 'o'});
  const HeldOut tested = hold_out(image_folder(folder.path(), {.on_error = OnFault::skip}), 0.5, 1);
  const HeldOut trained = hold_out(tested.rest, 0.5, 2);
  std::multiset<int> own, seen;
  for (const ImageDatasetPointer& part : {trained.rest, trained.held_out, tested.held_out}) {
    const std::vector<int> all = levels(*part);
    const std::set<int> different(all.begin(), all.end());
    seen.insert(different.begin(), different.end());
  }
  for (int i = 1; i < 40; i += 2) own.insert(10 + i);
  EXPECT_EQ(seen, own) << "each readable image in one part";
  for (int i = 1; i < 40; i += 2) folder.write("a/" + std::to_string(10 + i) + ".png", {});
  EXPECT_TRUE(contains(error_message<DataError>([&] { trained.rest->get(0); }),
                       join_text("none of the ", trained.rest->size(), " samples")));
}

TEST_F(ImageFolderTest, ImagesThatAreLeftOutAreNamed) {
  put("a/1.png", 1);
  put("a/deep/2.png", 2);
  fs::copy_file(test::source_dir() + "/tests/golden/images/rgb.bmp", folder / "a/3.BMP");
  put("b/1.png", 3);
  for (const char* name : {"a/x.gif", "a/deep/y.TIFF", "b/z.heic", "loose.png", "loose.tif", "notes.txt", "b/notes.md"})
    folder.write(name, {'x'});
  const ImageDatasetPointer set = image_folder(folder.path(), {});
  EXPECT_EQ(set->size(), 4);
  EXPECT_EQ(set->get(1).image.width, 37) << "the BMP";
  const Warnings warnings = set->warnings();
  EXPECT_EQ(warnings.count, 5);
  for (const char* part : {"a/x.gif: gif files are not read; convert it", "deep/y.TIFF: tiff files", "b/z.heic: heic",
                           "/loose.png: lies outside of the class folders", "/loose.tif: lies outside"})
    EXPECT_TRUE(std::any_of(warnings.first.begin(), warnings.first.end(), [&](const std::string& text) {
      return contains(text, part);
    })) << part;
  put("parts/train/a/1.png", 1);
  put("parts/train/b/1.png", 1);
  folder.write("parts/loose.jpg", {'x'});
  folder.write("parts/train/loose.webp", {'x'});
  EXPECT_EQ(image_folder_splits(folder / "parts", {}).train->warnings().count, 2);
}

TEST_F(ImageFolderTest, ImagesThatWereTurnedAreCounted) {
  fs::create_directories(folder / "a");
  for (const int orientation : {1, 3, 6, 8})
    fs::copy_file(join_text(test::source_dir(), "/tests/golden/images/orientation_", orientation, ".jpg"),
                  folder / join_text("a/", orientation, ".jpg"));
  const ImageDatasetPointer set = image_folder(folder.path(), {});
  EXPECT_EQ(set->warnings().count, 0);
  for (int round = 0; round < 2; ++round) (void)levels(*set);
  const Warnings warnings = set->warnings();
  ASSERT_EQ(warnings.count, 1);
  EXPECT_PRED2(contains, warnings.first[0], "3 of the images decoded so far were turned upright");
  EXPECT_PRED2(contains, warnings.first[0], "a/3.jpg for one");
}

TEST_F(ImageFolderTest, EmptyClasses) {
  put("a/1.png", 1);
  fs::create_directories(folder / "b");
  put("c/1.png", 1);
  const std::string message = error_message<DataError>([&] { image_folder(folder.path(), {}); });
  EXPECT_TRUE(contains(message, folder / "b") && contains(message, "empty_classes")) << message;
  const ImageDatasetPointer set = image_folder(folder.path(), {.empty_classes = OnFault::skip});
  EXPECT_EQ(set->classes(), 3);
  EXPECT_EQ(set->label(1), 2) << "class numbers do not shift";
  EXPECT_EQ(set->warnings().count, 1);
  EXPECT_EQ(set->unreadable().count, 0);
}

TEST_F(ImageFolderTest, PartsByFolder) {
  put("train/a/1.png", 1);
  put("train/b/1.png", 2);
  put("val/b/1.png", 3);
  ImageSplits splits = image_folder_splits(folder.path(), {});
  EXPECT_EQ(splits.train->size(), 2);
  EXPECT_EQ(splits.test, nullptr) << "what chooses the best checkpoint is no test";
  ASSERT_NE(splits.valid, nullptr);
  EXPECT_EQ(splits.valid->label(0), 1);
  put("test/a/1.png", 4);
  splits = image_folder_splits(folder.path(), {});
  EXPECT_EQ(splits.valid->get(0).image.pixels[0], 3);
  EXPECT_EQ(splits.test->get(0).image.pixels[0], 4);
  put("val/zebra/1.png", 5);
  EXPECT_TRUE(
      contains(error_message<DataError>([&] { image_folder_splits(folder.path(), {}); }), "val/zebra: not a class"));
  EXPECT_TRUE(contains(error_message<DataError>([&] { image_folder_splits(folder / "no", {}); }), "no such folder"));
  EXPECT_TRUE(contains(error_message<DataError>([&] { image_folder(folder / "train/a", {}); }), "no class folders"));
}

TEST_F(ImageFolderTest, SplitsAreNamedInAnyCase) {
  const auto fault = [&] { return error_message<DataError>([&] { image_folder_splits(folder.path(), {}); }); };
  for (const char* name : {"Train/a/1.png", "Train/b/1.png", "Test/a/1.png", "VAL/b/1.png"}) put(name, 1);
  put("extra/a/1.png", 1);
  const ImageSplits splits = image_folder_splits(folder.path(), {});
  EXPECT_EQ(splits.train->class_names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(splits.valid->label(0), 1);
  EXPECT_EQ(splits.test->size(), 1);
  ASSERT_EQ(splits.train->warnings().count, 1);
  EXPECT_PRED2(contains, splits.train->warnings().first[0],
               "extra: is no folder of a split (train, valid, test), and is left out");
  put("valid/a/1.png", 1);
  EXPECT_PRED2(contains, fault(), "VAL and valid are folders of the same split");
  fs::remove_all(folder / "valid");
  fs::remove_all(folder / "Train");
  EXPECT_PRED2(contains, fault(), "has a folder VAL and none named train");
}

TEST_F(ImageFolderTest, FoldersThatAreNoClassesAreRefused) {
  const auto fault = [&](const std::vector<std::string>& names) {
    fs::remove_all(folder / "set");
    for (const std::string& name : names) put("set/" + name + "/1.png", 1);
    return error_message<DataError>([&] { image_folder_splits(folder / "set", {}); });
  };
  EXPECT_PRED2(contains, fault({"seg_train/a", "seg_test/a"}), "which look like splits; name these folders train");
  EXPECT_PRED2(contains, fault({"flowers/a", "flowers/b"}), "one class folder, flowers, and a classifier needs two");
  EXPECT_PRED2(contains, fault({"flowers/a", "flowers/b"}),
               "if the classes or the splits are in it, give " + (folder / "set/flowers").string());
  EXPECT_PRED2(contains, fault({"train/a"}), "set/train: has one class folder, a,");
  EXPECT_PRED2(contains, fault({"images", "masks"}),
               "its classes would be images and masks, which look like images and");
  EXPECT_PRED2(contains, fault({"batch1/cat", "batch1/dog", "batch2/cat", "batch2/dog"}),
               "all have folders cat, dog in them");
  put("parts/a/left/1.png", 1);
  for (const char* name : {"a/right", "b/left", "c", "training_ground"}) put(join_text("parts/", name, "/1.png"), 1);
  EXPECT_EQ(image_folder_splits(folder / "parts", {}).train->classes(), 4) << "one word of a split is a class";
}

TEST_F(ImageFolderTest, FoldersOfProgramsAreNoData) {
  put("a/1.png", 1);
  put("b/1.png", 2);
  for (const char* name : {".ipynb_checkpoints/1.png", "__MACOSX/a/1.png", "@eaDir/1.png", "a/.ipynb_checkpoints/1.png",
                           "a/@eaDir/1.png/SYNO_1.png", "b/._1.png"})
    put(name, 9);
  const ImageSplits splits = image_folder_splits(folder.path(), {});
  EXPECT_EQ(splits.train->class_names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(levels(*splits.train), (std::vector<int>{1, 2}));
}

TEST_F(ImageFolderTest, TheCacheChangesNothing) {
  for (int i = 0; i < 12; ++i) put("a/" + std::to_string(10 + i) + ".png", static_cast<std::uint8_t>(i * 9), 4 + i);
  const ImageDatasetPointer plain = image_folder(folder.path(), {});
  const ImageDatasetPointer cached = image_folder(folder.path(), {.cache_bytes = 1000});
  for (int round = 0; round < 3; ++round) {
    for (std::int64_t i = 0; i < 12; ++i) EXPECT_EQ(plain->get(i).image, cached->get(i).image);
  }
  fs::remove(folder / "a/10.png");
  fs::remove(folder / "a/21.png");
  EXPECT_EQ(cached->get(0).image.width, 4) << "kept";
  EXPECT_THROW(cached->get(11), FileError) << "beyond the limit";
}

TEST_F(ImageFolderTest, LargeImagesAreShrunkBeforeTheyAreKept) {
  fs::create_directories(folder / "a");
  const std::pair<int, int> sizes[] = {{40, 20}, {10, 35}, {8, 30}, {5, 5}};
  for (int i = 0; i < 4; ++i) {
    Image image;
    image.reshape(sizes[i].first, sizes[i].second, 3);
    for (std::size_t p = 0; p < image.pixels.size(); ++p) image.pixels[p] = static_cast<std::uint8_t>(p * 37 % 251);
    write_png(folder / ("a/" + std::to_string(i) + ".png"), image);
  }
  const ImageDatasetPointer whole = image_folder(folder.path(), {});
  const ImageDatasetPointer small = image_folder(folder.path(), {.cache_bytes = 10'000, .shrink_to = 8});
  const std::pair<int, int> expected[] = {{16, 8}, {8, 28}, {8, 30}, {5, 5}};
  for (std::int64_t i = 0; i < 4; ++i) {
    const Image full = whole->get(i).image;
    Image shrunk = full;
    const auto [height, width] = expected[i];
    if (i < 2) resize(full, {0, 0, full.height, full.width}, height, width, shrunk);
    EXPECT_EQ(small->get(i).image, shrunk) << i;
    fs::remove(folder / ("a/" + std::to_string(i) + ".png"));
    EXPECT_EQ(small->get(i).image, shrunk) << "kept as it was given";
  }
  EXPECT_THROW(whole->get(0), FileError);
  EXPECT_TRUE(contains(error_message<ConfigError>([&] { image_folder(folder.path(), {.shrink_to = -1}); }),
                       "shrink_to is -1; give the shorter side in pixels, or 0"));
}

TEST_F(ImageFolderTest, LoadsTheSameWithAnyWorkers) {
  for (int i = 0; i < 20; ++i) {
    put((i % 2 ? "a/" : "b/") + std::to_string(i) + ".png", static_cast<std::uint8_t>(i * 9), 4 + i);
  }
  folder.write("a/broken.png", {1, 2, 3});
  std::vector<double> expected;
  for (const int workers : {0, 1, 4}) {
    const ImageDatasetPointer set = image_folder(folder.path(), {.on_error = OnFault::skip, .cache_bytes = 2000});
    TransformOptions options{.image_size = 8, .random_resized_crop = true, .horizontal_flip = true};
    Loader loader(set, Transforms(set->image_shape(), options, true),
                  {.batch_size = 7, .workers = workers, .shuffle = true});
    std::vector<double> values;
    for (int i = 0; i < 6; ++i) {
      const Batch batch = loader.next();
      for (const double value : batch["images"].to_doubles()) values.push_back(value);
      for (const double value : batch["labels"].to_doubles()) values.push_back(value);
    }
    if (expected.empty()) expected = values;
    EXPECT_EQ(values, expected) << workers;
  }
}

}  // namespace
}  // namespace hearth::data::image_folder_test
