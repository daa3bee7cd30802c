// SPDX-License-Identifier: Apache-2.0
#include "data/loading/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "core/error.h"
#include "data/images/image_dataset.h"
#include "data/loading/order.h"
#include "tests/support/error_message.h"

namespace hearth::data::loader_test {
namespace {

using test::contains;
using test::error_message;

/// Random images; counts reads, can fail at a sample, and can take its time for the first ones.
class Probe : public ImageDataset {
 public:
  explicit Probe(std::int64_t size, ImageShape shape = {6, 5, 3}) : size_(size), shape_(shape) {}
  std::int64_t size() const override { return size_; }
  ImageShape image_shape() const override { return shape_; }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::int64_t label(std::int64_t index) const override { return index % 4; }
  std::int64_t read(std::int64_t index, Image& image) const override {
    reads.fetch_add(1);
    if (index < slow_below.load()) {
      slow_reads.fetch_add(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (index == fails_at.load()) throw DataError("sample " + std::to_string(index) + " is broken");
    image.reshape(shape_.height, shape_.width, shape_.channels);
    Random random(17, static_cast<std::uint64_t>(index));
    for (auto& value : image.pixels) value = static_cast<std::uint8_t>(random.below(256));
    return index % 4;
  }
  const std::string& source() const override { return source_; }

  mutable std::atomic<std::int64_t> reads{0};
  std::atomic<std::int64_t> fails_at{-1};
  mutable std::atomic<std::int64_t> slow_reads{0};
  std::atomic<std::int64_t> slow_below{0};  ///< samples below take 5 ms

 private:
  std::int64_t size_;
  ImageShape shape_;
  std::vector<std::string> names_ = numbered_classes(4);
  std::string source_ = "probe";
};

TransformOptions everything() {
  TransformOptions options{.padded_crop = 1, .horizontal_flip = true, .color_jitter = {0.3, 0.3, 0.3, 0.1}};
  options.erasing.probability = 0.5;
  return options;
}

Transforms steps(const ImageDataset& set, bool training = true) {
  return Transforms(set.image_shape(), everything(), training);
}

std::uint64_t fold(std::uint64_t hash, const void* bytes, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    hash = (hash ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3u;
  }
  return hash;
}

std::uint64_t hash_of(const Batch& batch) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  hash = fold(hash, batch["images"].bytes(), batch["images"].byte_size());
  hash = fold(hash, batch["labels"].bytes(), batch["labels"].byte_size());
  if (batch.has("erased")) hash = fold(hash, batch["erased"].bytes(), batch["erased"].byte_size());
  if (batch.has("mix")) hash = fold(hash, batch["mix"].bytes(), batch["mix"].byte_size());
  hash = fold(hash, batch.samples.data(), batch.samples.size() * sizeof(std::int64_t));
  hash = fold(hash, &batch.epoch, sizeof batch.epoch);
  return fold(hash, &batch.index, sizeof batch.index);
}

std::vector<std::uint64_t> hashes(const ImageDatasetPointer& set, LoaderOptions options, int batches) {
  Loader loader(set, steps(*set), options);
  std::vector<std::uint64_t> result;
  for (int i = 0; i < batches; ++i) result.push_back(hash_of(loader.next()));
  return result;
}

TEST(LoaderTest, WorkersAndPrefetchChangeNoBit) {
  const auto set = std::make_shared<Probe>(45);
  for (const double alpha : {0.0, 0.4}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::u8}) {
      LoaderOptions options{.batch_size = 8,
                            .workers = 0,
                            .shuffle = true,
                            .seed = 3,
                            .mixup_alpha = alpha,
                            .cutmix_alpha = 2 * alpha,
                            .dtype = dtype};
      const auto expected = hashes(set, options, 20);
      EXPECT_EQ(std::set(expected.begin(), expected.end()).size(), 20u);
      for (const int workers : {1, 2, 4}) {
        for (const int prefetch : {1, 3, 9}) {
          options.workers = workers;
          options.prefetch = prefetch;
          ASSERT_EQ(hashes(set, options, 20), expected) << workers << " workers, prefetch " << prefetch;
        }
      }
      options.seed = 4;
      EXPECT_NE(hashes(set, options, 1)[0], expected[0]);
    }
  }
}

TEST(LoaderTest, AnEpochVisitsEverySampleOnce) {
  const auto set = std::make_shared<Probe>(45);
  for (const bool shuffle : {false, true}) {
    Loader loader(set, steps(*set), {.batch_size = 8, .shuffle = shuffle, .seed = 1});
    ASSERT_EQ(loader.batches_per_epoch(), 6);
    ASSERT_EQ(loader.samples_per_epoch(), 45);
    std::vector<std::int64_t> epochs[2];
    for (auto& epoch : epochs) {
      for (int i = 0; i < 6; ++i) {
        const Batch batch = loader.next();
        EXPECT_EQ(batch.epoch, &epoch - epochs);
        EXPECT_EQ(batch.index, i);
        EXPECT_EQ(batch["images"].shape(), (Shape{i < 5 ? 8 : 5, 6, 5, 3}));
        EXPECT_EQ(batch["labels"].dtype(), DType::i64);
        for (std::int64_t k = 0; k < batch.size(); ++k) {
          const std::int64_t sample = batch.samples[static_cast<std::size_t>(k)];
          EXPECT_EQ(batch["labels"].data<std::int64_t>()[k], sample % 4);
          epoch.push_back(sample);
        }
      }
      EXPECT_EQ(std::is_sorted(epoch.begin(), epoch.end()), !shuffle);
    }
    EXPECT_EQ(epochs[0] == epochs[1], !shuffle) << "each epoch has an order of its own";
    for (auto& epoch : epochs) {
      std::sort(epoch.begin(), epoch.end());
      for (std::int64_t i = 0; i < 45; ++i) ASSERT_EQ(epoch[static_cast<std::size_t>(i)], i);
    }
  }
}

TEST(LoaderTest, DropLastLeavesOutTheRest) {
  const auto set = std::make_shared<Probe>(45);
  Loader loader(set, steps(*set), {.batch_size = 8, .drop_last = true});
  EXPECT_EQ(loader.batches_per_epoch(), 5);
  EXPECT_EQ(loader.samples_per_epoch(), 40);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(loader.next().size(), 8);
  EXPECT_EQ(loader.next().epoch, 1);
}

TEST(LoaderTest, PixelsAreTheNormalisedImage) {
  const auto set = std::make_shared<Probe>(5);
  Loader loader(set, Transforms(set->image_shape(), {.mean = {0.5}, .std = {0.25}}, false), {.batch_size = 5});
  const Batch batch = loader.next();
  for (std::int64_t i = 0; i < 5; ++i) {
    const Sample sample = set->get(i);
    for (std::size_t p = 0; p < sample.image.pixels.size(); ++p) {
      ASSERT_NEAR(batch["images"].data<float>()[static_cast<std::size_t>(i) * 90 + p],
                  (static_cast<float>(sample.image.pixels[p]) / 255.0f - 0.5f) / 0.25f, 1e-6f);
    }
  }
}

TEST(LoaderTest, SeekEqualsReadingUpToThere) {
  const auto set = std::make_shared<Probe>(45);
  LoaderOptions options{.batch_size = 8, .shuffle = true, .seed = 9, .mixup_alpha = 0.2};
  const auto expected = hashes(set, options, 24);
  for (const int workers : {0, 1, 3}) {
    options.workers = workers;
    Loader loader(set, steps(*set), options);
    for (const int target : {13, 2, 2, 23, 0, 12, 5}) {
      loader.seek(target / 6, target % 6);
      EXPECT_EQ(loader.epoch(), target / 6);
      EXPECT_EQ(loader.batch(), target % 6);
      for (int i = target; i < std::min(target + 3, 24); ++i) {
        ASSERT_EQ(hash_of(loader.next()), expected[static_cast<std::size_t>(i)]) << workers << " " << i;
      }
    }
    // The end of an epoch is the start of the next.
    loader.seek(1, 6);
    EXPECT_EQ(loader.epoch(), 2);
    EXPECT_EQ(hash_of(loader.next()), expected[12]);
    EXPECT_THROW(loader.seek(0, 7), IndexError);
    EXPECT_THROW(loader.seek(-1, 0), IndexError);
  }
}

TEST(LoaderTest, SeekReadsNothingItSkips) {
  const auto set = std::make_shared<Probe>(4000);
  Loader loader(set, steps(*set), {.batch_size = 4, .workers = 0, .shuffle = true});
  loader.seek(1000, 900);
  EXPECT_EQ(set->reads.load(), 0);
  loader.next();
  EXPECT_EQ(set->reads.load(), 4);
}

TEST(LoaderTest, PrefetchIsBounded) {
  const auto set = std::make_shared<Probe>(400);
  Loader loader(set, steps(*set), {.batch_size = 4, .workers = 4, .prefetch = 3});
  for (std::int64_t taken = 0; taken < 5; ++taken) {
    const std::int64_t most = (taken + 3) * 4;
    // Workers are to fill what they may, and then to leave it at that.
    for (int i = 0; i < 2000 && set->reads.load() < most; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(set->reads.load(), most);
    loader.next();
  }
}

TEST(LoaderTest, ExceptionsReachTheCallThatWouldHaveHadTheBatch) {
  const auto set = std::make_shared<Probe>(40);
  for (const int workers : {0, 1, 3}) {
    set->fails_at = 21;
    Loader loader(set, steps(*set), {.batch_size = 8, .workers = workers});
    for (int i = 0; i < 5; ++i) {
      if (i == 2)
        EXPECT_EQ(error_message<DataError>([&] { loader.next(); }), "sample 21 is broken");
      else
        EXPECT_EQ(loader.next().index, i);
    }
    EXPECT_EQ(loader.epoch(), 1);
  }
}

TEST(LoaderTest, EndsInTheMiddleOfABatch) {
  for (const int workers : {1, 3}) {
    const auto set = std::make_shared<Probe>(8000);
    set->slow_below = 8000;
    {
      const Loader loader(set, steps(*set), {.batch_size = 1000, .workers = workers, .prefetch = 8});
      while (set->slow_reads.load() < workers) std::this_thread::yield();
    }
    // Each worker's batch takes 5 seconds.
    EXPECT_LT(set->slow_reads.load(), 500 * workers);
    EXPECT_EQ(set.use_count(), 1);
  }
}

TEST(LoaderTest, SeekLeavesTheMiddleOfABatch) {
  const auto set = std::make_shared<Probe>(3000);
  set->slow_below = 1000;
  Loader loader(set, steps(*set), {.batch_size = 1000, .workers = 1, .prefetch = 2});
  while (set->slow_reads.load() == 0) std::this_thread::yield();
  loader.seek(0, 1);
  EXPECT_EQ(loader.next().index, 1);
  EXPECT_LT(set->slow_reads.load(), 500);
}

TEST(LoaderTest, EndsAtAnyTime) {
  for (int i = 0; i < 60; ++i) {
    const auto set = std::make_shared<Probe>(1000);
    {
      Loader loader(set, steps(*set), {.batch_size = 100, .workers = 4, .prefetch = 8});
      if (i % 3 == 1) loader.next();
      if (i % 3 == 2) loader.seek(5, 5);
    }
    EXPECT_EQ(set.use_count(), 1);
  }
}

TEST(LoaderTest, MixupGivesSoftLabels) {
  const auto set = std::make_shared<Probe>(16);
  Loader loader(set, steps(*set), {.batch_size = 8, .shuffle = true, .mixup_alpha = 1});
  const Batch batch = loader.next();
  ASSERT_EQ(batch["labels"].shape(), (Shape{8, 4}));
  ASSERT_EQ(batch["labels"].dtype(), DType::f32);
  EXPECT_TRUE(batch.lambda > 0 && batch.lambda < 1);
  for (int i = 0; i < 8; ++i) {
    float total = 0;
    for (int c = 0; c < 4; ++c) total += batch["labels"].data<float>()[4 * i + c];
    EXPECT_FLOAT_EQ(total, 1);
  }
  EXPECT_NE(loader.next().lambda, batch.lambda);
}

TEST(LoaderTest, CutMixWeighsLabelsByTheBox) {
  const auto set = std::make_shared<Probe>(16);
  Loader loader(set, steps(*set), {.batch_size = 8, .seed = 2, .cutmix_alpha = 1, .dtype = DType::u8});
  for (int i = 0; i < 6; ++i) {
    const Batch batch = loader.next();
    const std::vector<double> mix = batch["mix"].to_doubles(), soft = batch["labels"].to_doubles();
    EXPECT_EQ(mix[0], 0);
    EXPECT_DOUBLE_EQ(batch.lambda, 1 - mix[3] * mix[4] / 30);
    // Samples 0 and 7 of a batch have the labels 0 and 3.
    EXPECT_FLOAT_EQ(static_cast<float>(soft[0]), static_cast<float>(batch.lambda));
    EXPECT_FLOAT_EQ(static_cast<float>(soft[3]), static_cast<float>(1 - batch.lambda));
  }
}

TEST(LoaderTest, PixelsComeWithWhatIsStillToBeDone) {
  const auto set = std::make_shared<Probe>(16);
  const LoaderOptions options{.batch_size = 8, .shuffle = true, .seed = 5, .mixup_alpha = 1};
  LoaderOptions of_pixels = options;
  of_pixels.dtype = DType::u8;
  const Batch floats = Loader(set, steps(*set), options).next(), pixels = Loader(set, steps(*set), of_pixels).next();
  EXPECT_EQ(pixels["images"].dtype(), DType::u8);
  EXPECT_EQ(pixels["images"].shape(), floats["images"].shape());
  EXPECT_EQ(pixels["labels"].to_doubles(), floats["labels"].to_doubles());
  EXPECT_EQ(pixels.lambda, floats.lambda);
  EXPECT_EQ(pixels["mix"].to_doubles(), (std::vector<double>{static_cast<float>(floats.lambda), 0, 0, 6, 5}));
  EXPECT_EQ(pixels["erased"].shape(), (Shape{8, 4}));
  EXPECT_EQ(pixels["erased"].dtype(), DType::i32);
  EXPECT_FALSE(floats.has("erased") || floats.has("mix"));
  // Nothing is left to be done in evaluation.
  const Batch plain = Loader(set, steps(*set, false), {.batch_size = 8, .dtype = DType::u8}).next();
  EXPECT_FALSE(plain.has("erased") || plain.has("mix"));
  const Image first = set->get(0).image;
  EXPECT_TRUE(std::equal(first.pixels.begin(), first.pixels.end(), plain["images"].data<std::uint8_t>()));
}

TEST(LoaderTest, PixelsThatAreResizedIntoTheBatchAreThoseOfAllSteps) {
  std::vector<TransformOptions> cases(8, {.image_size = 8});
  cases[1].horizontal_flip = true;
  cases[2].random_resized_crop = cases[2].horizontal_flip = true;
  cases[3].padded_crop = 2;
  cases[4].rand_augment = {.ops = 2, .probability = 1};
  cases[5].color_jitter.brightness = 0.5;
  cases[6].fit = Fit::pad, cases[6].horizontal_flip = true, cases[6].fill = 1;
  cases[7].erasing.probability = 0.5;
  for (const int width : {19, 23})
    for (std::size_t which = 0; which < 2 * cases.size(); ++which) {
      const auto set = std::make_shared<Probe>(8, ImageShape{19, width, 3});
      const Transforms steps(set->image_shape(), cases[which / 2], which % 2 == 1);
      const Batch batch = Loader(set, steps, {.batch_size = 8, .seed = 3, .dtype = DType::u8}).next();
      std::vector<std::uint8_t> expected(batch["images"].byte_size());
      std::vector<double> erased;
      for (std::uint32_t sample = 0; sample < 8; ++sample) {
        Image image = set->get(sample).image, scratch;
        Random random = random_of(3, Purpose::augment, 0, sample);
        steps.augment(image, scratch, random);
        const Box box = steps.finish_pixels(image, random, expected.data() + sample * expected.size() / 8);
        for (const int side : {box.top, box.left, box.height, box.width}) erased.push_back(side);
      }
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), batch["images"].data<std::uint8_t>())) << which;
      EXPECT_EQ(batch.has("erased") ? batch["erased"].to_doubles() : erased, erased);
    }
}

