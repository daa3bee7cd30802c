// SPDX-License-Identifier: Apache-2.0
#include "data/loading/stages.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "data/images/codecs/image.h"
#include "data/loading/loader.h"
#include "data/loading/prefetch_depth.h"
#include "data/sample_dataset.h"

namespace hearth::data::stages_test {
namespace {

using std::chrono::milliseconds;
void nap(int ms) { std::this_thread::sleep_for(milliseconds(ms)); }

TEST(StageClockTest, CountsForTheInnermostScope) {
  StageClock clock;
  const StageClock::Use use(clock);
  clock.at(Stage::read, 7);
  nap(5);
  {
    const StageScope decode(Stage::decode);
    nap(10);
    {
      const StageScope augment(Stage::augment);
      nap(15);
    }
    EXPECT_EQ(clock.activity().stage, Stage::decode);
  }
  EXPECT_EQ(clock.activity().stage, Stage::read);
  EXPECT_EQ(clock.activity().sample, 7);
  EXPECT_GE(clock.activity().sample_seconds, 0.03) << "a sample's time goes on through its stages";
  const StageTimes times = clock.times();
  EXPECT_GE(times[Stage::read], 0.005);
  EXPECT_GE(times[Stage::decode], 0.010);
  EXPECT_GE(times[Stage::augment], 0.015);
  EXPECT_EQ(times[Stage::assemble], 0);
  EXPECT_EQ(times[Stage::copy], 0);
  EXPECT_EQ(times.longest(), Stage::augment);
  EXPECT_DOUBLE_EQ(times.work(), times.total() - times[Stage::room]);
}

TEST(StageClockTest, ScopesOfAThreadWithoutAClockDoNothing) {
  StageClock clock;
  {
    const StageClock::Use use(clock);
    StageClock inner;
    { const StageClock::Use nested(inner); }
    const StageScope scope(Stage::decode);
    EXPECT_EQ(clock.activity().stage, Stage::decode) << "the clock before is used again";
  }
  const StageScope scope(Stage::copy);
  EXPECT_EQ(clock.activity().stage, Stage::room);
}

TEST(StageClockTest, IsReadWholeWhileItRuns) {
  StageClock clock;
  std::atomic<bool> done{false};
  std::thread worker([&] {
    for (std::int64_t i = 0; !done.load(); ++i) clock.at(i % 2 == 0 ? Stage::read : Stage::decode, i % 2);
  });
  double before = 0;
  for (int i = 0; i < 20000; ++i) {
    const StageClock::Activity now = clock.activity();
    if (now.sample != StageClock::none) {
      EXPECT_EQ(now.stage, now.sample == 0 ? Stage::read : Stage::decode);
    }
    const double total = clock.times().total();
    EXPECT_GE(total, before - 1e-9);
    before = total;
  }
  done = true;
  worker.join();
}

/// Naps in one stage.
struct Slow : SampleDataset {
  Stage stage = Stage::read;
  int ms = 20;
  mutable std::atomic<std::int64_t> stuck{-1}, reads{0};
  std::int64_t size() const override { return 16; }
  TensorSample read(std::int64_t i, Random&) const override {
    while (stuck.load() == i) nap(1);
    ++reads;
    if (stage == Stage::read) nap(ms);
    if (stage == Stage::decode || stage == Stage::augment) {
      const StageScope scope(stage);
      nap(ms);
    }
    return {{"x", Tensor::full({1}, static_cast<double>(i))}};
  }
  Batch collate(const std::vector<TensorSample>& samples) const override {
    if (stage == Stage::assemble) nap(ms);
    return SampleDataset::collate(samples);
  }
};

TEST(LoaderUseTest, TellsTheStageThatIsSlow) {
  for (const int workers : {0, 1, 2})
    for (const Stage stage : {Stage::read, Stage::decode, Stage::augment, Stage::assemble}) {
      const auto set = std::make_shared<Slow>();
      set->stage = stage;
      Loader loader(set, {.batch_size = 1, .workers = workers, .prefetch = 2});
      for (int i = 0; i < 6; ++i) (void)loader.next();
      const LoaderUse use = loader.take_use();
      EXPECT_EQ(use.times.longest(), stage) << name_of(stage) << ", " << workers << " workers";
      EXPECT_GE(use.times[stage], 0.020 * 5);
      EXPECT_EQ(use.batches, 6);
      EXPECT_EQ(use.workers, workers);
      EXPECT_GT(use.wait_seconds, 0.019);
      const double threads = std::max(workers, 1);
      EXPECT_GE(use.times.total(), 0.5 * threads * use.seconds) << "threads are always in a stage";
      EXPECT_LE(use.times.total(), 1.5 * threads * use.seconds) << "and in no more than one";
    }
}

TEST(LoaderUseTest, CountsFromCallToCall) {
  const auto set = std::make_shared<Slow>();
  set->ms = 0;
  Loader loader(set, {.batch_size = 1, .workers = 1, .prefetch = 3});
  for (int i = 0; i < 5; ++i) (void)loader.next();
  EXPECT_EQ(loader.take_use().batches, 5);
  const LoaderUse none = loader.take_use();
  EXPECT_EQ(none.batches, 0);
  EXPECT_EQ(none.wait_seconds, 0);
  EXPECT_LT(none.times.total(), none.seconds + 0.02);
  // The queue fills up while nobody takes from it.
  for (int taken = 5; taken < 9; ++taken) {
    while (set->reads < taken + 3 || loader.activity()[0].stage != Stage::room) nap(1);
    nap(20);  // the batch is made, and is to be handed in
    (void)loader.next();
  }
  const LoaderUse full = loader.take_use();
  EXPECT_EQ(full.dry, 0);
  EXPECT_EQ(full.min_depth, 3);
  EXPECT_EQ(full.depth, 3);
}

TEST(LoaderUseTest, TheFirstBatchesAfterAStartAreNotDry) {
  const auto set = std::make_shared<Slow>();
  Loader loader(set, {.batch_size = 1, .workers = 1, .prefetch = 2});
  (void)loader.next(), (void)loader.next();
  EXPECT_EQ(loader.take_use().dry, 0);
  for (int i = 0; i < 4; ++i) (void)loader.next();
  const LoaderUse use = loader.take_use();
  EXPECT_EQ(use.dry, 4);
  EXPECT_GT(use.dry_seconds, 0.07);
  EXPECT_EQ(use.depth, 0);
  loader.seek(0, 3);
  (void)loader.next(), (void)loader.next();
  EXPECT_EQ(loader.take_use().dry, 0);
}

TEST(PrefetchDepthTest, SmallBatchesOfShortStepsAreMadeFurtherAhead) {
  PrefetchDepth depth(4, 0.1);
  EXPECT_EQ(depth.now(), 4);
  EXPECT_EQ(depth.room(), 64);
  for (int i = 0; i < 100; ++i) depth.adjust(0.005, 1000);
  EXPECT_NEAR(depth.now(), 20, 1) << "0.1 s";
  depth.adjust(10, 1000);
  EXPECT_GE(depth.now(), 9) << "one slow step";
  for (int i = 0; i < 100; ++i) depth.adjust(0, 1000);
  EXPECT_EQ(depth.now(), 64);
  depth.adjust(0, 100 << 10);
  EXPECT_EQ(depth.now(), 10) << "1 MiB";
  depth.adjust(0, 1 << 20);
  EXPECT_EQ(depth.now(), 4) << "what was asked for";
  for (int i = 0; i < 200; ++i) depth.adjust(1, 1000);
  EXPECT_EQ(depth.now(), 4);
  PrefetchDepth fixed(3, 0);
  fixed.adjust(0, 1);
  EXPECT_EQ(fixed.now(), 3);
  EXPECT_EQ(fixed.room(), 3);
}

TEST(LoaderUseTest, ShortStepsHaveMoreBatchesReady) {
  for (const double seconds : {0.0, 10.0}) {
    const auto set = std::make_shared<Slow>();
    set->ms = 0;
    Loader loader(set, {.batch_size = 1, .workers = 1, .prefetch = 3, .prefetch_seconds = seconds});
    for (int i = 0; i < 70; ++i) (void)loader.next();
    const int wanted = seconds > 0 ? 70 + PrefetchDepth::most : 70 + 3;
    for (int waited = 0; set->reads < wanted && waited < 2000; ++waited) nap(1);
    nap(5);
    EXPECT_EQ(set->reads, wanted) << seconds;
  }
}

TEST(LoaderUseTest, TellsWhichSampleAWorkerIsAt) {
  const auto set = std::make_shared<Slow>();
  set->ms = 0;
  set->stuck = 5;
  Loader loader(set, {.batch_size = 4, .workers = 1, .prefetch = 4});
  EXPECT_EQ(loader.next().size(), 4);
  StageClock::Activity now;
  do nap(1), now = loader.activity().at(0);
  while (now.sample != 5 || now.sample_seconds < 0.03);
  EXPECT_EQ(now.stage, Stage::read);
  EXPECT_EQ(now.batch, 1);
  set->stuck = -1;
  EXPECT_EQ(loader.next().size(), 4);
}

}  // namespace
}  // namespace hearth::data::stages_test
