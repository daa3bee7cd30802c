// SPDX-License-Identifier: Apache-2.0
// How batches are made of a dataset.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "core/dtype.h"

namespace hearth::data {

class Quarantine;

/// The part of a data parallel rank. Every batch is cut by rows into `cuts` pieces, which may be of no rows; of every
/// `of` pieces, numbered through all batches, the loader gives `count` from `first` on, each `stride` after the one
/// before.
struct LoaderPart {
  std::int64_t cuts = 1;
  std::int64_t of = 1;
  std::int64_t first = 0;
  std::int64_t count = 1;
  std::int64_t stride = 1;
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
  double mixup_alpha = 0;   ///< above 0: mix pairs of samples, labels become soft
  double cutmix_alpha = 0;  ///< above 0: boxes change places between samples; with both, one of them a batch
  /// Of images with boxes: batches before this one, counted through all epochs, have mosaic and mixup.
  std::int64_t mixed_batches = std::numeric_limits<std::int64_t>::max();
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

}  // namespace hearth::data
