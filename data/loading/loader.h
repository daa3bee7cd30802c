// SPDX-License-Identifier: Apache-2.0
// Batches, prepared ahead by worker threads. What a batch holds is a pure function of (seed, epoch, index of batch):
// the number of workers, the depth of prefetching and restarts change nothing but the speed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/dataset.h"
#include "data/images/transforms/transforms.h"
#include "data/loading/loader_options.h"
#include "data/loading/stages.h"

namespace hearth::data {

/// What a loader did in a while. Its first `prefetch` batches after a start and after each seek() count as warm-up.
struct HEARTH_API LoaderUse {
  double seconds = 0;
  int workers = 0;             ///< threads that make batches; 0 where next() does
  StageTimes times{};          ///< of all workers together, or of next()
  std::int64_t batches = 0;    ///< that next() returned
  double wait_seconds = 0;     ///< in which next() waited, or made the batch itself
  double dry_seconds = 0;      ///< the same after the warm-up, where nothing was ready
  std::int64_t dry = 0;        ///< calls of next() after the warm-up that found nothing ready
  double depth = 0;            ///< batches that were ready at a call of next(), on average
  std::int64_t min_depth = 0;  ///< the fewest

  /// With what happened in the while after.
  LoaderUse& operator+=(const LoaderUse& later);
};

class HEARTH_API Loader {
 public:
  /// ConfigError for options out of range, DataError if an epoch would have no batch, errors of seek() for first_batch.
  Loader(DatasetPointer dataset, Transforms transforms, LoaderOptions options);
  /// For datasets that are not of images.
  Loader(DatasetPointer dataset, LoaderOptions options);
  /// Stops the workers, in the middle of a batch if need be, and waits for them; not for one that is stuck for longer
  /// than the options allow, which is left behind with the dataset.
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  /// The next batch; epochs follow one another without end. An exception met while preparing a batch is thrown by the
  /// call that would have returned it; the call after that goes on with the next batch. DataError for more bad samples
  /// than may be, and, with the worker, sample and stage, after stuck_limit_seconds.
  Batch next();
  /// Makes next() continue with this batch. Costs nothing but the batches that were already prepared.
  /// IndexError for a batch the epoch does not have; with a part, UsageError where no `of` pieces begin.
  void seek(std::int64_t epoch, std::int64_t batch);

  /// What is called within next(), once for each sample, with a text about a worker that has been at it for longer than
  /// stuck_seconds.
  void on_stuck(std::function<void(const std::string&)> tell);

  /// What happened since the call before, or the loader's start. Of one thread at a time, as next().
  LoaderUse take_use();
  /// What each worker is at now; from any thread.
  std::vector<StageClock::Activity> activity() const;

  std::int64_t batches_per_epoch() const;
  /// Samples an epoch delivers.
  std::int64_t samples_per_epoch() const;
  /// Epoch and index of the batch of which next() returns the whole, or a piece, next.
  std::int64_t epoch() const;
  std::int64_t batch() const;
  const Dataset& dataset() const;
  const Transforms& transforms() const;
  const LoaderOptions& options() const;

 private:
  class Pipeline;
  std::shared_ptr<Pipeline> pipeline_;  // a worker that is stuck keeps it
};

}  // namespace hearth::data
