// SPDX-License-Identifier: Apache-2.0
// Datasets by name, for run configurations:
//   "data": {"type": "fashion_mnist", "workers": 2, "augment": {"padded_crop": 2, "flip": true, "mixup": 0.2}}
// A program adds its own set before it parses a configuration:
//
//   struct SignsOptions : data::DataOptions { std::string path; };
//   void describe(Fields<SignsOptions>& f) { data::describe_common(f); f.text("path", &SignsOptions::path, "Folder.");
//   } data::add<SignsOptions>("signs", [](const SignsOptions& o) { return data::Splits{...}; }, "Road signs.");
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/config/config.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/quarantine.h"
#include "data/read_cache.h"
#include "data/transforms/transforms.h"

namespace hearth::data {

class Tokenizer;

/// "augment": sizing and augmentation. transform_options() puts together what is spelled otherwise here.
struct AugmentOptions : TransformOptions {
  std::array<double, 2> scale{0.08, 1.0};        ///< of crop
  std::array<double, 2> ratio{0.75, 4.0 / 3.0};  ///< of crop
  double erasing_probability = 0;
  double mixup = 0;
  double cutmix = 0;
};

/// What every dataset's node may say.
struct DataOptions {
  AugmentOptions augment{};
  ChannelStatistics normalize{};
  double valid_fraction = 0;
  std::uint64_t split_seed = 0;
  int workers = 2;
  int prefetch = 4;
  BadSampleOptions bad_samples{};
  CacheOptions cache{};
  double stuck_seconds = 60;
  double stuck_limit_seconds = 1800;
};

HEARTH_API void describe(Fields<ColorJitter>& fields);
HEARTH_API void describe(Fields<RandAugment>& fields);
HEARTH_API void describe(Fields<AugmentOptions>& fields);
HEARTH_API void describe(Fields<ChannelStatistics>& fields);
HEARTH_API void describe(Fields<BadSampleOptions>& fields);
HEARTH_API void describe(Fields<CacheOptions>& fields);

/// What both say of a model's input.
HEARTH_API TransformOptions transform_options(const AugmentOptions& augment, const ChannelStatistics& normalize);

/// The fields of DataOptions on how samples are read.
template <std::derived_from<DataOptions> T>
void describe_reading(Fields<T>& fields) {
  fields.integer("workers", &DataOptions::workers, {.min = 0, .max = 256},
                 "Threads that prepare batches; 0 prepares them in the training thread.");
  fields.integer("prefetch", &DataOptions::prefetch, {.min = 1, .max = 4096},
                 "Batches prepared ahead; small ones further, as many as steps take in 0.1 s, up to 64 and 1 MiB.");
  fields
      .object("bad_samples", &DataOptions::bad_samples,
              "What becomes of samples that cannot be read; \"skip\" stands for {\"policy\": \"skip\"}.")
      .shorthand("policy");
  fields.object("cache", &DataOptions::cache, "What was read of a slow source is kept in memory and on a local disk.");
  fields.number("stuck_seconds", &DataOptions::stuck_seconds, {.min = 0},
                "When a run waits for a worker that has been at one sample for so long, a warning names the sample; 0: "
                "none.");
  fields.number("stuck_limit_seconds", &DataOptions::stuck_limit_seconds, {.min = 0},
                "After so long the run ends with an error that names the sample; 0: it waits for ever.");
}

/// The fields of DataOptions, for the options of a set of one's own.
template <std::derived_from<DataOptions> T>
void describe_common(Fields<T>& fields) {
  fields.object("augment", &DataOptions::augment, "Size of the images and random changes in training.");
  fields.object("normalize", &DataOptions::normalize, "Inputs are (pixel / 255 - mean) / std.");
  fields.number("valid_fraction", &DataOptions::valid_fraction, {.min = 0, .below = 1},
                "Share of each class of the training split set aside as `valid`, where the set has no such part.");
  fields.integer("split_seed", &DataOptions::split_seed, {.min = 0}, "Seed of every split drawn here.");
  describe_reading(fields);
}

/// A dataset as a run uses it.
struct HEARTH_API DataSplits {
  DatasetPointer train;
  DatasetPointer valid;  ///< may be null
  DatasetPointer test;   ///< may be null
  Transforms train_transforms;
  Transforms eval_transforms;
  DataOptions options;
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
  /// With `part` the pieces of one rank; from `first_batch` on, counted through all epochs.
  Loader train_loader(std::int64_t batch_size, std::uint64_t seed, DeviceType target = DeviceType::cpu,
                      const LoaderPart& part = {}, std::int64_t first_batch = 0) const;
  /// Batches of a split in order, the last one as small as it is. `of_rank` as for train_loader().
  Loader eval_loader(const DatasetPointer& part, std::int64_t batch_size, DeviceType target = DeviceType::cpu,
                     const LoaderPart& of_rank = {}) const;
};

/// A set opened by its type's factory, with the options common to all.
struct OpenedData {
  Splits splits;
  DataOptions options;
};

/// Whether a dataset is to be opened, or only its options are wanted.
enum class Opening : std::uint8_t { all, options_only };

using Datasets = Registry<OpenedData(Opening)>;
/// "digits", "fashion_mnist", "idx", "cifar10", "cifar100", "image_folder", "records", "webdataset", "tfrecord",
/// "synthetic", "csv", "arrays", "text", "labelled_text", "parallel_text", "mixture", and what the program adds.
HEARTH_API Datasets& datasets();

/// Adds a dataset.
template <std::derived_from<DataOptions> Options>
void add(const std::string& name, std::function<Splits(const Options&)> open,
         const std::string& doc = "Added by the program.") {
  datasets().add<Options>(name, doc, [open = std::move(open)](const Options& options, Opening opening) -> OpenedData {
    return {opening == Opening::all ? open(options) : Splits{}, options};
  });
}

/// Opens a set, splits it and sets up its transforms. Where neither the node nor the set says how
/// to normalise, mean and deviation are measured on 10,000 training samples that are spread evenly over the set.
/// DataError or FileError for what the files lack.
HEARTH_API DataSplits make_data(const Datasets::Component& data);
/// The same for the set that a node describes. ConfigError with every fault of the node.
HEARTH_API DataSplits make_data(const Json& node);

}  // namespace hearth::data
