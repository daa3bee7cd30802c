// SPDX-License-Identifier: Apache-2.0
// The splits of a dataset with all that a run reads them by.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "data/loading/loader.h"
#include "data/registry.h"

namespace hearth::data {

class Tokenizer;

/// A dataset as a run uses it.
struct HEARTH_API DataSplits {
  DatasetPointer train;
  DatasetPointer valid;  ///< may be null
  DatasetPointer test;   ///< may be null
  Transforms train_transforms;
  Transforms eval_transforms;
  DataOptions options;
  ImageOptions image_options{};  ///< of images
  /// Of train, valid and test: null where a bad sample ends the run, and where there is no such split.
  std::array<std::shared_ptr<Quarantine>, 3> quarantines{};
  std::shared_ptr<ReadCache> cache{};     ///< through which the files are read, or null
  std::optional<std::int64_t> ignored{};  ///< as LoaderOptions has it, of all loaders

  /// That of one of the splits; null where it has none.
  std::shared_ptr<Quarantine> quarantine_of(const DatasetPointer& part) const;
  /// Makes them as the options say.
  void make_quarantines();
  std::int64_t classes() const { return train->classes(); }
  /// Of the model's input.
  ImageShape input_shape() const { return train_transforms.output_shape(); }
  /// Of the sequences that are predicted or classified, then of those that are translated where it is another one; none
  /// where the data are no sequences.
  std::vector<const Tokenizer*> tokenizers() const;
  /// Rows of a batch of the longest where batches are filled up to a number of ids; 0 where a batch has as many samples
  /// as is asked for.
  std::int64_t rows_by_tokens() const;
  /// Batches of an epoch of training, as train_loader() gives them; 0 if there is none.
  std::int64_t train_batches(std::int64_t batch_size) const;
  /// Shuffled batches of the training split, all of `batch_size`; mixed if the configuration says so. `target`: where
  /// they are used; CUDA devices normalise images themselves and get their pixels.
  /// With `part` the pieces of one rank; from `first_batch` on, counted through all epochs. Mosaic and mixup end
  /// before the batch `mixed_batches`, as LoaderOptions has it.
  Loader train_loader(std::int64_t batch_size, std::uint64_t seed, DeviceType target = DeviceType::cpu,
                      const LoaderPart& part = {}, std::int64_t first_batch = 0,
                      std::int64_t mixed_batches = std::numeric_limits<std::int64_t>::max()) const;
  /// Batches of a split in order, the last one as small as it is. `of_rank` as for train_loader().
  Loader eval_loader(const DatasetPointer& part, std::int64_t batch_size, DeviceType target = DeviceType::cpu,
                     const LoaderPart& of_rank = {}) const;
};

/// Opens a set, splits it and sets up its transforms. Where neither the node nor the set says how
/// to normalise, mean and deviation are measured on 10,000 training samples that are spread evenly over the set.
/// DataError or FileError for what the files lack.
HEARTH_API DataSplits make_data(const Datasets::Component& data);
/// The same for the set that a node describes. ConfigError with every fault of the node.
HEARTH_API DataSplits make_data(const Json& node);

}  // namespace hearth::data
