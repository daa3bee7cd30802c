// SPDX-License-Identifier: Apache-2.0
// Runs that are killed and go on, by random plans: other numbers of workers, ranks and batches ahead each time, a
// world of another size, bad samples. Whatever the plan, the batches have the bits of one process that was never
// stopped, the registered state too, and what lies before the position of a resume is not read.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <set>

#include "core/error.h"
#include "core/io/state.h"
#include "core/random.h"
#include "data/images/image_dataset.h"
#include "data/loading/loader.h"
#include "data/loading/quarantine.h"
#include "tests/support/temp_dir.h"
#include "tests/support/variable_scope.h"

namespace hearth::data::random_plans_test {
namespace {

using Samples = std::vector<std::int64_t>;

/// Images of random pixels, some of which cannot be read; counts how often each was tried.
class Counted : public ImageDataset {
 public:
  Counted(std::int64_t size, std::set<std::int64_t> bad)
      : bad_(std::move(bad)), tried_(static_cast<std::size_t>(size)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(tried_.size()); }
  ImageShape image_shape() const override { return {2, 3, 1}; }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::int64_t label(std::int64_t index) const override { return index % 4; }
  std::int64_t read(std::int64_t index, Image& image) const override {
    tried_[static_cast<std::size_t>(index)].fetch_add(1, std::memory_order_relaxed);
    HEARTH_CHECK(DataError, bad_.count(index) == 0, "sample ", index, " is broken");
    image.reshape(2, 3, 1);
    Random random(17, static_cast<std::uint64_t>(index));
    for (auto& value : image.pixels) value = static_cast<std::uint8_t>(random.below(256));
    return index % 4;
  }
  const std::string& source() const override { return source_; }

  /// The samples that were tried since the last call.
  std::set<std::int64_t> take_tried() {
    std::set<std::int64_t> samples;
    for (std::size_t i = 0; i < tried_.size(); ++i)
      if (tried_[i].exchange(0, std::memory_order_relaxed) > 0) samples.insert(static_cast<std::int64_t>(i));
    return samples;
  }

 private:
  std::set<std::int64_t> bad_;
  mutable std::vector<std::atomic<int>> tried_;
  std::vector<std::string> names_ = numbered_classes(4);
  std::string source_ = "counted";
};

/// A row of a batch: which sample it is, and all its bytes.
struct Row {
  std::int64_t sample;
  std::string bytes;
  bool operator==(const Row&) const = default;
};

std::vector<Row> rows_of(const Batch& batch) {
  std::vector<Row> rows;
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    Row& row = rows.emplace_back(Row{batch.samples[static_cast<std::size_t>(i)], {}});
    for (const char* name : {"images", "labels"}) {
      const Tensor tensor = batch[name];
      const std::size_t bytes = tensor.byte_size() / static_cast<std::size_t>(batch.size());
      row.bytes.append(reinterpret_cast<const char*>(tensor.bytes()) + static_cast<std::size_t>(i) * bytes, bytes);
    }
  }
  return rows;
}

/// A run and its plan, drawn by `number`.
class Plan {
 public:
  explicit Plan(std::uint64_t number) : random_(2101, number) {
    const std::int64_t size = 12 + below(50);
    if (below(2) == 0)
      for (int i = 0; i < 3; ++i) bad_.insert(below(size));
    set_ = std::make_shared<Counted>(size, bad_);
    options_ = {.batch_size = 1 + below(9), .shuffle = true, .drop_last = below(2) == 0, .seed = number};
    batches_a_step_ = 1 + below(2);
    record_reference();
  }

  void run() {
    std::int64_t legs = 0;
    while (position_ < steps_ && !testing::Test::HasFailure()) run_leg(++legs == 20);
    if (testing::Test::HasFailure()) return;
    EXPECT_EQ(saved_bad(), bad_passed_.back());
    for (std::int64_t epoch = 0; epoch < 2 && bad_.empty(); ++epoch) expect_each_once(epoch);
  }

