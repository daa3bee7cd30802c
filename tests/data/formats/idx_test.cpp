// SPDX-License-Identifier: Apache-2.0
#include "data/formats/idx.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "data/images/memory_images.h"
#include "data/source/source_bytes.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::idx_file_test {
namespace {

using test::contains;
using test::error_message;

using Bytes = std::vector<std::uint8_t>;

Bytes idx_file(std::initializer_list<std::uint32_t> extents, const Bytes& values, std::uint32_t magic_high = 0x08) {
  Bytes bytes;
  const auto put = [&](std::uint32_t word) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::uint8_t>(word >> shift));
  };
  put(magic_high << 8 | static_cast<std::uint32_t>(extents.size()));
  for (const std::uint32_t extent : extents) put(extent);
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

struct IdxTest : testing::Test {
  test::TempDir folder;
  std::string images = folder.write("images", idx_file({2, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  std::string labels = folder.write("labels", idx_file({2}, {1, 0}));

  std::string failure(const Bytes& image_bytes, const Bytes& label_bytes) {
    folder.write("images", image_bytes);
    folder.write("labels", label_bytes);
    return error_message<DataError>([&] { idx(images, labels, {"a", "b"}); });
  }
};

TEST_F(IdxTest, ReadsImagesAndLabels) {
  const ImageDatasetPointer set = idx(images, labels);
  ASSERT_EQ(set->size(), 2);
  EXPECT_EQ(set->classes(), 2);
  EXPECT_EQ(set->image_shape(), (ImageShape{2, 3, 1}));
  EXPECT_EQ(set->get(1).image.pixels, (Bytes{7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(set->label(0), 1);
}

TEST_F(IdxTest, ReadsFourDimensionsAsChannels) {
  folder.write("images", idx_file({2, 1, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(idx(images, labels)->image_shape(), (ImageShape{1, 2, 3}));
}

TEST_F(IdxTest, NamesFileAndReason) {
  const Bytes good_images = idx_file({2, 2, 3}, Bytes(12));
  const Bytes good_labels = idx_file({2}, {1, 0});
  const std::string magic = failure(idx_file({2, 2, 3}, Bytes(12), 0x0d), good_labels);
  EXPECT_TRUE(contains(magic, images) && contains(magic, "0x00000d03")) << magic;
  EXPECT_TRUE(contains(failure(idx_file({2, 2, 3}, Bytes(11)), good_labels), "promises"));
  EXPECT_TRUE(contains(failure(idx_file({2, 2, 3}, Bytes(13)), good_labels), "promises 12 bytes of values, found 13"));
  EXPECT_TRUE(contains(failure({0, 0, 8}, good_labels), "too few"));
  EXPECT_TRUE(contains(failure({0, 0, 8, 3, 0, 0}, good_labels), "inside its header"));
  EXPECT_TRUE(contains(failure(idx_file({0, 2, 3}, {}), idx_file({0}, {})), "no images"));
  EXPECT_TRUE(
      contains(failure(idx_file({0xffffffff, 0xffffffff, 0xffffffff}, Bytes(12)), good_labels), "promises more"));
  EXPECT_TRUE(contains(failure(good_images, idx_file({3}, {0, 1, 0})), "2 images, but " + labels));
  const std::string label = failure(good_images, idx_file({2}, {1, 2}));
  EXPECT_TRUE(contains(label, labels) && contains(label, "sample 1 is 2")) << label;
  EXPECT_TRUE(contains(failure(good_images, good_images), labels + ": magic"));
}

TEST_F(IdxTest, FolderNamesTheMissingFile) {
  const std::string message = error_message<DataError>([&] { idx_folder(folder.path()); });
  EXPECT_TRUE(contains(message, "train-images-idx3-ubyte is missing")) << message;
  EXPECT_TRUE(contains(error_message<FileError>([&] { idx(folder / "absent", labels); }), "absent"));
}

TEST_F(IdxTest, FolderReadsTrainAndTest) {
  folder.write("train-images-idx3-ubyte", idx_file({2, 1, 1}, {9, 8}));
  folder.write("train-labels-idx1-ubyte", idx_file({2}, {0, 4}));
  folder.write("t10k-images-idx3-ubyte", idx_file({1, 1, 1}, {7}));
  folder.write("t10k-labels-idx1-ubyte", idx_file({1}, {3}));
  const ImageSplits parts = idx_folder(folder.path());
  EXPECT_EQ(parts.train->size(), 2);
  EXPECT_EQ(parts.test->classes(), 5) << "the test split does not use every class";
  EXPECT_EQ(parts.test->get(0).image.pixels, Bytes{7});
}

TEST_F(IdxTest, FolderNeedsImagesOfOneSize) {
  folder.write("train-images-idx3-ubyte", idx_file({2, 1, 2}, {9, 8, 7, 6}));
  folder.write("train-labels-idx1-ubyte", idx_file({2}, {0, 1}));
  folder.write("t10k-labels-idx1-ubyte", idx_file({1}, {0}));
  const std::string test_images = folder / "t10k-images-idx3-ubyte";
  for (const Bytes& other : {idx_file({1, 2, 1}, {1, 2}), idx_file({1, 1, 1, 2}, {1, 2})}) {
    folder.write("t10k-images-idx3-ubyte", other);
    const std::string message = error_message<DataError>([&] { idx_folder(folder.path()); });
    EXPECT_TRUE(message.starts_with(test_images + ": images of ") && contains(message, "are 1 x 2 x 1;")) << message;
  }
}

TEST_F(IdxTest, ImagesLargerThanThereAreAny) {
  const std::string message = failure(idx_file({2, 1, 1, 65}, Bytes(130)), idx_file({2}, {1, 0}));
  EXPECT_TRUE(message.starts_with(images + ": images of 1 x 1 x 65; at most")) << message;
  EXPECT_TRUE(contains(error_message<DataError>([] {
                         MemoryImages("own", {20'000, 20'000, 1}, {}, {}, {"a"});
                       }),
                       "own: images of 20000 x 20000 x 1; at most 100000000 pixels"));
  EXPECT_NO_THROW(MemoryImages("own", {10'000, 10'000, 64}, {}, {}, {"a"}));
}

TEST(FashionMnistTest, AbsenceNamesThePackageAndTheFiles) {
  test::TempDir folder;
  const std::string message = error_message<DataError>([&] { fashion_mnist(folder.path()); });
  EXPECT_TRUE(contains(message, "dataset-fashion-mnist")) << message;
  EXPECT_TRUE(contains(message, "t10k-labels-idx1-ubyte")) << message;
}

TEST(FashionMnistTest, HasTheOfficialCounts) {
  if (!std::filesystem::exists(fashion_mnist_folder)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  const ImageSplits parts = fashion_mnist();
  for (const auto& [part, each] : {std::pair{parts.train, 6000}, std::pair{parts.test, 1000}}) {
    ASSERT_EQ(part->size(), 10 * each);
    std::vector<int> histogram(10);
    for (std::int64_t i = 0; i < part->size(); ++i) ++histogram[static_cast<std::size_t>(part->label(i))];
    EXPECT_EQ(histogram, std::vector<int>(10, each));
  }
  EXPECT_EQ(parts.train->image_shape(), (ImageShape{28, 28, 1}));
  EXPECT_EQ(parts.train->class_names()[static_cast<std::size_t>(parts.train->label(0))], "Ankle boot");
}

TEST(GzipTest, DamageIsFoundAtEveryLength) {
  // "hearth" as gzip.
  const Bytes whole{0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xcb, 0x48, 0x4d,
                    0x2c, 0x2a, 0xc9, 0x00, 0x00, 0x69, 0xad, 0x62, 0xd8, 0x06, 0x00, 0x00, 0x00};
  const Bytes text = inflate_gzip(whole, "x", {100, "sequences"});
  EXPECT_EQ(std::string(text.begin(), text.end()), "hearth");
  for (std::size_t size = 1; size < whole.size(); ++size) {
    EXPECT_THROW(inflate_gzip(std::span(whole).first(size), "x", {100, "sequences"}), DataError) << size;
  }
  Bytes flipped = whole;
  flipped[12] ^= 1;
  EXPECT_THROW(inflate_gzip(flipped, "x", {100, "sequences"}), DataError);
  // Two members with zeros behind them, as gzip takes them, and with anything else.
  Bytes padded = whole;
  padded.insert(padded.end(), whole.begin(), whole.end());
  padded.insert(padded.end(), 512, 0);
  Bytes twice = text;
  twice.insert(twice.end(), text.begin(), text.end());
  EXPECT_EQ(inflate_gzip(padded, "x", {100, "sequences"}), twice);
  padded.back() = 1;
  EXPECT_THROW(inflate_gzip(padded, "x", {100, "sequences"}), DataError);
  EXPECT_TRUE(contains(error_message<DataError>([&] {
                         inflate_gzip(whole, "x", {3, "sequences"});
                       }),
                       "more than 3 bytes"));
}

}  // namespace
}  // namespace hearth::data::idx_file_test
