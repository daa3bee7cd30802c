// SPDX-License-Identifier: Apache-2.0
// Batches, prepared ahead by worker threads. What a batch holds is a pure function of (seed, epoch, index of batch):
// the number of workers, the depth of prefetching and restarts change nothing but the speed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor.h"
#include "data/dataset.h"
#include "data/transforms/transforms.h"

namespace hearth::data {

struct LoaderOptions {
  std::int64_t batch_size = 32;
  int workers = 2;   ///< threads; 0 prepares each batch inside next()
  int prefetch = 4;  ///< batches prepared beyond the one handed out last, across the end of an epoch
  bool shuffle = false;
  bool drop_last = false;  ///< leave out an epoch's incomplete last batch
  std::uint64_t seed = 0;
  double mixup_alpha = 0;    ///< above 0: mix pairs of samples, labels become soft
  double cutmix_alpha = 0;   ///< above 0: boxes change places between samples; with both, one of them a batch
  DType dtype = DType::f32;  ///< of the images: f32, bf16, f16, or u8 for pixels that are normalised elsewhere
};

/// Labels of places that do not count: padding, and what is not to be guessed.
constexpr std::int64_t ignored_label = -100;

/// Images have `images`; texts have `input`, or `source` and `target`.
struct Batch {
  Tensor images{};  ///< [N, H, W, C]
  /// i64 [N]; f32 [N, classes] where samples are mixed; of texts i64 [N, T], ignored_label where a place does not
  /// count.
  Tensor labels{};
  Tensor input{};   ///< ids of texts, i32 [N, T]
  Tensor source{};  ///< ids of what is to be translated, i32 [N, S], padded
  Tensor target{};  ///< ids of the translation so far, i32 [N, T], padded: `labels` one place later
  /// What is still to be done to images of u8 after their normalisation, as normalize_images() of ops takes it: the box
  /// of each that becomes 0, i32 [N, 4], and how pairs are mixed, f32 [5]: share and box. Absent where there is nothing
  /// to do.
  Tensor erased{};
  Tensor share{};
  std::int64_t counted = -1;  ///< labels that count in the mean of the losses; -1: all
  std::int64_t tokens = 0;    ///< ids of texts that are no padding, source and target together
  std::int64_t places = 0;    ///< ids of texts with padding
  std::int64_t epoch = 0;
  std::int64_t index = 0;               ///< within the epoch
  std::vector<std::int64_t> samples{};  ///< index of each sample in the set
  double lambda = 1;                    ///< weight of a sample's own label where samples are mixed
  std::int64_t size() const { return static_cast<std::int64_t>(samples.size()); }
  std::int64_t rows() const { return labels.dim(0); }
  /// Labels that count in the mean: images, or ids to be predicted.
  std::int64_t count() const { return counted >= 0 ? counted : rows(); }
};

class HEARTH_API Loader {
 public:
  /// ConfigError for options out of range, DataError if an epoch would have no batch.
  Loader(DatasetPointer dataset, Transforms transforms, LoaderOptions options);
  /// Stops the workers, in the middle of a batch if need be, and waits for them.
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  /// The next batch; epochs follow one another without end. An exception met while preparing a batch is thrown by the
  /// call that would have returned it; the call after that goes on with the next batch.
  Batch next();
  /// Makes next() continue with this batch. Costs nothing but the batches that were already prepared.
  /// IndexError for a batch the epoch does not have.
  void seek(std::int64_t epoch, std::int64_t batch);

  std::int64_t batches_per_epoch() const;
  /// Samples an epoch delivers.
  std::int64_t samples_per_epoch() const;
  /// Epoch and index of the batch that next() returns next.
  std::int64_t epoch() const;
  std::int64_t batch() const;
  const Dataset& dataset() const;
  const Transforms& transforms() const;
  const LoaderOptions& options() const;

 private:
  class Pipeline;
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace hearth::data
