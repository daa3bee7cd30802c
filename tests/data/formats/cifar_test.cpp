// SPDX-License-Identifier: Apache-2.0
#include "data/formats/cifar.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "data/described.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::cifar_test {
namespace {

using test::contains;
using test::error_message;

using Bytes = std::vector<std::uint8_t>;

// Labels, then planes whose pixel p of channel c is (p + 50 c) mod 256.
Bytes record(std::initializer_list<std::uint8_t> labels) {
  Bytes bytes(labels);
  for (int c = 0; c < 3; ++c) {
    for (int p = 0; p < 1024; ++p) bytes.push_back(static_cast<std::uint8_t>(p + 50 * c));
  }
  return bytes;
}

Bytes joined(const Bytes& a, const Bytes& b) {
  Bytes both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

struct CifarTest : testing::Test {
  test::TempDir folder;
  void write_ten() const {
    for (std::uint8_t i = 1; i <= 5; ++i) folder.write("data_batch_" + std::to_string(i) + ".bin", record({i}));
    folder.write("test_batch.bin", joined(record({9}), record({0})));
  }
  std::string failure() const {
    return error_message<DataError>([&] { cifar10(folder.path()); });
  }
};

TEST_F(CifarTest, TenReadsRecordsInOrder) {
  write_ten();
  const ImageSplits splits = cifar10(folder.path());
  ASSERT_EQ(splits.train->size(), 5);
  ASSERT_EQ(splits.test->size(), 2);
  EXPECT_EQ(splits.train->classes(), 10);
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(splits.train->label(i), i + 1);
  const Sample sample = splits.test->get(1);
  EXPECT_EQ(sample.label, 0);
  EXPECT_EQ(splits.test->image_shape(), (ImageShape{32, 32, 3}));
  for (int y : {0, 17, 31}) {
    for (int x : {0, 5, 31}) {
      for (int c = 0; c < 3; ++c) ASSERT_EQ(sample.image.row(y)[3 * x + c], (32 * y + x + 50 * c) % 256);
    }
  }
}

TEST_F(CifarTest, TenReadsClassNames) {
  write_ten();
  folder.write("batches.meta.txt", Bytes{'a', '\n', 'b', '\r', '\n', 'c',  '\n', 'd',  '\n', 'e',  '\n',
                                         'f', '\n', 'g', '\n', 'h',  '\n', 'i',  '\n', 'j',  '\n', '\n'});
  EXPECT_EQ(cifar10(folder.path()).train->class_names()[1], "b");
  folder.write("batches.meta.txt", Bytes{'a', '\n'});
  EXPECT_TRUE(contains(failure(), "batches.meta.txt: 1 class names, expected 10"));
}

TEST_F(CifarTest, HundredTakesFineOrCoarseLabels) {
  folder.write("train.bin", joined(record({3, 42}), record({19, 99})));
  folder.write("test.bin", record({0, 7}));
  EXPECT_EQ(cifar100(folder.path()).train->label(0), 42);
  EXPECT_EQ(cifar100(folder.path(), CifarLabels::coarse).train->label(1), 19);
  EXPECT_EQ(cifar100(folder.path(), CifarLabels::coarse).train->classes(), 20);
  folder.write("test.bin", record({20, 7}));
  EXPECT_TRUE(
      contains(error_message<DataError>([&] { cifar100(folder.path(), CifarLabels::coarse); }), "record 0 is 20"));
}

TEST_F(CifarTest, EvaluationTakesTheLabelsOfTheTraining) {
  folder.write("test.bin", record({19, 7}));
  for (const auto& [labels, label] : {std::pair{"fine", 7}, {"coarse", 19}}) {
    const Json node = Json::object().set("type", "cifar100").set("path", "elsewhere").set("labels", labels);
    DataFacts facts;
    facts.classes = numbered_classes(labels == std::string("fine") ? 100 : 20);
    facts.image = {32, 32, 3};
    facts.normalize = {{0.5}, {0.5}};
    const DataSplits found = evaluation_data(datasets().parse(node), facts, folder.path());
    EXPECT_EQ(found.test->images()->label(0), label);
  }
}

TEST_F(CifarTest, NamesFileAndReason) {
  EXPECT_TRUE(contains(failure(), "data_batch_1.bin: is missing"));
  write_ten();
  Bytes shorter = record({1});
  shorter.pop_back();
  folder.write("data_batch_3.bin", shorter);
  EXPECT_TRUE(contains(failure(), "data_batch_3.bin: 3072 bytes are not a whole number of records of 3073"));
  folder.write("data_batch_3.bin", record({10}));
  EXPECT_TRUE(contains(failure(), "data_batch_3.bin: the label of record 0 is 10"));
  folder.write("data_batch_3.bin", {});
  EXPECT_TRUE(contains(failure(), "data_batch_3.bin: 0 bytes"));
}

}  // namespace
}  // namespace hearth::data::cifar_test
