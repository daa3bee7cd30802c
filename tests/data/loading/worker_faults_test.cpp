// SPDX-License-Identifier: Apache-2.0
// Exceptions of every kind, thrown wherever a batch is made: each reaches the call of next() that would have had the
// batch, and nothing hangs, whether the loader goes on, seeks or ends. Also workers that do not come back.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <thread>

#include "core/error.h"
#include "core/random.h"
#include "data/loading/batch_maker.h"
#include "data/loading/loader.h"
#include "data/loading/quarantine.h"
#include "data/loading/stuck_watch.h"
#include "data/sample_dataset.h"
#include "tests/support/error_message.h"

namespace hearth::data::worker_faults_test {
namespace {

using test::contains;
using test::error_message;

enum class Where : std::uint8_t { order, length, before, sample, collate, after };
constexpr int places = 6;
constexpr int kinds = 8;

/// Throws what a program or a library may throw.
[[noreturn]] void throw_kind(int kind) {
  switch (kind) {
    case 0:
      throw DataError("broken");
    case 1:
      throw FileError("gone");
    case 2:
      throw OutOfMemory("no memory");
    case 3:
      throw std::bad_alloc();
    case 4:
      throw std::runtime_error("of another library");
    case 5:
      throw InternalError("a defect");
    case 6:
      throw 17;
    default:
      throw std::length_error("vector");
  }
}
/// Which of them is in flight.
int kind_in_flight() {
  try {
    throw;
  } catch (const DataError&) {
    return 0;
  } catch (const FileError&) {
    return 1;
  } catch (const OutOfMemory&) {
    return 2;
  } catch (const std::bad_alloc&) {
    return 3;
  } catch (const InternalError&) {
    return 5;
  } catch (const std::length_error&) {
    return 7;
  } catch (const std::runtime_error&) {
    return 4;
  } catch (int) {
    return 6;
  }
}

/// Batches whose making fails at planned batches (whole ones, through all epochs).
class Faulty : public Dataset {
 public:
  struct Fault {
    Where where;
    int kind;
  };
  Faulty(std::int64_t size, std::map<std::int64_t, Fault> faults) : size_(size), faults_(std::move(faults)) {}
  std::int64_t size() const override { return size_; }
  const std::string& source() const override {
    static const std::string name = "faulty";
    return name;
  }
  std::unique_ptr<BatchMaker> batches(const Transforms&, const LoaderOptions& options) const override {
    return std::make_unique<Maker>(*this, options);
  }

 private:
  void fail(std::int64_t batch, Where where) const {
    const auto fault = faults_.find(batch);
    if (fault != faults_.end() && fault->second.where == where) throw_kind(fault->second.kind);
  }

  class Maker : public OrderedBatches {
   public:
    Maker(const Faulty& set, const LoaderOptions& options)
        : OrderedBatches(set.size(), options, set.source(), "samples"), set_(set) {}
    std::vector<std::int64_t> samples_of(std::int64_t epoch, std::int64_t index) const override {
      set_.fail(epoch * per_epoch() + index, Where::order);
      batch_of_thread = epoch * per_epoch() + index;
      return OrderedBatches::samples_of(epoch, index);
    }
    std::int64_t length_of(std::int64_t) const override {
      set_.fail(batch_of_thread, Where::length);
      return 0;
    }
    bool fill(Batch& batch, Workspace& space, const std::function<bool()>& cancelled) const override {
      const std::int64_t number = batch.epoch * per_epoch() + batch.index;
      set_.fail(number, Where::before);
      const Tensor x = Tensor::empty({batch.size()}, DType::i64);
      for (std::int64_t row = 0; row < batch.size(); ++row) {
        if (cancelled()) return false;
        const std::int64_t sample = batch.samples[static_cast<std::size_t>(row)];
        space.clock.at(Stage::read, sample);
        if (row == batch.size() / 2) set_.fail(number, Where::sample);
        x.data<std::int64_t>()[row] = sample;
      }
      space.clock.at(Stage::assemble);
      set_.fail(number, Where::collate);
      batch.set("x", x);
      set_.fail(number, Where::after);
      return true;
    }

   private:
    static inline thread_local std::int64_t batch_of_thread = 0;
    const Faulty& set_;
  };

