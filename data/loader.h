// SPDX-License-Identifier: Apache-2.0
// Batches, prepared ahead by worker threads. What a batch holds is a pure function of (seed, epoch, index of batch):
// the number of workers, the depth of prefetching and restarts change nothing but the speed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/dataset.h"
#include "data/stages.h"
#include "data/transforms/transforms.h"

namespace hearth::data {

class Quarantine;

/// The part of a data parallel rank. Every batch is cut by rows into `cuts` pieces, which may be of no rows; of every
/// `of` pieces, numbered through all batches, the loader gives `count` from `first` on.
struct LoaderPart {
  std::int64_t cuts = 1;
  std::int64_t of = 1;
  std::int64_t first = 0;
  std::int64_t count = 1;
};

struct LoaderOptions {
  std::int64_t batch_size = 32;
  int workers = 2;   ///< threads; 0 prepares each batch inside next()
  int prefetch = 4;  ///< batches prepared beyond the one handed out last, across the end of an epoch
  /// Small batches are prepared further ahead: as many as steps take in so long, up to 64 and 1 MiB; 0: they are not.
  double prefetch_seconds = 0;
  bool shuffle = false;
  bool drop_last = false;  ///< leave out an epoch's incomplete last batch
  std::uint64_t seed = 0;
  double mixup_alpha = 0;    ///< above 0: mix pairs of samples, labels become soft
  double cutmix_alpha = 0;   ///< above 0: boxes change places between samples; with both, one of them a batch
  DType dtype = DType::f32;  ///< of the images: f32, bf16, f16, or u8 for pixels that are normalised elsewhere
  LoaderPart part{};
  std::int64_t first_batch = 0;  ///< that next() returns first, counted through all epochs
  /// Of the dataset: samples that cannot be read are noted here, and the next one that can be read stands in for each,
  /// in Batch::samples too. Null: their error is thrown.
  std::shared_ptr<Quarantine> quarantine{};
  /// Seconds for which next() waits on a worker that stays at one sample: then on_stuck() is told; 0: it is not.
  double stuck_seconds = 0;
  /// Such seconds after which next() ends with a DataError instead; 0: never.
  double stuck_limit_seconds = 0;
  /// i64 labels of this number become ignored_label, and Batch::counted says how many others there are.
  std::optional<std::int64_t> ignored{};
};

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
