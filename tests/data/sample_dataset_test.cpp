// SPDX-License-Identifier: Apache-2.0
#include "data/sample_dataset.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "core/error.h"
#include "data/formats/digits.h"
#include "data/loading/loader.h"
#include "tests/support/error_message.h"

namespace hearth::data::sample_dataset_test {
namespace {

/// Sample i is i in every element of "x", and twice i in "y".
struct Numbers : SampleDataset {
  explicit Numbers(std::int64_t samples) : count(samples) {}
  std::int64_t size() const override { return count; }
  TensorSample read(std::int64_t i, Random& random) const override {
    last_draw = random.uniform();
    return {{"x", Tensor::full({2, 3}, static_cast<double>(i))}, {"y", Tensor::of<std::int64_t>({1}, {2 * i})}};
  }
  std::int64_t count;
  mutable std::atomic<double> last_draw = 0;  // workers read side by side
};

TEST(SampleDataset, IsStackedInOrder) {
  Loader loader(std::make_shared<Numbers>(5), {.batch_size = 2, .workers = 0});
  ASSERT_EQ(loader.batches_per_epoch(), 3);
  const Batch first = loader.next();
  EXPECT_EQ(first["x"].shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(first["y"].to_doubles(), (std::vector<double>{0, 2}));
  EXPECT_EQ(first.samples, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(first.rows(), 2);
  (void)loader.next();
  EXPECT_EQ(loader.next()["x"].to_doubles(), std::vector<double>(6, 4.0)) << "the incomplete last batch";
}

TEST(SampleDataset, IgnoredLabelsAreNotCounted) {
  const Numbers set(1);
  const auto counted = [&](const std::vector<std::int64_t>& labels) {
    std::vector<TensorSample> samples;
    for (const std::int64_t label : labels)
      samples.push_back({{"labels", Tensor::full({}, static_cast<double>(label), DType::i64)}});
    const Batch batch = set.collate(samples);
    return batch.count();
  };
  EXPECT_EQ(counted({3, ignored_label, 0, ignored_label}), 2);
  EXPECT_EQ(counted({ignored_label}), 0);
  EXPECT_EQ(counted({1, 2, 3}), 3);
}

TEST(SampleDataset, ShufflesAsAFunctionOfSeedAndEpoch) {
  const auto set = std::make_shared<Numbers>(32);
  const auto epochs = [&](int workers) {
    Loader loader(set, {.batch_size = 4, .workers = workers, .shuffle = true, .seed = 5});
    std::vector<double> seen;
    for (int i = 0; i < 16; ++i)
      for (const double y : loader.next()["y"].to_doubles()) seen.push_back(y);
    return seen;
  };
  const std::vector<double> seen = epochs(0);
  EXPECT_EQ(seen, epochs(3));
  EXPECT_EQ(std::set<double>(seen.begin(), seen.begin() + 32).size(), 32u) << "each sample once an epoch";
  EXPECT_NE(std::vector<double>(seen.begin(), seen.begin() + 32), std::vector<double>(seen.begin() + 32, seen.end()));
}

TEST(SampleDataset, DrawsAnewInEachEpoch) {
  const auto set = std::make_shared<Numbers>(1);
  Loader loader(set, {.batch_size = 1, .workers = 0, .seed = 5});
  (void)loader.next();
  const double first = set->last_draw;
  (void)loader.next();
  EXPECT_NE(set->last_draw.load(), first);
  loader.seek(0, 0);
  (void)loader.next();
  EXPECT_EQ(set->last_draw.load(), first) << "a function of seed, epoch and sample";
}

TEST(SampleDataset, SaysWhatDoesNotStack) {
  const Numbers set(1);
  const Tensor x = Tensor::zeros({2});
  const auto message = [&](const TensorSample& second) {
    return test::error_message<Error>([&] { (void)set.collate({{{"x", x}}, second}); });
  };
  EXPECT_EQ(message({{"x", Tensor::zeros({3})}}),
            "dataset: \"x\" of the batch's samples 0 and 1 are f32 [2] and f32 [3]; give them one shape, or override "
            "collate()");
  EXPECT_EQ(message({{"z", x}}), "dataset: tensor 0 of the batch's first sample is \"x\", of sample 1 \"z\"");
  EXPECT_EQ(message({{"x", x.to(DType::f64)}}), "dataset: \"x\" of the batch's samples 0 and 1 are f32 and f64");
  EXPECT_EQ(message({}), "dataset: the batch's first sample has 1 tensors, sample 1 has 0");
  EXPECT_THROW((void)set.collate({}), UsageError);
  EXPECT_THROW((void)set.collate({{{"x", Tensor()}}}), DataError);
}

TEST(SampleDataset, NeedsNoTransforms) {
  EXPECT_THROW(Loader(std::make_shared<Numbers>(1), {.batch_size = 2, .drop_last = true}), DataError);
  EXPECT_THROW(Loader(digits(), {.batch_size = 2}), UsageError);
}

}  // namespace
}  // namespace hearth::data::sample_dataset_test