 private:
  static constexpr std::int64_t cuts = 8;  // pieces of a batch, whatever the number of ranks

  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(bound)));
  }
  Transforms transforms() const { return Transforms(set_->image_shape(), {.horizontal_flip = true}, true); }
  std::shared_ptr<Quarantine> quarantine() const {
    return std::make_shared<Quarantine>("train", "counted", set_->size(), set_->size());
  }
  std::set<std::int64_t> saved_bad() const {
    std::set<std::int64_t> bad;
    for (const Quarantine::Entry& entry : saved_entries_) bad.insert(entry.sample);
    return bad;
  }

  /// Two epochs and some more, by one process without workers.
  void record_reference() {
    LoaderOptions whole = options_;
    whole.workers = 0;
    whole.quarantine = quarantine();
    Loader loader(set_, transforms(), whole);
    per_epoch_ = loader.batches_per_epoch();
    steps_ = (2 * per_epoch_ + batches_a_step_) / batches_a_step_ + 2;
    for (std::int64_t i = 0; i < steps_ * batches_a_step_ + 40; ++i) {
      // What may be read ahead is known too.
      const Batch batch = loader.next();
      if (i < steps_ * batches_a_step_) {
        reference_.push_back(rows_of(batch));
        std::set<std::int64_t> passed;
        for (const Quarantine::Entry& entry : whole.quarantine->delivered()) passed.insert(entry.sample);
        bad_passed_.push_back(passed);
      }
      planned_.push_back(batch.samples);
    }
    set_->take_tried();
  }

  /// From the last checkpoint until a kill, or the end of the run.
  void run_leg(bool to_the_end) {
    const std::int64_t ranks = std::int64_t{1} << below(4), start = position_;
    const std::set<std::int64_t> known_bad = saved_bad();
    std::vector<std::shared_ptr<Quarantine>> quarantines;
    std::vector<Loader> loaders;
    std::int64_t ahead = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      constexpr int workers[] = {0, 1, 2, 4, 8};
      LoaderOptions mine = options_;
      mine.workers = workers[below(ranks > 2 ? 2 : 5)];
      mine.prefetch = static_cast<int>(1 + below(9));
      const std::int64_t pieces = cuts * batches_a_step_, each = pieces / ranks;
      mine.part = {.cuts = cuts, .of = pieces, .first = rank * each, .count = each};
      quarantines.push_back(mine.quarantine = quarantine());
      load(*mine.quarantine);
      mine.first_batch = start * batches_a_step_;
      loaders.emplace_back(set_, transforms(), mine);
      ahead = std::max<std::int64_t>(ahead, mine.workers > 0 ? mine.prefetch + mine.workers : 0);
    }
    const std::int64_t last = to_the_end ? steps_ : std::min(steps_, start + 1 + below(steps_));
    std::int64_t step = start;
    for (; step < last && !testing::Test::HasFailure(); ++step) {
      take_step(step, loaders);
      share(quarantines);
      if (below(3) == 0 || step + 1 == steps_) save(*quarantines[static_cast<std::size_t>(below(ranks))], step + 1);
    }
    if (step < steps_) {
      // Killed within a step: some ranks have taken a part of it.
      for (Loader& loader : loaders)
        for (std::int64_t i = below(3); i > 0; --i) (void)loader.next();
    }
    loaders.clear();
    expect_only_these_read(start, step, ahead, known_bad);
  }

  void take_step(std::int64_t step, std::vector<Loader>& loaders) {
    std::map<std::int64_t, std::vector<Row>> found;
    for (Loader& loader : loaders)
      for (std::int64_t i = 0; i < loader.options().part.count; ++i) {
        const Batch piece = loader.next();
        std::vector<Row>& rows = found[piece.epoch * per_epoch_ + piece.index];
        for (Row& row : rows_of(piece)) rows.push_back(std::move(row));
      }
    ASSERT_EQ(static_cast<std::int64_t>(found.size()), batches_a_step_);
    for (auto& [batch, rows] : found) {
      ASSERT_EQ(batch / batches_a_step_, step);
      ASSERT_EQ(rows, reference_[static_cast<std::size_t>(batch)]) << "batch " << batch << " of step " << step;
      // What is done again after a kill counts once.
      done_[batch] = rows;
    }
  }

  /// As ranks do that found something.
  static void share(const std::vector<std::shared_ptr<Quarantine>>& quarantines) {
    std::vector<Quarantine::Entry> all;
    for (const auto& one : quarantines)
      for (const Quarantine::Entry& entry : one->take_new()) all.push_back(entry);
    for (const auto& one : quarantines) one->deliver(all), (void)one->take_new();
  }

  void save(Quarantine& quarantine, std::int64_t step) {
    ASSERT_EQ(bad_after(step), bad_in(quarantine)) << "step " << step;
    State state;
    state.add("step", &step);
    quarantine.register_state(state, "quarantine");
    state.save(folder_ / "state.safetensors");
    saved_entries_ = quarantine.delivered();
    position_ = step;
  }
  void load(Quarantine& quarantine) const {
    if (position_ == 0) return;
    std::int64_t step = 0;
    State state;
    state.add("step", &step);
    quarantine.register_state(state, "quarantine");
    state.load(folder_ / "state.safetensors");
    quarantine.after_load(saved_entries_);
    ASSERT_EQ(step, position_);
  }
  std::set<std::int64_t> bad_after(std::int64_t step) const {
    return bad_passed_[static_cast<std::size_t>(step * batches_a_step_ - 1)];
  }
  static std::set<std::int64_t> bad_in(const Quarantine& quarantine) {
    std::set<std::int64_t> bad;
    for (const Quarantine::Entry& entry : quarantine.delivered()) bad.insert(entry.sample);
    return bad;
  }

  /// Of a leg that began and ended at these steps. What lies before is not read, nor what is known to be bad.
  void expect_only_these_read(std::int64_t start, std::int64_t step, std::int64_t ahead,
                              const std::set<std::int64_t>& known_bad) {
    std::set<std::int64_t> allowed;
    const std::int64_t end = (step + 1) * batches_a_step_ + ahead + 3;
    for (std::int64_t i = start * batches_a_step_; i < end; ++i)
      allowed.insert(planned_[static_cast<std::size_t>(i)].begin(), planned_[static_cast<std::size_t>(i)].end());
    for (const std::int64_t sample : set_->take_tried()) {
      if (bad_.count(sample) > 0)
        EXPECT_EQ(known_bad.count(sample), 0u) << "sample " << sample << " is known to be bad";
      else
        EXPECT_EQ(allowed.count(sample), 1u)
            << "sample " << sample << " belongs to no batch from step " << start << " to " << step;
    }
  }

  void expect_each_once(std::int64_t epoch) {
    std::map<std::int64_t, int> times;
    for (std::int64_t batch = epoch * per_epoch_; batch < (epoch + 1) * per_epoch_; ++batch)
      for (const Row& row : done_[batch]) ++times[row.sample];
    const std::int64_t rest = options_.drop_last ? set_->size() % options_.batch_size : 0;
    EXPECT_EQ(static_cast<std::int64_t>(times.size()), set_->size() - rest);
    for (const auto& [sample, count] : times) EXPECT_EQ(count, 1) << "sample " << sample << " of epoch " << epoch;
  }

  Random random_;
  std::set<std::int64_t> bad_;
  std::shared_ptr<Counted> set_;
  LoaderOptions options_;
  std::int64_t batches_a_step_ = 1, per_epoch_ = 0, steps_ = 0;
  std::vector<std::vector<Row>> reference_;         // of each batch
  std::vector<std::set<std::int64_t>> bad_passed_;  // up to each batch
  std::vector<Samples> planned_;
  std::map<std::int64_t, std::vector<Row>> done_;
  std::int64_t position_ = 0;  // of the last checkpoint
  std::vector<Quarantine::Entry> saved_entries_;
  test::TempDir folder_;
};

TEST(RandomPlansTest, AThousandPlansGiveTheBitsOfOneProcess) {
  // Checkpoints are synced, which takes most of the time on a disk.
  const std::string memory = "/dev/shm";
  const test::VariableScope there(
      "TMPDIR", std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path().string());
  for (std::uint64_t number = 0; number < 1000; ++number) {
    SCOPED_TRACE(number);
    Plan(number).run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace hearth::data::random_plans_test