TEST(LoaderTest, RefusesOptionsOutOfRange) {
  const auto set = std::make_shared<Probe>(5);
  const auto make = [&](LoaderOptions options) { Loader(set, steps(*set), options); };
  EXPECT_TRUE(contains(error_message<ConfigError>([&] { make({.batch_size = 0}); }), "batch_size 0"));
  EXPECT_TRUE(contains(error_message<ConfigError>([&] { make({.workers = -1}); }), "-1 workers"));
  EXPECT_TRUE(contains(error_message<ConfigError>([&] { make({.prefetch = 0}); }), "prefetch 0"));
  EXPECT_TRUE(contains(error_message<ConfigError>([&] { make({.mixup_alpha = -1}); }), "alpha -1"));
  EXPECT_TRUE(contains(error_message<ConfigError>([&] { make({.cutmix_alpha = -2}); }), "alpha -2"));
  EXPECT_TRUE(contains(error_message<DTypeError>([&] { make({.dtype = DType::i64}); }), "i64"));
  EXPECT_TRUE(contains(error_message<DataError>([&] { make({.batch_size = 6, .drop_last = true}); }), "no batch of 6"));
  EXPECT_THROW(Loader(nullptr, steps(*set), {}), UsageError);
  const auto none = std::make_shared<Probe>(0);
  EXPECT_THROW(Loader(none, steps(*set), {}), DataError);
}