  std::int64_t size_;
  std::map<std::int64_t, Fault> faults_;
};

/// One loader and what is done with it, drawn by `number`; returns how many faults were met.
int run_trial(std::uint64_t number) {
  Random random(77, number);
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(bound)));
  };
  const std::int64_t size = 8 + below(40);
  LoaderOptions options{.batch_size = 1 + below(6), .shuffle = true, .seed = number};
  constexpr int workers[] = {0, 1, 2, 4, 8};
  options.workers = workers[below(5)];
  options.prefetch = static_cast<int>(1 + below(8));
  if (below(2) == 0) options.part = {.cuts = 2, .of = 2, .first = below(2), .count = 1};
  const std::int64_t per_epoch = (size + options.batch_size - 1) / options.batch_size;
  std::map<std::int64_t, Faulty::Fault> faults;
  for (int i = 0; i < 4; ++i)
    faults[below(2 * per_epoch)] = {static_cast<Where>(below(places)), static_cast<int>(below(kinds))};
  const auto set = std::make_shared<Faulty>(size, faults);
  int met = 0;
  {
    Loader loader(set, options);
    std::int64_t next = 0;
    const std::int64_t calls = below(2 * per_epoch + 1);
    for (std::int64_t i = 0; i < calls; ++i) {
      if (below(8) == 0) {
        next = below(2 * per_epoch);
        loader.seek(next / per_epoch, next % per_epoch);
      }
      // A batch that is not cut has no use for lengths, and none is made of no rows.
      const auto fault = faults.find(next);
      int kind = -1;
      std::int64_t rows = -1;
      try {
        const Batch batch = loader.next();
        EXPECT_EQ(batch.epoch * per_epoch + batch.index, next);
        rows = batch.size();
        EXPECT_TRUE(rows == 0 || batch["x"].size() == rows);
      } catch (...) {
        kind = kind_in_flight();
        ++met;
      }
      const bool needs_rows = fault != faults.end() && fault->second.where > Where::length;
      const bool needs_cuts = fault != faults.end() && fault->second.where == Where::length && options.part.cuts == 1;
      if (fault == faults.end() || needs_cuts || (needs_rows && rows == 0))
        EXPECT_EQ(kind, -1) << "batch " << next;
      else
        EXPECT_EQ(kind, fault->second.kind) << "batch " << next;
      ++next;
    }
  }
  EXPECT_EQ(set.use_count(), 1) << "no worker is left";
  return met;
}

TEST(WorkerFaultsTest, AThousandFaultsReachTheirCallsAndNothingHangs) {
  int met = 0;
  for (std::uint64_t number = 0; met < 1000; ++number) {
    SCOPED_TRACE(number);
    met += run_trial(number);
    if (HasFailure()) return;
  }
}

/// Samples 0, 1, ... of which some are bad, and some throw what no policy passes over.
struct Numbers : SampleDataset {
  std::int64_t size() const override { return 40; }
  TensorSample read(std::int64_t i, Random&) const override {
    ++tried[static_cast<std::size_t>(i)];
    HEARTH_CHECK(DataError, bad.count(i) == 0, "number ", i, " is broken");
    HEARTH_CHECK(FileError, lost.count(i) == 0, "number ", i, " is lost");
    if (i == no_memory.load()) throw std::bad_alloc();
    HEARTH_CHECK(UsageError, i != misused.load(), "number ", i, " was asked for wrongly");
    return {{"x", Tensor::of<std::int64_t>({1}, {i})}};
  }
  std::set<std::int64_t> bad, lost;
  std::atomic<std::int64_t> no_memory{-1}, misused{-1};
  mutable std::vector<std::atomic<int>> tried = std::vector<std::atomic<int>>(40);
};

TEST(BadSamplesTest, StandInsAreThoseThatFollowAndAreTriedOnce) {
  const auto set = std::make_shared<Numbers>();
  set->bad = {3, 4, 39};
  set->lost = {5};
  for (const int workers : {0, 1, 4}) {
    for (auto& count : set->tried) count = 0;
    const auto bad = std::make_shared<Quarantine>("train", "numbers", 40, 40);
    Loader loader(set, {.batch_size = 4, .workers = workers, .quarantine = bad});
    const Batch first = loader.next();
    EXPECT_EQ(first["x"].to_doubles(), (std::vector<double>{0, 1, 2, 6})) << "6 stands in for 3";
    EXPECT_EQ(first.samples, (std::vector<std::int64_t>{0, 1, 2, 6}));
    EXPECT_EQ(bad->delivered(), (std::vector<Quarantine::Entry>{
                                    {3, "number 3 is broken"}, {4, "number 4 is broken"}, {5, "number 5 is lost"}}))
        << "what later batches have found does not count yet";
    EXPECT_EQ(loader.next().samples, (std::vector<std::int64_t>{6, 6, 6, 7}));
    for (int i = 2; i < 9; ++i) (void)loader.next();
    EXPECT_EQ(loader.next().samples, (std::vector<std::int64_t>{36, 37, 38, 0})) << "around the end";
    EXPECT_EQ(bad->count(), 4);
    for (int i = 0; i < 30; ++i) (void)loader.next();
    // Two workers may be at the same bad sample at once.
    for (const std::size_t i : {3, 4, 5, 39}) EXPECT_LE(set->tried[i], std::max(1, workers)) << i;
  }
}

