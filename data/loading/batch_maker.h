// SPDX-License-Identifier: Apache-2.0
// What a loader's workers do: each kind of dataset makes its batches in a way of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/images/codecs/image.h"
#include "data/images/codecs/sizing.h"
#include "data/loading/loader_options.h"
#include "data/loading/sample_runs.h"
#include "data/loading/stages.h"

namespace hearth::data {

/// What one thread keeps from sample to sample: memory, and what it is at.
struct Workspace {
  /// Nothing at the first attempt at a batch. One that met a bad sample is followed by another at the same batch, with
  /// another sample in its place: this many of its first rows are as they were then, and need not be read again.
  std::optional<std::int64_t> kept{};
  std::vector<TensorSample> samples{};  ///< of those rows, what the batch does not have yet
  Image decoded{};
  Region region{};
  Image image{};
  Image scratch{};
  Image partner{};  ///< what is blended into `image`
  /// Of each row that takes in more than its own sample, the bad ones that the maker has passed over.
  std::vector<SampleRuns> passed{};
  StageClock clock{};
};

/// Batches whose rows are sorted by length in the epochs of sequences: enough that rows meet their like, few enough
/// that chance stays.
inline constexpr std::int64_t batches_sorted = 16;

inline std::int64_t rounded_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Makes batches by their number: a pure function of (epoch, index), called by several threads at once.
class BatchMaker {
 public:
  virtual ~BatchMaker() = default;
  /// Batches of every epoch.
  virtual std::int64_t per_epoch() const = 0;
  /// Samples of every epoch.
  virtual std::int64_t samples_per_epoch() const = 0;
  /// Works out what the batches of an epoch have in common, ahead of their time and beside other calls: samples_of()
  /// finds it done.
  virtual void plan(std::int64_t) const {}
  /// Batches of so many epochs are made side by side; before the first one.
  virtual void keep_epochs(std::int64_t) {}
  /// The samples of a batch, row by row.
  virtual std::vector<std::int64_t> samples_of(std::int64_t epoch, std::int64_t index) const = 0;
  /// Whether a sample is the same in every epoch, so that one that is bad stays bad.
  virtual bool samples_stay() const { return true; }
  /// Tokens of a sample; 0 where all samples take equally long.
  virtual std::int64_t length_of(std::int64_t) const { return 0; }
  /// Makes the tensors of a batch whose samples, at least one, epoch and index are set; false once `cancelled()`, which
  /// is asked now and then. The clock, which is at Stage::assemble, is told of each sample and stage. Of an attempt
  /// that follows another one (Workspace::kept) the batch has the tensors that were there when that one ended.
  virtual bool fill(Batch& batch, Workspace& space, const std::function<bool()>& cancelled) const = 0;
};

/// What is worked out once an epoch and shared. Batches in flight touch two epochs, unless keep() says more; of others
/// the earliest is dropped.
template <class Value>
class ByEpoch {
 public:
  using Pointer = std::shared_ptr<const Value>;
  /// The value of an epoch; `make()` is called where it is not at hand. Who wants another epoch's does not wait for it.
  template <class Make>
  Pointer of(std::int64_t epoch, Make&& make) const {
    const std::shared_ptr<Kept> kept = kept_of(epoch);
    const std::lock_guard lock(kept->mutex);
    if (!kept->value) kept->value = std::make_shared<const Value>(make());
    return kept->value;
  }
  void keep(std::int64_t epochs) { most_ = static_cast<std::size_t>(epochs); }

 private:
  struct Kept {
    std::mutex mutex;  // of what follows
    Pointer value;
  };
  std::shared_ptr<Kept> kept_of(std::int64_t epoch) const {
    const std::lock_guard lock(mutex_);
    if (const auto found = kept_.find(epoch); found != kept_.end()) return found->second;
    if (kept_.size() >= most_) kept_.erase(kept_.begin()->first < epoch ? kept_.begin() : std::prev(kept_.end()));
    return kept_[epoch] = std::make_shared<Kept>();
  }

  std::size_t most_ = 2;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, std::shared_ptr<Kept>> kept_;
};

/// Batches of equally many samples, in order or shuffled anew in each epoch.
class OrderedBatches : public BatchMaker {
 public:
  std::int64_t per_epoch() const override { return per_epoch_; }
  std::int64_t samples_per_epoch() const override { return std::min(per_epoch_ * options_.batch_size, size_); }
  void plan(std::int64_t epoch) const override;
  void keep_epochs(std::int64_t epochs) override { orders_.keep(epochs); }
  std::vector<std::int64_t> samples_of(std::int64_t epoch, std::int64_t index) const override;

 protected:
  /// `what` names the samples, for messages. ConfigError for a batch size below 1; DataError where there is no batch.
  OrderedBatches(std::int64_t size, const LoaderOptions& options, const std::string& source, const char* what);
  const LoaderOptions& options() const { return options_; }
  /// The order of a shuffled epoch: of each sample once.
  virtual std::vector<std::int64_t> epoch_order(std::uint64_t epoch) const;

 private:
  using Orders = ByEpoch<std::vector<std::int64_t>>;
  Orders::Pointer order_of(std::int64_t epoch) const;

  const LoaderOptions& options_;
  std::int64_t size_;
  std::int64_t per_epoch_;
  Orders orders_;
};

}  // namespace hearth::data
