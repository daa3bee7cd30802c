// SPDX-License-Identifier: Apache-2.0
// Batches are numbered through all epochs. Workers take numbers in order, no further than `prefetch` beyond what was
// handed out, and leave results in a ring that next() empties in order.
#include "hearth/data/loader.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>

#include "hearth/core/error.h"
#include "hearth/core/profiler.h"
#include "hearth/data/order.h"

namespace hearth::data {
namespace {

// Training comes first where cores are short.
constexpr int worker_niceness = 10;

void become_worker() {
  // Signals are for the program's own threads.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  // On Linux this is the thread's own priority. It is a courtesy: a refusal changes nothing.
  [[maybe_unused]] const int refused = setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), worker_niceness);
  pthread_setname_np(pthread_self(), "hearth-data");
}

/// The order of an epoch, worked out once and shared. Batches in flight touch two epochs at most, or few more.
class EpochOrders {
 public:
  using Order = std::shared_ptr<const std::vector<std::int64_t>>;
  Order of(std::int64_t epoch, std::int64_t size, std::uint64_t seed) {
    const std::lock_guard lock(mutex_);
    for (const auto& [known, order] : kept_) {
      if (known == epoch) return order;
    }
    auto order = std::make_shared<const std::vector<std::int64_t>>(
        shuffled_order(size, seed, static_cast<std::uint64_t>(epoch)));
    kept_[oldest_] = {epoch, order};
    oldest_ = 1 - oldest_;
    return order;
  }

 private:
  std::mutex mutex_;
  std::pair<std::int64_t, Order> kept_[2] = {{-1, nullptr}, {-1, nullptr}};
  int oldest_ = 0;
};

/// Memory one thread reuses from sample to sample.
struct Workspace {
  Image image;
  Image scratch;
};

}  // namespace

