// SPDX-License-Identifier: Apache-2.0
// Batches are numbered through all epochs. Workers take numbers in order, no further than the prefetch beyond what was
// handed out, and leave results in a ring that next() empties in order.
#include "data/loading/loader.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/cpu/cores.h"
#include "core/cpu/signals.h"
#include "core/error.h"
#include "core/profiler.h"
#include "data/loading/balanced_rows.h"
#include "data/loading/batch_maker.h"
#include "data/loading/prefetch_depth.h"
#include "data/loading/quarantine.h"
#include "data/loading/sample_runs.h"
#include "data/loading/signal.h"
#include "data/loading/stuck_watch.h"

namespace hearth::data {
namespace {

// Training comes first where cores are short.
constexpr int worker_niceness = 10;
constexpr int max_workers = 256;

using Clock = std::chrono::steady_clock;
double seconds_between(Clock::time_point began, Clock::time_point ended) {
  return std::chrono::duration<double>(ended - began).count();
}

/// While it lives the thread makes a batch.
class BatchScope {
 public:
  BatchScope(StageClock& clock, std::int64_t batch) : clock_(clock), use_(clock) { clock.begin_batch(batch); }
  ~BatchScope() { clock_.begin_batch(StageClock::none); }
  BatchScope(const BatchScope&) = delete;
  BatchScope& operator=(const BatchScope&) = delete;

 private:
  StageClock& clock_;
  StageClock::Use use_;
};

void become_worker() {
  // Signals are for the program's own threads.
  cpu::block_signals_for_good();
  cpu::use_all_cores();
  // On Linux this is the thread's own priority. It is a courtesy: a refusal changes nothing.
  [[maybe_unused]] const int refused = setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), worker_niceness);
  pthread_setname_np(pthread_self(), "hearth-data");
}

}  // namespace

class Loader::Pipeline : public std::enable_shared_from_this<Pipeline> {
 public:
  Pipeline(DatasetPointer set, Transforms steps, const LoaderOptions& chosen)
      : dataset(std::move(set)), transforms(std::move(steps)), options(chosen) {
    check();
    maker_ = dataset->batches(transforms, options);
    per_epoch = maker_->per_epoch();
    if (options.first_batch != 0) seek(options.first_batch / per_epoch, options.first_batch % per_epoch);
  }
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Each worker has a part in this object, which so outlives one that is left behind.
  void start() {
    if (options.workers == 0) return;
    ring_.resize(static_cast<std::size_t>(ahead_.room()));
    const int wanted = options.workers + (options.shuffle ? 1 : 0);
    threads_.reserve(static_cast<std::size_t>(wanted));
    try {
      for (std::size_t i = 0; i < spaces_.size(); ++i)
        threads_.emplace_back([self = shared_from_this(), i] { self->work(i); });
      if (options.shuffle) threads_.emplace_back([self = shared_from_this()] { self->plan_ahead(); });
    } catch (const std::system_error& error) {
      const std::size_t started = threads_.size();
      stop();
      throw OutOfMemory(join_text("loader: the system starts ", started, " of ", wanted, " worker threads (",
                                  error.code().message(), "); set data.workers to fewer, or 0 for none"));
    } catch (...) {
      stop();
      throw;
    }
  }

  Batch next() {
    const profiler::Scope scope("data.next");
    const bool warm = warming_ == 0;
    if (!warm) --warming_;
    WaitScope waiting(use_);
    waiting.dry = warm && options.workers == 0;
    ++use_.batches;
    if (options.workers == 0) {
      Slot made;
      prepare(
          delivered++, spaces_[0], [] { return false; }, made);
      return hand_out(made);
    }
    std::unique_lock lock(mutex_);
    if (batch_bytes_ > 0) ahead_.adjust(seconds_between(handed_out_, waiting.began), batch_bytes_);
    Slot& slot = slot_of(delivered);
    waiting.dry = warm && !slot.filled;
    count_ready(waiting.dry);
    wait_for(slot, lock);
    Slot taken = std::move(slot);
    slot = {};
    --ready_;
    const bool begins = epoch_of(delivered) != epoch_of(delivered + 1);
    ++delivered;
    lock.unlock();
    number_free_.notify_one();
    if (begins) epoch_begun_.notify_one();
    if (taken.fault) std::rethrow_exception(taken.fault);
    return hand_out(taken);
  }

