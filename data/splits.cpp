// SPDX-License-Identifier: Apache-2.0
#include "data/splits.h"

#include <utility>

#include "core/error.h"
#include "core/io/utf8.h"
#include "data/boxes/box_dataset.h"
#include "data/images/channel_statistics.h"
#include "data/images/hold_out.h"
#include "data/loading/batch_maker.h"
#include "data/masks/mask_dataset.h"
#include "data/text/token_set.h"

namespace hearth::data {

std::vector<const Tokenizer*> DataSplits::tokenizers() const {
  const TokenDataset* const sequences = train->tokens();
  if (sequences == nullptr) return {};
  std::vector<const Tokenizer*> found{&sequences->tokenizer()};
  if (const PairDataset* const pairs = sequences->pairs(); pairs != nullptr && &pairs->source_tokenizer() != found[0])
    found.push_back(&pairs->source_tokenizer());
  return found;
}

std::int64_t DataSplits::rows_by_tokens() const {
  return train->tokens() != nullptr ? train->tokens()->rows_by_tokens() : 0;
}

std::int64_t DataSplits::train_batches(std::int64_t batch_size) const {
  if (train->tokens() == nullptr) return train->size() / batch_size;
  const LoaderOptions how{.batch_size = batch_size, .shuffle = true, .drop_last = true};
  return train->batches(train_transforms, how)->per_epoch();
}

namespace {

DType image_type(DeviceType target) { return target == DeviceType::cuda ? DType::u8 : DType::f32; }

}  // namespace

Loader DataSplits::train_loader(std::int64_t batch_size, std::uint64_t seed, DeviceType target, const LoaderPart& part,
                                std::int64_t first_batch, std::int64_t mixed_batches) const {
  return Loader(train, train_transforms,
                {.batch_size = batch_size,
                 .workers = options.workers,
                 .prefetch = options.prefetch,
                 .prefetch_seconds = 0.1,
                 .shuffle = true,
                 .drop_last = true,
                 .seed = seed,
                 .mixup_alpha = image_options.augment.mixup,
                 .cutmix_alpha = image_options.augment.cutmix,
                 .mixed_batches = mixed_batches,
                 .dtype = image_type(target),
                 .part = part,
                 .first_batch = first_batch,
                 .quarantine = quarantine_of(train),
                 .stuck_seconds = options.stuck_seconds,
                 .stuck_limit_seconds = options.stuck_limit_seconds,
                 .ignored = ignored});
}

Loader DataSplits::eval_loader(const DatasetPointer& part, std::int64_t batch_size, DeviceType target,
                               const LoaderPart& of_rank) const {
  return Loader(part, eval_transforms,
                {.batch_size = batch_size,
                 .workers = options.workers,
                 .prefetch = options.prefetch,
                 .prefetch_seconds = 0.1,
                 .dtype = image_type(target),
                 .part = of_rank,
                 .quarantine = quarantine_of(part),
                 .stuck_seconds = options.stuck_seconds,
                 .stuck_limit_seconds = options.stuck_limit_seconds,
                 .ignored = ignored});
}

std::shared_ptr<Quarantine> DataSplits::quarantine_of(const DatasetPointer& part) const {
  const DatasetPointer splits[] = {train, valid, test};
  for (std::size_t i = 0; i < quarantines.size(); ++i)
    if (part != nullptr && splits[i] == part) return quarantines[i];
  return nullptr;
}

void DataSplits::make_quarantines() {
  const std::pair<const char*, DatasetPointer> splits[] = {{"train", train}, {"valid", valid}, {"test", test}};
  for (std::size_t i = 0; i < quarantines.size(); ++i) {
    const auto& [name, split] = splits[i];
    if (split == nullptr || split->size() == 0 || options.bad_samples.policy == BadSamplePolicy::fail) continue;
    quarantines[i] = std::make_shared<Quarantine>(name, split->source(), split->size(),
                                                  limit_of(options.bad_samples, split->size()));
  }
}

namespace {

/// Checkpoints keep the names of classes as JSON, which is UTF-8: another name would come back as a different one.
void require_names_for_json(const Dataset& set) {
  if (set.tokens() != nullptr && set.tokens()->labelled() == nullptr) return;
  const std::vector<std::string>& names = set.class_names();
  for (std::size_t label = 0; label < names.size(); ++label) {
    const std::string& name = names[label];
    const std::size_t at = utf8::find_fault(name);
    HEARTH_CHECK(DataError, at == name.npos, set.source(), ": the name of class ", label, ", \"", name,
                 "\", is not UTF-8 from byte ", at + 1, " on, and checkpoints could not keep it; rename it");
  }
}

/// Sets images of the training split aside by their names.
template <class Set>
void hold_out_valid(const Set& train, const DataOptions& options, Splits& splits) {
  const HeldOutSamples parts = hold_out_by_name(train, options.valid_fraction, options.split_seed, "valid");
  splits.valid = train.subset(parts.held_out);
  splits.train = train.subset(parts.rest);
}

DataSplits split_and_transform(OpenedData opened) {
  Splits& splits = opened.splits;
  HEARTH_CHECK(DataError, splits.train != nullptr && splits.train->size() > 0, "data: no training samples");
  require_names_for_json(*splits.train);
  const ImageDataset* const images = splits.train->images();
  const BoxDataset* const boxes = splits.train->boxes();
  const MaskDataset* const masks = splits.train->masks();
  if (images == nullptr && boxes == nullptr && masks == nullptr) {
    const bool is_split = splits.valid != nullptr || splits.train->tokens() != nullptr;
    HEARTH_CHECK(ConfigError, is_split || opened.options.valid_fraction == 0,
                 "/data/valid_fraction: only labelled images are split here; let the dataset give a valid split");
    return {splits.train, splits.valid, splits.test, no_transforms(), no_transforms(), opened.options};
  }
  const ImageShape shape = images != nullptr  ? images->image_shape()
                           : boxes != nullptr ? boxes->image_shape()
                                              : masks->image_shape();
  const bool draws_valid = !splits.valid && opened.options.valid_fraction > 0;
  if (boxes != nullptr && draws_valid) hold_out_valid(*boxes, opened.options, splits);
  if (masks != nullptr && draws_valid) hold_out_valid(*masks, opened.options, splits);
  if (images != nullptr && draws_valid) {
    HeldOut parts = hold_out(std::static_pointer_cast<const ImageDataset>(splits.train), opened.options.valid_fraction,
                             opened.options.split_seed, "valid");
    splits.train = parts.rest;
    splits.valid = parts.held_out;
  }
  ImageOptions image_options = opened.image_options.value_or(ImageOptions{});
  ChannelStatistics& normalize = image_options.normalize;
  if (normalize.mean.empty() || normalize.std.empty()) {
    ChannelStatistics usual = splits.statistics;
    if (usual.mean.empty() && images != nullptr)
      usual = channel_statistics(*splits.train->images(), 10'000, opened.options.bad_samples.policy);
    // A channel that never changes is left at its scale.
    for (double& deviation : usual.std) deviation = deviation > 0 ? deviation : 1.0;
    if (normalize.mean.empty()) normalize.mean = usual.mean;
    if (normalize.std.empty()) normalize.std = usual.std;
  }
  const TransformOptions options = transform_options(image_options);
  return {
      splits.train,   splits.valid, splits.test, Transforms(shape, options, true), Transforms(shape, options, false),
      opened.options, image_options};
}

}  // namespace

DataSplits make_data(const Json& node) { return make_data(datasets().parse(node)); }

DataSplits make_data(const Datasets::Component& data) {
  const CacheOptions wanted = data.make(Opening::options_only).options.cache;
  const auto cache = wanted.is_used() ? std::make_shared<ReadCache>(wanted) : nullptr;
  const CacheScope scope(cache);
  DataSplits made = split_and_transform(data.make(Opening::all));
  made.cache = cache;
  made.make_quarantines();
  return made;
}

}  // namespace hearth::data