class Loader::Pipeline {
 public:
  Pipeline(DatasetPointer set, Transforms steps, const LoaderOptions& chosen)
      : dataset(std::move(set)), transforms(std::move(steps)), options(chosen) {
    check();
    if (options.workers == 0) return;
    ring_.resize(static_cast<std::size_t>(options.prefetch));
    try {
      for (int i = 0; i < options.workers; ++i) workers_.emplace_back([this] { work(); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Pipeline() { stop(); }
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  Batch next() {
    const profiler::Scope scope("data.next");
    if (options.workers == 0) return std::move(*prepare(delivered++, own_space_, nullptr));
    std::unique_lock lock(mutex_);
    Slot& slot = slot_of(delivered);
    slot_filled_.wait(lock, [&] { return slot.filled; });
    Slot taken = std::move(slot);
    slot = {};
    ++delivered;
    lock.unlock();
    number_free_.notify_one();
    if (taken.fault) std::rethrow_exception(taken.fault);
    return std::move(taken.batch);
  }

  void seek(std::int64_t epoch, std::int64_t batch) {
    HEARTH_CHECK(IndexError, epoch >= 0 && epoch < (std::int64_t{1} << 32) && batch >= 0 && batch <= per_epoch,
                 "loader: cannot seek to epoch ", epoch, ", batch ", batch, ": an epoch has ", per_epoch, " batches");
    {
      const std::lock_guard lock(mutex_);
      delivered = epoch * per_epoch + batch;
      next_number_ = delivered;
      generation_.fetch_add(1, std::memory_order_relaxed);
      for (Slot& slot : ring_) slot = {};
    }
    number_free_.notify_all();
  }

  const DatasetPointer dataset;
  const Transforms transforms;
  const LoaderOptions options;
  std::int64_t per_epoch = 0;
  std::int64_t delivered = 0;  // number of the batch next() returns next; changed under the mutex

 private:
  struct Slot {
    bool filled = false;
    Batch batch;
    std::exception_ptr fault;
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
    HEARTH_CHECK(ConfigError, options.batch_size >= 1, "loader: batch_size ", options.batch_size, " is below 1");
    HEARTH_CHECK(ConfigError, options.workers >= 0 && options.workers <= 256, "loader: ", options.workers,
                 " workers; 0..256 are possible");
    HEARTH_CHECK(ConfigError, options.prefetch >= 1 && options.prefetch <= 4096, "loader: prefetch ", options.prefetch,
                 " is outside 1..4096");
    HEARTH_CHECK(ConfigError, options.mixup_alpha >= 0 && options.mixup_alpha <= 1000, "loader: mixup alpha ",
                 options.mixup_alpha, " is outside 0..1000");
    const DType possible[] = {DType::f32, DType::bf16, DType::f16, DType::u8};
    HEARTH_CHECK(DTypeError, std::count(std::begin(possible), std::end(possible), options.dtype) == 1,
                 "loader: images of ", options.dtype, "; f32, bf16, f16 and u8 are possible");
    const std::int64_t size = dataset->size();
    HEARTH_CHECK(DataError, size < (std::int64_t{1} << 32), dataset->source(), ": ", size,
                 " samples; at most 2^32 - 1 can be addressed");
    per_epoch = size / options.batch_size + (!options.drop_last && size % options.batch_size != 0 ? 1 : 0);
    HEARTH_CHECK(DataError, per_epoch > 0, dataset->source(), ": ", size, " samples give no batch of ",
                 options.batch_size, options.drop_last ? " when the incomplete one is dropped" : "");
  }

  Slot& slot_of(std::int64_t number) {
    return ring_[static_cast<std::size_t>(number % static_cast<std::int64_t>(ring_.size()))];
  }

  void work() {
    become_worker();
    Workspace space;
    std::unique_lock lock(mutex_);
    while (true) {
      number_free_.wait(lock, [&] { return stopping_ || next_number_ < delivered + options.prefetch; });
      if (stopping_) return;
      const std::int64_t number = next_number_++;
      const Cancelled cancelled{this, generation_.load(std::memory_order_relaxed)};
      lock.unlock();
      Slot result;
      try {
        std::optional<Batch> batch = prepare(number, space, &cancelled);
        if (batch) result.batch = std::move(*batch);
      } catch (...) {
        result.fault = std::current_exception();
      }
      result.filled = true;
      lock.lock();
      if (cancelled.now()) continue;
      slot_of(number) = std::move(result);
      slot_filled_.notify_all();
    }
  }

  /// The batch with this number, or nothing once it is no longer wanted.
  std::optional<Batch> prepare(std::int64_t number, Workspace& space, const Cancelled* cancelled) {
    Batch batch;
    batch.epoch = number / per_epoch;
    batch.index = number % per_epoch;
    const std::int64_t first = batch.index * options.batch_size;
    const std::int64_t count = std::min(options.batch_size, dataset->size() - first);
    EpochOrders::Order order;
    if (options.shuffle) order = orders_.of(batch.epoch, dataset->size(), options.seed);
    const ImageShape shape = transforms.output_shape();
    batch.images = Tensor::empty({count, shape.height, shape.width, shape.channels}, options.dtype);
    batch.labels = Tensor::empty({count}, DType::i64);
    const bool pixels = options.dtype == DType::u8;
    if (pixels && transforms.erases()) batch.erased = Tensor::empty({count, 4}, DType::i32);
    std::byte* target = batch.images.bytes();
    const std::size_t stride = batch.images.byte_size() / static_cast<std::size_t>(count);
    const auto epoch = static_cast<std::uint64_t>(batch.epoch);
    for (std::int64_t i = 0; i < count; ++i) {
      if (cancelled != nullptr && cancelled->now()) return std::nullopt;
      const std::int64_t sample = order ? (*order)[static_cast<std::size_t>(first + i)] : first + i;
      batch.samples.push_back(sample);
      batch.labels.data<std::int64_t>()[i] = dataset->read(sample, space.image);
      const Random random = random_of(options.seed, Purpose::augment, epoch, static_cast<std::uint32_t>(sample));
      std::byte* const place = target + static_cast<std::size_t>(i) * stride;
      if (!pixels) {
        transforms.apply(space.image, space.scratch, random, options.dtype, place);
        continue;
      }
      const Box box =
          transforms.apply_pixels(space.image, space.scratch, random, reinterpret_cast<std::uint8_t*>(place));
      const std::int32_t sides[] = {box.top, box.left, box.height, box.width};
      if (batch.erased.defined()) std::copy_n(sides, 4, batch.erased.data<std::int32_t>() + 4 * i);
    }
    if (options.mixup_alpha > 0) mix(batch);
    return batch;
  }

  void mix(Batch& batch) const {
    Random random = random_of(options.seed, Purpose::mixup, static_cast<std::uint64_t>(batch.epoch),
                              static_cast<std::uint32_t>(batch.index));
    batch.lambda = draw_symmetric_beta(options.mixup_alpha, random);
    const std::int64_t n = batch.size();
    Tensor soft = Tensor::empty({n, dataset->classes()}, DType::f32);
    const std::int64_t* labels = batch.labels.data<std::int64_t>();
    if (options.dtype == DType::u8) {
      mixup_labels(labels, n, dataset->classes(), batch.lambda, soft.data<float>());
      batch.share = Tensor::full({1}, batch.lambda, DType::f32);
    } else {
      mixup(options.dtype, batch.images.bytes(), labels, n, batch.images.size() / n, dataset->classes(), batch.lambda,
            soft.data<float>());
    }
    batch.labels = soft;
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    number_free_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  EpochOrders orders_;
  Workspace own_space_;
  std::mutex mutex_;
  std::condition_variable number_free_;
  std::condition_variable slot_filled_;
  std::vector<Slot> ring_;
  std::int64_t next_number_ = 0;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

Loader::Loader(DatasetPointer dataset, Transforms transforms, LoaderOptions options) {
  HEARTH_CHECK(UsageError, dataset != nullptr, "loader: no data set");
  pipeline_ = std::make_unique<Pipeline>(std::move(dataset), std::move(transforms), options);
}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

Batch Loader::next() { return pipeline_->next(); }
void Loader::seek(std::int64_t epoch, std::int64_t batch) { pipeline_->seek(epoch, batch); }
std::int64_t Loader::batches_per_epoch() const { return pipeline_->per_epoch; }
std::int64_t Loader::samples_per_epoch() const {
  return std::min(pipeline_->per_epoch * pipeline_->options.batch_size, pipeline_->dataset->size());
}
std::int64_t Loader::epoch() const { return pipeline_->delivered / pipeline_->per_epoch; }
std::int64_t Loader::batch() const { return pipeline_->delivered % pipeline_->per_epoch; }
const Dataset& Loader::dataset() const { return *pipeline_->dataset; }
const Transforms& Loader::transforms() const { return pipeline_->transforms; }
const LoaderOptions& Loader::options() const { return pipeline_->options; }

}  // namespace hearth::data