  /// Ends the workers, and waits for all that are not stuck.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    number_free_.notify_all();
    epoch_begun_.notify_all();
    for (std::size_t i = 0; i < threads_.size(); ++i)
      i >= spaces_.size() || waits_for_end(i) ? threads_[i].join() : threads_[i].detach();
    threads_.clear();
  }

  void on_stuck(std::function<void(const std::string&)> tell) { tell_ = std::move(tell); }

  void seek(std::int64_t epoch, std::int64_t batch) {
    HEARTH_CHECK(IndexError, epoch >= 0 && epoch < (std::int64_t{1} << 32) && batch >= 0 && batch <= per_epoch,
                 "loader: cannot seek to epoch ", epoch, ", batch ", batch, ": an epoch has ", per_epoch, " batches");
    const LoaderPart& part = options.part;
    const std::int64_t piece = (epoch * per_epoch + batch) * part.cuts;
    HEARTH_CHECK(UsageError, piece % part.of == 0, "loader: epoch ", epoch, ", batch ", batch, " is inside of ",
                 part.of, " pieces that belong together");
    {
      const std::lock_guard lock(mutex_);
      delivered = piece / part.of * part.count;
      next_number_ = delivered;
      generation_.fetch_add(1, std::memory_order_relaxed);
      for (Slot& slot : ring_) slot = {};
      ready_ = 0;
      warming_ = options.prefetch;
    }
    number_free_.notify_all();
    epoch_begun_.notify_one();
  }

  LoaderUse take_use() {
    LoaderUse use = std::exchange(use_, {});
    const auto now = Clock::now();
    use.seconds = seconds_between(use_since_, now);
    use_since_ = now;
    use.workers = options.workers;
    StageTimes all;
    for (const Workspace& space : spaces_) all += space.clock.times();
    use.times = all;
    use.times -= times_told_;
    times_told_ = all;
    if (use.batches > 0) use.depth /= static_cast<double>(use.batches);
    return use;
  }

  std::vector<StageClock::Activity> activity() const {
    std::vector<StageClock::Activity> all;
    for (const Workspace& space : spaces_) all.push_back(space.clock.activity());
    return all;
  }

  std::int64_t samples_per_epoch() const { return maker_->samples_per_epoch(); }

  /// The number of the batch that next() returns next, through all epochs.
  std::int64_t next_batch() const { return piece_of(delivered) / options.part.cuts; }

  const DatasetPointer dataset;
  const Transforms transforms;
  const LoaderOptions options;
  std::int64_t per_epoch = 0;
  std::int64_t delivered = 0;  // what next() has returned since the beginning; changed under the mutex

 private:
  struct Slot {
    bool filled = false;
    Batch batch;
    SampleRuns passed;  // bad samples that it passed over
    std::exception_ptr fault;
  };
  /// Its lifetime is waiting.
  struct WaitScope {
    LoaderUse& use;
    bool dry = false;  ///< after the warm-up, with nothing ready
    Clock::time_point began = Clock::now();
    explicit WaitScope(LoaderUse& of) : use(of) {}
    ~WaitScope() {
      const double seconds = seconds_between(began, Clock::now());
      use.wait_seconds += seconds;
      if (dry) use.dry_seconds += seconds;
    }
    WaitScope(const WaitScope&) = delete;
    WaitScope& operator=(const WaitScope&) = delete;
  };
  /// Tells a worker that its batch is no longer wanted.
  struct Cancelled {
    const Pipeline* pipeline;
    std::uint64_t generation;
    bool now() const {
      return pipeline->stopping_.load(std::memory_order_relaxed) ||
             pipeline->generation_.load(std::memory_order_relaxed) != generation;
    }
  };

  void check() {
    HEARTH_CHECK(ConfigError, options.workers >= 0 && options.workers <= max_workers, "loader: ", options.workers,
                 " workers; 0..", max_workers, " are possible");
    HEARTH_CHECK(ConfigError, options.prefetch >= 1 && options.prefetch <= 4096, "loader: prefetch ", options.prefetch,
                 " is outside 1..4096");
    const LoaderPart& part = options.part;
    HEARTH_CHECK(ConfigError,
                 part.cuts >= 1 && part.first >= 0 && part.count >= 1 && part.stride >= 1 &&
                     part.first + (part.count - 1) * part.stride < part.of,
                 "loader: pieces ", part.first, "..", part.first + (part.count - 1) * part.stride, " of ", part.of,
                 ", batches in ", part.cuts, " pieces");
  }

  Slot& slot_of(std::int64_t number) {
    return ring_[static_cast<std::size_t>(number % static_cast<std::int64_t>(ring_.size()))];
  }

  /// What next() finds; `dry`: after the warm-up, nothing.
  void count_ready(bool dry) {
    use_.min_depth = use_.batches == 1 ? ready_ : std::min(use_.min_depth, ready_);
    use_.depth += static_cast<double>(ready_);
    if (dry) ++use_.dry;
  }

  /// Waits for a batch, and watches the workers meanwhile.
  void wait_for(const Slot& slot, std::unique_lock<std::mutex>& lock) {
    const auto is_there = [&] { return slot.filled; };
    if (!watch_.is_on()) return slot_filled_.wait(lock, is_there);
    watch_.begin();
    while (!slot_filled_.wait_for(lock, watch_.interval(), is_there)) {
      for (std::size_t i = 0; i < spaces_.size(); ++i) {
        const StageClock::Activity at = spaces_[i].clock.activity();
        if (watch_.look(i, at) && tell_) tell_(join_text("data: ", stuck_text(i, at)));
        HEARTH_CHECK(DataError, !watch_.is_over(i) || at.batch != next_batch(), dataset->source(), ": ",
                     stuck_text(i, at),
                     ", longer than data.stuck_limit_seconds; look at that sample, or at what it is "
                     "read from, or set another limit");
      }
      watch_.end_look();
    }
  }

  /// "worker 1 has been at sample 17 (cat/10.png) of epoch 0, batch 3, for 60 s: decode".
  std::string stuck_text(std::size_t worker, const StageClock::Activity& at) const {
    std::string name;
    if (at.sample != StageClock::none) name = dataset->sample_name(at.sample);
    return join_text("worker ", worker, " has been at ",
                     at.sample != StageClock::none ? join_text("sample ", at.sample) : std::string("no sample"),
                     name.empty() ? "" : " (" + name + ")", " of epoch ", at.batch / per_epoch, ", batch ",
                     at.batch % per_epoch, ", for ", watch_.seconds(worker), " s: ", name_of(at.stage));
  }

  /// Whether the worker came to its end; false for one that is stuck.
  bool waits_for_end(std::size_t worker) {
    std::unique_lock lock(mutex_);
    watch_.begin();
    while (!worker_ended_.wait_for(lock, watch_.interval(), [&] { return ended_[worker]; })) {
      watch_.look(worker, spaces_[worker].clock.activity());
      watch_.end_look();
      if (watch_.is_over(worker)) return false;
    }
    return true;
  }

  /// What next() returns of a batch that was made.
  Batch hand_out(Slot& made) {
    if (options.quarantine) options.quarantine->deliver(made.passed);
    batch_bytes_ = 0;
    for (const Batch::Named& named : made.batch.tensors())
      batch_bytes_ += static_cast<std::int64_t>(named.tensor.byte_size());
    handed_out_ = Clock::now();
    return std::move(made.batch);
  }

  void work(std::size_t which) {
    become_worker();
    Workspace& space = spaces_[which];
    std::unique_lock lock(mutex_);
    while (true) {
      number_free_.wait(lock, [&] { return stopping_ || next_number_ < delivered + ahead_.now(); });
      if (stopping_) {
        ended_[which] = true;
        worker_ended_.notify_all();
        return;
      }
      const std::int64_t number = next_number_++;
      const Cancelled cancelled{this, generation_.load(std::memory_order_relaxed)};
      lock.unlock();
      Slot result;
      try {
        prepare(
            number, space, [&] { return cancelled.now(); }, result);
      } catch (...) {
        result.fault = std::current_exception();
      }
      result.filled = true;
      lock.lock();
      if (cancelled.now()) continue;
      slot_of(number) = std::move(result);
      ++ready_;
      slot_filled_.notify_all();
    }
  }

  /// Has the plan of the next epoch made while this one is handed out, so that no batch waits for it.
  void plan_ahead() {
    become_worker();
    std::unique_lock lock(mutex_);
    std::int64_t planned = -1;
    while (true) {
      epoch_begun_.wait(lock, [&] { return stopping_ || epoch_of(delivered) + 1 != planned; });
      if (stopping_) return;
      planned = epoch_of(delivered) + 1;
      if (epoch_of(next_number_) >= planned) continue;  // the workers are there already
      lock.unlock();
      try {
        maker_->plan(planned);
      } catch (...) {
        // The worker that needs the plan meets the same fault, and tells it.
      }
      lock.lock();
    }
  }

  std::int64_t epoch_of(std::int64_t number) const { return piece_of(number) / options.part.cuts / per_epoch; }

  /// The piece, through all batches, that the loader gives as its `number`th.
  std::int64_t piece_of(std::int64_t number) const {
    const LoaderPart& part = options.part;
    return number / part.count * part.of + part.first + number % part.count * part.stride;
  }

  /// The rows of a piece: a run of the batch's or, where rows are of different lengths, such that all pieces have about
  /// as many rows and tokens.
  void cut(std::vector<std::int64_t>& samples, std::int64_t which) const {
    const auto cuts = options.part.cuts, count = static_cast<std::int64_t>(samples.size());
    if (cuts == 1) return;
    std::vector<std::int64_t> rows;
    if (maker_->length_of(samples.front()) == 0)
      rows.assign(samples.begin() + count * which / cuts, samples.begin() + count * (which + 1) / cuts);
    else
      for (const std::int64_t row : balanced_rows(*maker_, samples, cuts, which))
        rows.push_back(samples[static_cast<std::size_t>(row)]);
    samples = std::move(rows);
  }

  /// Makes what next() returns as its `number`th, unless it is no longer wanted.
  void prepare(std::int64_t number, Workspace& space, const std::function<bool()>& cancelled, Slot& made) const {
    const std::int64_t piece = piece_of(number), whole = piece / options.part.cuts;
    const BatchScope timed(space.clock, whole);
    Batch& batch = made.batch;
    batch.epoch = whole / per_epoch, batch.index = whole % per_epoch;
    batch.samples = maker_->samples_of(batch.epoch, batch.index);
    cut(batch.samples, piece % options.part.cuts);
    if (batch.samples.empty() || cancelled()) return;
    if (options.quarantine && maker_->samples_stay())
      fill_with_readable(space, cancelled, made);
    else
      maker_->fill(batch, space, cancelled);
    if (options.ignored && !cancelled()) ignore_labels(batch, *options.ignored);
  }

  /// Fills a batch; for each bad sample the next one that can be read stands in. Which these are depends on the data
  /// alone, not on what other threads have found so far. Rows before the bad one are not read again.
  void fill_with_readable(Workspace& space, const std::function<bool()>& cancelled, Slot& made) const {
    const std::vector<std::int64_t> planned = made.batch.samples;
    std::vector<std::int64_t> tried;
    space.kept.reset();
    space.passed.clear();
    while (true) {
      std::vector<std::int64_t> samples = planned;
      made.passed.clear();
      for (std::int64_t& sample : samples) sample = options.quarantine->stand_in(sample, made.passed);
      // Another thread may have found another one of them.
      if (space.kept)
        space.kept =
            std::mismatch(samples.begin(), samples.begin() + *space.kept, tried.begin()).first - samples.begin();
      made.batch.samples = tried = std::move(samples);
      made.batch.tokens = made.batch.positions = 0;
      try {
        maker_->fill(made.batch, space, cancelled);
        for (const SampleRuns& row : space.passed)
          for (const auto& [begin, end] : row.runs()) made.passed.add(begin, end);
        return;
      } catch (const Error& error) {
        // The clock tells which sample it was.
        const std::int64_t sample = space.clock.activity().sample;
        const auto row = std::find(tried.begin(), tried.end(), sample);
        if (!is_bad_sample(error) || row == tried.end()) throw;
        options.quarantine->find(sample, error.what());
        space.kept = row - tried.begin();
      }
    }
  }

  std::unique_ptr<BatchMaker> maker_;
  // Of each worker, or of next() where there is none.
  std::vector<Workspace> spaces_ =
      std::vector<Workspace>(static_cast<std::size_t>(std::clamp(options.workers, 1, max_workers)));
  LoaderUse use_;                            // since take_use(), but for what the clocks tell
  std::int64_t warming_ = options.prefetch;  // calls of next() that still belong to the warm-up
  Clock::time_point use_since_ = Clock::now();
  StageTimes times_told_;
  StuckWatch watch_{spaces_.size(), options.stuck_seconds, options.stuck_limit_seconds};
  std::function<void(const std::string&)> tell_;
  std::mutex mutex_;
  Signal number_free_;
  std::condition_variable slot_filled_;
  std::condition_variable worker_ended_;
  std::vector<bool> ended_ = std::vector<bool>(spaces_.size());
  Signal epoch_begun_;
  std::vector<Slot> ring_;
  PrefetchDepth ahead_{options.prefetch, options.prefetch_seconds};
  std::int64_t batch_bytes_ = 0;  // of the batch handed out last
  Clock::time_point handed_out_;
  std::int64_t ready_ = 0;  // slots filled
  std::int64_t next_number_ = 0;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