TEST(LoaderPartTest, TheRanksPiecesAreTheBatchesOfOneProcess) {
  // 23 samples in batches of 8: the last one has 7 rows. Steps of two batches, each cut into `cuts`.
  const auto set = std::make_shared<Probe>(23);
  Loader whole(set, steps(*set), {.batch_size = 8, .workers = 0, .shuffle = true, .seed = 5});
  std::vector<Batch> batches;
  for (int i = 0; i < 6; ++i) batches.push_back(whole.next());
  for (const auto& [ranks, cuts] : {std::pair<std::int64_t, std::int64_t>{1, 2}, {2, 1}, {4, 2}, {3, 3}, {16, 8}})
    for (const int workers : {0, 2}) {
      const std::int64_t pieces = 2 * cuts, each = pieces / ranks;
      std::vector<std::vector<std::int64_t>> samples(6);
      std::vector<Loader> loaders;
      for (std::int64_t rank = 0; rank < ranks; ++rank)
        loaders.emplace_back(set, steps(*set),
                             LoaderOptions{.batch_size = 8,
                                           .workers = workers,
                                           .shuffle = true,
                                           .seed = 5,
                                           .part = {.cuts = cuts, .of = pieces, .first = rank * each, .count = each}});
      for (int step = 0; step < 3; ++step)
        for (Loader& loader : loaders)
          for (std::int64_t i = 0; i < each; ++i) {
            const Batch piece = loader.next();
            const auto number = static_cast<std::size_t>(piece.epoch * 3 + piece.index);
            const Batch& batch = batches[number];
            for (std::int64_t row = 0; row < piece.size(); ++row) {
              // Pixel by pixel: augmented as in one process.
              const std::int64_t at = static_cast<std::int64_t>(samples[number].size());
              const std::int64_t pixels = batch["images"].size() / batch.size();
              ASSERT_EQ(std::memcmp(piece["images"].data<const float>() + row * pixels,
                                    batch["images"].data<const float>() + at * pixels,
                                    static_cast<std::size_t>(pixels) * sizeof(float)),
                        0);
              samples[number].push_back(piece.samples[static_cast<std::size_t>(row)]);
            }
            EXPECT_EQ(piece.tensors().empty(), piece.size() == 0);
          }
      for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(samples[i], batches[i].samples) << ranks << " ranks, batch " << i;
    }
}

