// SPDX-License-Identifier: Apache-2.0
// From one epoch to the next: no thread starts anew, and nothing waits for the order of the next epoch.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "core/error.h"
#include "data/loading/batch_maker.h"
#include "data/loading/loader.h"
#include "data/sample_dataset.h"

namespace hearth::data::epochs_test {
namespace {

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
/// Waits for what another thread is to do, for 10 seconds at most.
bool comes_true(const std::function<bool()>& is_true) {
  for (int i = 0; i < 10'000 && !is_true(); ++i) nap();
  return is_true();
}

std::ptrdiff_t threads_of_process() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return std::distance(begin(all), end(all));
}

/// Notes which threads read it.
struct Watched : SampleDataset {
  std::int64_t size() const override { return 6; }
  TensorSample read(std::int64_t i, Random&) const override {
    const std::lock_guard lock(mutex);
    readers.insert(gettid());
    ++reads;
    return {{"x", Tensor::full({1}, static_cast<double>(i))}};
  }
  std::size_t reading_threads() const {
    const std::lock_guard lock(mutex);
    return readers.size();
  }
  mutable std::mutex mutex;
  mutable std::set<pid_t> readers;
  mutable std::atomic<std::int64_t> reads{0};
};

TEST(LoaderEpochs, FiftyTinyOnesStartNoThread) {
  const auto set = std::make_shared<Watched>();
  const std::ptrdiff_t before = threads_of_process();
  Loader loader(set, {.batch_size = 2, .workers = 2, .prefetch = 4, .shuffle = true});
  std::ptrdiff_t most = 0;
  for (int i = 0; i < 50 * 3; ++i) {
    EXPECT_EQ(loader.next().epoch, i / 3);
    most = std::max(most, threads_of_process());
  }
  EXPECT_LE(set->reading_threads(), 2u);
  EXPECT_LE(most, before + 3) << "two workers, and who plans";
}

TEST(LoaderEpochs, TheNextBeginsBeforeThisOneEnds) {
  const auto set = std::make_shared<Watched>();
  Loader loader(set, {.batch_size = 2, .workers = 1, .prefetch = 4, .shuffle = true});
  for (std::int64_t epoch = 0; epoch < 50; ++epoch)
    for (std::int64_t batch = 0; batch < 3; ++batch) {
      // The batches that may be ready reach into the next epoch.
      EXPECT_TRUE(comes_true([&] { return set->reads == (3 * epoch + batch + 4) * 2; })) << set->reads;
      EXPECT_EQ(loader.epoch(), epoch);
      EXPECT_EQ(loader.next().index, batch);
    }
}

/// Batches of nothing, which note what was planned, and what was wanted before.
struct Planned : Dataset {
  struct Maker : BatchMaker {
    explicit Maker(const Planned& of) : set(of) {}
    std::int64_t per_epoch() const override { return 8; }
    std::int64_t samples_per_epoch() const override { return 8; }
    void plan(std::int64_t epoch) const override {
      const std::lock_guard lock(set.mutex);
      set.planned.push_back(epoch);
      if (epoch == 3) throw DataError("no plan");
    }
    std::vector<std::int64_t> samples_of(std::int64_t, std::int64_t index) const override { return {index}; }
    bool fill(Batch&, Workspace&, const std::function<bool()>&) const override { return true; }
    const Planned& set;
  };
  std::int64_t size() const override { return 8; }
  const std::string& source() const override { return name; }
  std::unique_ptr<BatchMaker> batches(const Transforms&, const LoaderOptions&) const override {
    return std::make_unique<Maker>(*this);
  }
  std::vector<std::int64_t> plans() const {
    const std::lock_guard lock(mutex);
    return planned;
  }
  std::string name = "planned";
  mutable std::mutex mutex;
  mutable std::vector<std::int64_t> planned;
};

TEST(LoaderEpochs, TheNextIsPlannedWhileThisOneIsHandedOut) {
  using Plans = std::vector<std::int64_t>;
  const auto set = std::make_shared<Planned>();
  {
    Loader loader(set, {.batch_size = 1, .workers = 1, .prefetch = 2, .shuffle = true});
    EXPECT_TRUE(comes_true([&] { return set->plans() == Plans{1}; }));
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(set->plans(), Plans{1}) << "no epoch that is far";
      (void)loader.next();
    }
    EXPECT_TRUE(comes_true([&] { return set->plans() == Plans{1, 2}; }));
    for (int i = 0; i < 8; ++i) (void)loader.next();
    // Its fault is that of the batch which needs the plan.
    EXPECT_TRUE(comes_true([&] { return set->plans() == Plans{1, 2, 3}; }));
    for (int i = 0; i < 8; ++i) (void)loader.next();
    EXPECT_TRUE(comes_true([&] { return set->plans() == Plans{1, 2, 3, 4}; }));
    loader.seek(10, 4);
    EXPECT_TRUE(comes_true([&] { return set->plans() == Plans{1, 2, 3, 4, 11}; }));
  }
  set->planned.clear();
  Loader(set, {.batch_size = 1, .workers = 1}).next();
  EXPECT_EQ(set->plans(), Plans{}) << "in order there is nothing to plan";
}

TEST(ByEpochTest, OneEpochDoesNotWaitForAnother) {
  const ByEpoch<int> values;
  std::promise<void> begun, go_on;
  auto slow = std::async(std::launch::async, [&] {
    return *values.of(1, [&] {
      begun.set_value();
      go_on.get_future().wait();
      return 10;
    });
  });
  begun.get_future().wait();
  int made = 0;
  EXPECT_EQ(*values.of(0, [&] { return ++made; }), 1);
  EXPECT_EQ(*values.of(0, [&] { return ++made; }), 1);
  auto same = std::async(std::launch::async, [&] { return *values.of(1, [] { return 99; }); });
  go_on.set_value();
  EXPECT_EQ(slow.get(), 10);
  EXPECT_EQ(same.get(), 10);
}

TEST(ByEpochTest, IsMadeAgainAfterAFaultAndWhenForgotten) {
  const ByEpoch<int> values;
  EXPECT_THROW((void)values.of(5, []() -> int { throw DataError("no"); }), DataError);
  EXPECT_EQ(*values.of(5, [] { return 1; }), 1);
  EXPECT_EQ(*values.of(6, [] { return 2; }), 2);
  EXPECT_EQ(*values.of(5, [] { return 3; }), 1);
  EXPECT_EQ(*values.of(7, [] { return 4; }), 4);
  EXPECT_EQ(*values.of(5, [] { return 5; }), 5);
}

}  // namespace
}  // namespace hearth::data::epochs_test