LoaderUse& LoaderUse::operator+=(const LoaderUse& later) {
  min_depth = batches == 0 ? later.min_depth : later.batches == 0 ? min_depth : std::min(min_depth, later.min_depth);
  const std::int64_t all = batches + later.batches;
  if (all > 0)
    depth = (depth * static_cast<double>(batches) + later.depth * static_cast<double>(later.batches)) /
            static_cast<double>(all);
  batches = all;
  seconds += later.seconds;
  workers = later.workers;
  times += later.times;
  wait_seconds += later.wait_seconds;
  dry_seconds += later.dry_seconds;
  dry += later.dry;
  return *this;
}

Loader::Loader(DatasetPointer dataset, Transforms transforms, LoaderOptions options) {
  HEARTH_CHECK(UsageError, dataset != nullptr, "loader: no dataset");
  pipeline_ = std::make_shared<Pipeline>(std::move(dataset), std::move(transforms), options);
  pipeline_->start();
}

Loader::Loader(DatasetPointer dataset, LoaderOptions options) : Loader(std::move(dataset), no_transforms(), options) {
  HEARTH_CHECK(UsageError, this->dataset().images() == nullptr,
               "loader: images need data::Transforms, which bring them to one size");
}

Loader::~Loader() {
  if (pipeline_) pipeline_->stop();
}
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&& other) noexcept {
  std::swap(pipeline_, other.pipeline_);
  return *this;
}

Batch Loader::next() { return pipeline_->next(); }
void Loader::on_stuck(std::function<void(const std::string&)> tell) { pipeline_->on_stuck(std::move(tell)); }
LoaderUse Loader::take_use() { return pipeline_->take_use(); }
std::vector<StageClock::Activity> Loader::activity() const { return pipeline_->activity(); }
void Loader::seek(std::int64_t epoch, std::int64_t batch) { pipeline_->seek(epoch, batch); }
std::int64_t Loader::batches_per_epoch() const { return pipeline_->per_epoch; }
std::int64_t Loader::samples_per_epoch() const { return pipeline_->samples_per_epoch(); }
std::int64_t Loader::epoch() const { return pipeline_->next_batch() / pipeline_->per_epoch; }
std::int64_t Loader::batch() const { return pipeline_->next_batch() % pipeline_->per_epoch; }
const Dataset& Loader::dataset() const { return *pipeline_->dataset; }
const Transforms& Loader::transforms() const { return pipeline_->transforms; }
const LoaderOptions& Loader::options() const { return pipeline_->options; }

}  // namespace hearth::data