TEST(LoaderPartTest, SeeksToTheBeginningOfAStep) {
  const auto set = std::make_shared<Probe>(24);
  const LoaderOptions options{
      .batch_size = 8, .shuffle = true, .seed = 5, .part = {.cuts = 1, .of = 2, .first = 1, .count = 1}};
  Loader straight(set, steps(*set), options), jumped(set, steps(*set), options);
  EXPECT_EQ(straight.batches_per_epoch(), 3);
  (void)straight.next();
  (void)straight.next();
  EXPECT_EQ(straight.epoch(), 1);
  EXPECT_EQ(straight.batch(), 2) << "what is next is batch 5 of all";
  jumped.seek(1, 1);
  EXPECT_EQ(jumped.next().samples, straight.next().samples);
  EXPECT_THROW(jumped.seek(0, 1), UsageError);
}

TEST(LoaderPartTest, RefusesImpossibleParts) {
  const auto set = std::make_shared<Probe>(24);
  for (const LoaderPart& part : {LoaderPart{.cuts = 0}, LoaderPart{.first = -1}, LoaderPart{.count = 0},
                                 LoaderPart{.of = 2, .first = 2}, LoaderPart{.of = 2, .first = 1, .count = 2}})
    EXPECT_THROW(Loader(set, steps(*set), {.part = part}), ConfigError);
}

TEST(OrderTest, IsAPermutationWithEveryPlaceLikely) {
  std::vector<int> first(10);
  for (std::uint64_t epoch = 0; epoch < 5000; ++epoch) {
    auto order = shuffled_order(10, 1, epoch);
    ++first[static_cast<std::size_t>(order[0])];
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < 10; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
  }
  for (const int count : first) EXPECT_NEAR(count, 500, 100);
  EXPECT_NE(shuffled_order(100, 1, 0), shuffled_order(100, 2, 0));
}

}  // namespace
}  // namespace hearth::data::loader_test