TEST(BadSamplesTest, OverTheBudgetNextThrowsInItsTurn) {
  const auto set = std::make_shared<Numbers>();
  set->bad = {5, 13, 14, 30};
  for (const int workers : {0, 2}) {
    const auto bad = std::make_shared<Quarantine>("train", "numbers", 40, 2);
    Loader loader(set, {.batch_size = 4, .workers = workers, .prefetch = 8, .quarantine = bad});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(loader.next().index, i);
    const std::string message = error_message<DataError>([&] { loader.next(); });
    EXPECT_TRUE(contains(message, "3 samples of the train split are bad, and 2 of 40 may be")) << message;
    EXPECT_TRUE(contains(message, "sample 5 (number 5 is broken); sample 13 (number 13 is broken)")) << message;
  }
  for (std::int64_t i = 0; i < 40; ++i) set->bad.insert(i);
  Loader loader(set, {.batch_size = 4, .quarantine = std::make_shared<Quarantine>("train", "numbers", 40, 7)});
  EXPECT_TRUE(contains(error_message<DataError>([&] { loader.next(); }), "more than the 7 samples"));
}

TEST(BadSamplesTest, OtherFaultsArePassedOverByNoPolicy) {
  const auto set = std::make_shared<Numbers>();
  const auto bad = std::make_shared<Quarantine>("train", "numbers", 40, 40);
  set->no_memory = 2;
  EXPECT_THROW(Loader(set, {.batch_size = 4, .quarantine = bad}).next(), std::bad_alloc);
  set->no_memory = -1;
  set->misused = 2;
  EXPECT_THROW(Loader(set, {.batch_size = 4, .quarantine = bad}).next(), UsageError);
  EXPECT_EQ(bad->count(), 0);
  set->misused = -1;
  set->bad = {2};
  EXPECT_EQ(error_message<DataError>([&] { Loader(set, {.batch_size = 4}).next(); }), "number 2 is broken");
}

/// Sample 9 is not read until it is let go.
struct Sticky : SampleDataset {
  std::int64_t size() const override { return 40; }
  TensorSample read(std::int64_t i, Random&) const override {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return i != 9 || is_free; });
    return {{"x", Tensor::of<std::int64_t>({1}, {i})}};
  }
  void let_go() {
    const std::lock_guard lock(mutex);
    is_free = true;
    changed.notify_all();
  }
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  bool is_free = false;
};

TEST(StuckWorkerTest, IsToldOnceAndThenWaitedFor) {
  const auto set = std::make_shared<Sticky>();
  Loader loader(set, {.batch_size = 4, .workers = 2, .prefetch = 2, .stuck_seconds = 0.02});
  std::vector<std::string> told;
  loader.on_stuck([&](const std::string& text) {
    told.push_back(text);
    set->let_go();
  });
  for (int i = 0; i < 10; ++i) EXPECT_EQ(loader.next().index, i);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(contains(told[0], "has been at sample 9 of epoch 0, batch 2, for")) << told[0];
  EXPECT_TRUE(contains(told[0], "s: read")) << told[0];
}

TEST(StuckWorkerTest, EndsTheWaitAfterTheLimitAndIsLeftBehind) {
  const auto set = std::make_shared<Sticky>();
  {
    Loader loader(set,
                  {.batch_size = 4, .workers = 2, .prefetch = 2, .stuck_seconds = 0.01, .stuck_limit_seconds = 0.05});
    int told = 0;
    loader.on_stuck([&](const std::string&) { ++told; });
    EXPECT_EQ(loader.next().index, 0);
    EXPECT_EQ(loader.next().index, 1);
    const std::string message = error_message<DataError>([&] { loader.next(); });
    EXPECT_TRUE(contains(message, "has been at sample 9 of epoch 0, batch 2, for")) << message;
    EXPECT_TRUE(contains(message, "data.stuck_limit_seconds")) << message;
    EXPECT_EQ(told, 1);
  }
  EXPECT_GT(set.use_count(), 1) << "the worker has it still";
  set->let_go();
  while (set.use_count() > 1) std::this_thread::yield();
}

TEST(StuckWorkerTest, TimeCountsForOneSampleAndWhileOneLooks) {
  const auto at = [](std::int64_t sample) {
    StageClock::Activity activity;
    activity.batch = 3, activity.sample = sample;
    return activity;
  };
  StuckWatch watch(1, 0.008, 1000);
  for (std::int64_t sample = 0; sample < 20; ++sample) {
    watch.begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    EXPECT_FALSE(watch.look(0, at(sample)));
    EXPECT_EQ(watch.seconds(0), 0) << "each is another sample";
  }
  // A process that was halted, and one look after it goes on.
  watch.begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(watch.look(0, at(19)));
  EXPECT_LE(watch.seconds(0), 0.0041);
  int told = 0;
  for (int i = 0; i < 20; ++i) {
    watch.begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    told += watch.look(0, at(19)) ? 1 : 0;
  }
  EXPECT_EQ(told, 1);
  EXPECT_FALSE(watch.is_over(0));
  EXPECT_FALSE(watch.look(0, {})) << "it waits for nothing now";
  EXPECT_EQ(watch.seconds(0), 0);
}

}  // namespace
}  // namespace hearth::data::worker_faults_test
