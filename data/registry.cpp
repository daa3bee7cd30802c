// SPDX-License-Identifier: Apache-2.0
// The fields of each dataset and what opens it.
#include "data/registry.h"

#include "core/error.h"
#include "core/io/utf8.h"
#include "data/batch_maker.h"
#include "data/formats/cifar.h"
#include "data/formats/digits.h"
#include "data/formats/idx.h"
#include "data/formats/image_folder.h"
#include "data/formats/records.h"
#include "data/formats/shards.h"
#include "data/formats/synthetic.h"
#include "data/table/table_data.h"
#include "data/text/labelled.h"
#include "data/text/mixture.h"
#include "data/text/text_data.h"

namespace hearth::data {
namespace {

struct DigitsData : DataOptions, DigitsOptions {};
void describe(Fields<DigitsData>& fields) {
  describe_common(fields);
  fields.choice("split", &DigitsData::split, {{"shuffled", DigitsSplit::shuffled}, {"ordered", DigitsSplit::ordered}},
                "`ordered` tests on the last samples, which other people wrote: harder.");
  fields.integer("test_size", &DigitsData::test_size, {.min = 1, .max = 1796}, "Samples of the test split.");
}

struct FashionMnistData : DataOptions {
  std::string path;
};
void describe(Fields<FashionMnistData>& fields) {
  describe_common(fields);
  fields.text("path", &FashionMnistData::path,
              "Folder of the four IDX files; empty for where the Debian package dataset-fashion-mnist puts them.");
}

struct IdxData : DataOptions {
  std::string path;
};
void describe(Fields<IdxData>& fields) {
  describe_common(fields);
  fields.text("path", &IdxData::path, "Folder of four IDX files named as MNIST's, plain or gzip.").required();
}

struct Cifar10Data : DataOptions {
  std::string path;
};
void describe(Fields<Cifar10Data>& fields) {
  describe_common(fields);
  fields.text("path", &Cifar10Data::path, "Folder of data_batch_1.bin to data_batch_5.bin and test_batch.bin.")
      .required();
}

}  // namespace

void describe(Fields<Cifar100Data>& fields) {
  describe_common(fields);
  fields.text("path", &Cifar100Data::path, "Folder of train.bin and test.bin.").required();
  fields.choice("labels", &Cifar100Data::labels, {{"fine", CifarLabels::fine}, {"coarse", CifarLabels::coarse}},
                "100 classes, or 20 superclasses.");
}

TransformOptions transform_options(const AugmentOptions& augment, const ChannelStatistics& normalize) {
  TransformOptions options = augment;
  options.crop = {augment.scale[0], augment.scale[1], augment.ratio[0], augment.ratio[1]};
  options.erasing.probability = augment.erasing_probability;
  options.mean = normalize.mean;
  options.std = normalize.std;
  return options;
}

void describe(Fields<ImageFolderData>& fields) {
  describe_common(fields);
  fields.text("path", &ImageFolderData::path, "Folder of class folders, or of train, val and test with class folders.")
      .required();
  fields.number(
      "test_fraction", &ImageFolderData::test_fraction, {.min = 0, .below = 1},
      "Share of each class held out for testing where there is no folder for that, nor for validation: each file "
      "by its name.");
  fields.choice(
      "on_error", &ImageFolderData::on_error, {{"fail", OnFault::fail}, {"skip", OnFault::skip}},
      "`skip` is bad_samples with the policy `skip` and no budget. Of links to nothing too: stop, or leave them "
      "out with a warning.");
  fields.choice("empty_classes", &ImageFolderData::empty_classes, {{"fail", OnFault::fail}, {"skip", OnFault::skip}},
                "Class folders without images: stop, or count a warning.");
  fields.integer("cache_mb", &ImageFolderData::cache_mb, {.min = 0, .max = 1 << 24},
                 "Decoded images kept in memory, in MiB.");
  fields.integer("decode_mb", &ImageFolderData::decode_mb, {.min = 1, .max = 4096},
                 "Memory that decoding one image may take, in MiB, in each thread that decodes; one that needs more is "
                 "broken.");
  fields.integer("shrink_to", &ImageFolderData::shrink_to, {.min = 0, .max = 8192},
                 "Images whose shorter side has more pixels are shrunk to it as soon as they are decoded, so that more "
                 "of them fit in cache_mb and later epochs have less to do; at least the shorter side from which "
                 "evaluation starts. 0 leaves them as they are.");
  fields.rule([](const ImageFolderData& o) -> std::string {
    const int least = evaluated_side(transform_options(o.augment, {}));
    if (o.shrink_to == 0 || o.shrink_to >= least) return "";
    const std::string crop = least == o.augment.image_size ? "" : join_text(" / eval_crop ", o.augment.eval_crop);
    return join_text("shrink_to is ", o.shrink_to, ", and evaluation needs a shorter side of ", least,
                     " pixels (augment.image_size ", o.augment.image_size, crop, "); give at least ", least,
                     ", or 0 to shrink nothing, or a smaller augment.image_size");
  });
}

namespace {

struct RecordsData : DataOptions {
  std::string path;
};
void describe(Fields<RecordsData>& fields) {
  describe_common(fields);
  fields.text("path", &RecordsData::path, "Folder that `hearth data pack` wrote.").required();
}

template <class T>
void describe_shards(Fields<T>& fields, const std::string& example) {
  describe_common(fields);
  fields.text(
      "path", &ShardOptions::path,
      "Folder that `hearth data pack` wrote, or that has shards named train-*, and perhaps valid-* and test-*.");
  fields.text("train", &ShardOptions::train,
              "Files of the training split, from the folder, where they have other names: " + example +
                  ", with {a,b} and, in the last part, * too.");
  fields.text("valid", &ShardOptions::valid, "Those of the validation split, where `train` is given.");
  fields.text("test", &ShardOptions::test, "Those of the test split, where `train` is given.");
  fields.text(
      "classes", &ShardOptions::classes, {},
      "Names by label. [] for those of a packed set, or what the labels of the training split tell: numbers, or "
      "names in the order of their bytes.");
  fields.integer("channels", &ShardOptions::channels, {.min = 1, .max = 3},
                 "3, or 1 for grey images; a packed set says it itself.");
  fields.boolean("stream", &ShardOptions::stream,
                 "Each epoch visits the shards one after the other in random order, and draws from a buffer of the "
                 "samples that came last, so that reading goes forward. false: any order is as likely.");
  fields.integer("shuffle_buffer", &ShardOptions::shuffle_buffer, {.min = 1, .max = 1 << 30},
                 "Samples in that buffer; larger ones mix better.");
  fields.rule([](const T& o) { return o.channels == 2 ? "channels is 1 or 3" : ""; });
}

struct WebdatasetData : DataOptions, WebdatasetOptions {};
void describe(Fields<WebdatasetData>& fields) {
  describe_shards(fields, "train-{000000..000009}.tar");
  fields.text("label", &WebdatasetOptions::label,
              "Ending of the member that holds a sample's label; empty: cls, or else json.");
  fields.text("json_key", &WebdatasetOptions::json_key, "The label's key in a member of JSON.");
}

struct TfRecordData : DataOptions, TfRecordOptions {};
void describe(Fields<TfRecordData>& fields) {
  describe_shards(fields, "train-{00000..00009}-of-00010");
  fields.text("image", &TfRecordOptions::image, "Feature with the image file.");
  fields.text("label", &TfRecordOptions::label, "Feature with the label: an integer, or the name of a class.");
  fields.text("name", &TfRecordOptions::name, "Feature with the sample's name, where there is one.");
}

struct SyntheticData : DataOptions, SyntheticOptions {};
void describe(Fields<SyntheticData>& fields) {
  describe_common(fields);
  fields.integer("train_size", &SyntheticOptions::train_size, {.min = 1, .max = 1e9}, "Training samples.");
  fields.integer("test_size", &SyntheticOptions::test_size, {.min = 1, .max = 1e9}, "Test samples.");
  fields.integer("height", &SyntheticOptions::height, {.min = 1, .max = 8192}, "Height in pixels.");
  fields.integer("width", &SyntheticOptions::width, {.min = 1, .max = 8192}, "Width in pixels.");
  fields.integer("channels", &SyntheticOptions::channels, {.min = 1, .max = 64}, "Channels.");
  fields.integer("classes", &SyntheticOptions::classes, {.min = 1, .max = 100'000}, "Classes.");
  fields.number("noise", &SyntheticOptions::noise, {.min = 0, .max = 1000}, "Deviation of the noise, in grey levels.");
  fields.integer("seed", &SyntheticOptions::seed, {.min = 0}, "Seed of the pixels.");
}

/// `on_error` is the earlier way to say what `bad_samples` says.
ImageFolderData with_one_policy(ImageFolderData options) {
  if (options.bad_samples.policy == BadSamplePolicy::skip) options.on_error = OnFault::skip;
  if (options.on_error == OnFault::skip && options.bad_samples.policy == BadSamplePolicy::fail)
    options.bad_samples = {.policy = BadSamplePolicy::skip, .budget = std::nullopt};
  return options;
}

ImageFolderOptions reading_of(const ImageFolderData& options) {
  ImageFolderOptions folder = options;
  folder.cache_bytes = options.cache_mb << 20;
  folder.decode_bytes = options.decode_mb << 20;
  return folder;
}

ImageSplits open_folder(const ImageFolderData& options) {
  ImageSplits splits = image_folder_splits(options.path, reading_of(options));
  if (!splits.test && !splits.valid && options.test_fraction > 0) {
    HeldOut parts = hold_out(splits.train, options.test_fraction, options.split_seed, "test");
    splits.train = parts.rest;
    splits.test = parts.held_out;
  }
  return splits;
}

template <class Options, class Found>
void add_to(Datasets& registry, const std::string& name, const std::string& doc, Found (*open)(const Options&)) {
  registry.add<Options>(name, doc, [open](const Options& options, Opening opening) -> OpenedData {
    return {opening == Opening::all ? open(options) : Splits{}, options};
  });
}

void add_own(Datasets& registry) {
  add_to<DigitsData, ImageSplits>(registry, "digits", "UCI digits: 1,797 grey images of 8x8, part of the library.",
                                  [](const DigitsData& o) {
                                    return digits({o.split, o.test_size, o.split_seed});
                                  });
  add_to<FashionMnistData, ImageSplits>(registry, "fashion_mnist",
                                        "Fashion-MNIST: 70,000 grey images of 28x28 in 10 classes.",
                                        [](const FashionMnistData& o) { return fashion_mnist(o.path); });
  add_to<IdxData, ImageSplits>(registry, "idx", "Any set in the files of MNIST.",
                               [](const IdxData& o) { return idx_folder(o.path); });
  add_to<Cifar10Data, ImageSplits>(registry, "cifar10", "CIFAR-10, binary version.",
                                   [](const Cifar10Data& o) { return cifar10(o.path); });
  add_to<Cifar100Data, ImageSplits>(registry, "cifar100", "CIFAR-100, binary version.",
                                    [](const Cifar100Data& o) { return cifar100(o.path, o.labels); });
  registry.add<ImageFolderData>("image_folder", "JPEG, PNG, WebP and BMP files in a folder a class.",
                                [](const ImageFolderData& given, Opening opening) -> OpenedData {
                                  const ImageFolderData options = with_one_policy(given);
                                  return {opening == Opening::all ? open_folder(options) : Splits{}, options};
                                });
  add_to<RecordsData, ImageSplits>(registry, "records", "Labelled images in record files, by `hearth data pack`.",
                                   [](const RecordsData& o) { return records(o.path); });
  add_to<WebdatasetData, ImageSplits>(registry, "webdataset",
                                      "Labelled images in tar archives, as WebDataset has them.",
                                      [](const WebdatasetData& o) { return webdataset(o); });
  add_to<TfRecordData, ImageSplits>(registry, "tfrecord", "Labelled images in TFRecord files.",
                                    [](const TfRecordData& o) { return tfrecord(o); });
  add_to<SyntheticData, ImageSplits>(registry, "synthetic",
                                     "Noisy patterns made from numbers, for benchmarks and tests.",
                                     [](const SyntheticData& o) { return synthetic(o); });
  add_to<CsvOptions, Splits>(registry, "csv", "Rows of a table in comma-separated values, for regression and classes.",
                             [](const CsvOptions& o) { return csv_data(o); });
  add_to<ArraysOptions, Splits>(registry, "arrays", "Inputs and targets in NumPy's files, .npy or .npz.",
                                [](const ArraysOptions& o) { return arrays_data(o); });
  add_to(registry, "text", "A token stream in rows of equal length, for language models.", text_data);
  add_to(registry, "labelled_text", "Lines with a label each, for classifiers.", labelled_text_data);
  add_to(registry, "parallel_text", "Lines and their translations.", parallel_text_data);
  add_to(registry, "mixture", "Several token streams as one, each with a weight.", mixture_data);
}

}  // namespace

ImageFolderOptions folder_options(const Datasets::Component& data) {
  const auto* const given = data.options<ImageFolderData>();
  return given != nullptr ? reading_of(with_one_policy(*given)) : ImageFolderOptions{};
}

void describe(Fields<ColorJitter>& fields) {
  fields.number("brightness", &ColorJitter::brightness, {.min = 0, .max = 100}, "Factor in 1 - x to 1 + x.");
  fields.number("contrast", &ColorJitter::contrast, {.min = 0, .max = 100}, "Factor in 1 - x to 1 + x.");
  fields.number("saturation", &ColorJitter::saturation, {.min = 0, .max = 100}, "Factor in 1 - x to 1 + x.");
  fields.number("hue", &ColorJitter::hue, {.min = 0, .max = 0.5}, "Shift in -x to x of a full turn.");
}

void describe(Fields<RandAugment>& fields) {
  fields.integer("ops", &RandAugment::ops, {.min = 0, .max = 100},
                 "Changes drawn for each image, one after another; 2 is usual, 0 turns it off.");
  fields.number("magnitude", &RandAugment::magnitude, {.min = 0, .max = 10}, "Mean strength.");
  fields.number("spread", &RandAugment::spread, {.min = 0, .max = 10}, "Standard deviation of the strength.");
  fields.number("probability", &RandAugment::probability, {.min = 0, .max = 1},
                "That a drawn change is applied; 1 as in the paper.");
  fields.boolean("increasing", &RandAugment::increasing,
                 "Whether all changes grow with the magnitude; else factors of colour run from 0.1 to 1.9, and fewer "
                 "values are inverted and more bits kept.");
}

void describe(Fields<AugmentOptions>& fields) {
  fields.integer("image_size", &AugmentOptions::image_size, {.min = 0, .max = 8192},
                 "Side of the square input, in training and evaluation; 0 keeps the set's size.");
  fields.choice("fit", &AugmentOptions::fit, {{"crop", Fit::crop}, {"pad", Fit::pad}, {"stretch", Fit::stretch}},
                "How an image becomes that square, where no random box of it is taken: the centre is cut out, margins "
                "are added, or its shape changes.");
  fields.choice(
      "interpolation", &AugmentOptions::filter,
      {{"bilinear", ResizeFilter::bilinear}, {"bicubic", ResizeFilter::bicubic}, {"area", ResizeFilter::area}},
      "How pixels are weighed where an image is resized, antialiased: as Pillow's bilinear or bicubic, or the "
      "mean of what a pixel covers.");
  fields.boolean("scaled_decoding", &AugmentOptions::scaled_decoding,
                 "Decode a JPEG at 1/2, 1/4 or 1/8 of its size where at least so many times the rows and columns of "
                 "the input are taken of it; false decodes all pixels that are taken.");
  fields.number("eval_crop", &AugmentOptions::eval_crop, {.above = 0, .max = 1},
                "With random_resized_crop and the fit crop, evaluation takes the centre of a shorter side of "
                "image_size / eval_crop.");
  fields.boolean("random_resized_crop", &AugmentOptions::random_resized_crop,
                 "A box of random area and shape, resized to image_size.");
  fields.number("scale", &AugmentOptions::scale, {.above = 0, .max = 1}, "Least and greatest area of that box.");
  fields.number("ratio", &AugmentOptions::ratio, {.above = 0}, "Least and greatest width / height of that box.");
  fields.integer("padded_crop", &AugmentOptions::padded_crop, {.min = 0, .max = 4096},
                 "Shift by up to so many pixels.");
  fields.boolean("flip", &AugmentOptions::horizontal_flip, "Mirror every other image, left to right.");
  fields.number("fill", &AugmentOptions::fill, {.min = 0, .max = 1},
                "What lies outside an image, from black at 0 to white at 1, for padded_crop, rand_augment and the fit "
                "pad. null: black, and the mean for rand_augment.");
  fields.object("rand_augment", &AugmentOptions::rand_augment,
                "RandAugment: a few changes of shape, colour and sharpness, drawn for each image.");
  fields.object("color_jitter", &AugmentOptions::color_jitter, "Random changes of colour.");
  fields.number("erasing", &AugmentOptions::erasing_probability, {.min = 0, .max = 1},
                "Probability of blanking a random box.");
  fields.number("mixup", &AugmentOptions::mixup, {.min = 0, .max = 1000},
                "Alpha of mixup: pairs of samples are mixed by a share from Beta(alpha, alpha); 0 turns it off.");
  fields.number("cutmix", &AugmentOptions::cutmix, {.min = 0, .max = 1000},
                "Alpha of CutMix: pairs of samples exchange a box, of an area from Beta(alpha, alpha); 0 turns it off. "
                "With mixup beside it, each batch takes one of the two, at even odds.");
  fields.rule([](const AugmentOptions& o) {
    return o.random_resized_crop && o.image_size == 0 ? "random_resized_crop needs image_size" : "";
  });
  fields.rule([](const AugmentOptions& o) {
    return o.fit != Fit::crop && o.image_size == 0 ? "fit needs image_size, the side of the square that it makes" : "";
  });
  fields.rule([](const AugmentOptions& o) {
    return o.scale[0] > o.scale[1] || o.ratio[0] > o.ratio[1] ? "scale and ratio are [least, greatest]" : "";
  });
}

void describe(Fields<BadSampleOptions>& fields) {
  fields.choice(
      "policy", &BadSampleOptions::policy, {{"fail", BadSamplePolicy::fail}, {"skip", BadSamplePolicy::skip}},
      "`fail`: a sample that cannot be read ends the run. `skip`: the next one that can be read stands in for "
      "it, and checkpoints keep which samples were bad.");
  fields.number("budget", &BadSampleOptions::budget, {.min = 0},
                "How many samples of a split may be bad: below 1 a share of them, from 1 on a number, null for any. "
                "With more the run ends and names the first.");
}

void describe(Fields<CacheOptions>& fields) {
  fields.integer("memory_mb", &CacheOptions::memory_mb, {.min = 0, .max = 1 << 24},
                 "What is kept in memory, in MiB, what was used last; of files, not of decoded images.");
  fields.text("disk", &CacheOptions::disk,
              "Directory of a local disk for what does not fit in memory; empty for none.");
  fields.integer("disk_mb", &CacheOptions::disk_mb, {.min = 1, .max = 1 << 30}, "The most it may hold, in MiB.");
}

void describe(Fields<ChannelStatistics>& fields) {
  fields.number("mean", &ChannelStatistics::mean, {.max_items = 64},
                "Of each channel, pixels in 0..1; one value serves all; [] for what is usual for the set.");
  fields.number("std", &ChannelStatistics::std, {.above = 0, .max_items = 64}, "As mean.");
}

Datasets& datasets() {
  static Datasets registry("data", "Datasets.", add_own);
  return registry;
}

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
                                std::int64_t first_batch) const {
  return Loader(train, train_transforms,
                {.batch_size = batch_size,
                 .workers = options.workers,
                 .prefetch = options.prefetch,
                 .prefetch_seconds = 0.1,
                 .shuffle = true,
                 .drop_last = true,
                 .seed = seed,
                 .mixup_alpha = options.augment.mixup,
                 .cutmix_alpha = options.augment.cutmix,
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

}  // namespace

DataSplits make_data(const Json& node) { return make_data(datasets().parse(node)); }

namespace {

DataSplits split_and_transform(OpenedData opened) {
  Splits& splits = opened.splits;
  HEARTH_CHECK(DataError, splits.train != nullptr && splits.train->size() > 0, "data: no training samples");
  require_names_for_json(*splits.train);
  const ImageDataset* const images = splits.train->images();
  if (images == nullptr) {
    const bool is_split = splits.valid != nullptr || splits.train->tokens() != nullptr;
    HEARTH_CHECK(ConfigError, is_split || opened.options.valid_fraction == 0,
                 "/data/valid_fraction: only labelled images are split here; let the dataset give a valid split");
    return {splits.train, splits.valid, splits.test, no_transforms(), no_transforms(), opened.options};
  }
  if (!splits.valid && opened.options.valid_fraction > 0) {
    HeldOut parts = hold_out(std::static_pointer_cast<const ImageDataset>(splits.train), opened.options.valid_fraction,
                             opened.options.split_seed, "valid");
    splits.train = parts.rest;
    splits.valid = parts.held_out;
  }
  ChannelStatistics normalize = opened.options.normalize;
  if (normalize.mean.empty() || normalize.std.empty()) {
    ChannelStatistics usual = splits.statistics;
    if (usual.mean.empty())
      usual = channel_statistics(*splits.train->images(), 10'000, opened.options.bad_samples.policy);
    // A channel that never changes is left at its scale.
    for (double& deviation : usual.std) deviation = deviation > 0 ? deviation : 1.0;
    if (normalize.mean.empty()) normalize.mean = usual.mean;
    if (normalize.std.empty()) normalize.std = usual.std;
  }
  opened.options.normalize = normalize;
  const TransformOptions options = transform_options(opened.options.augment, normalize);
  const ImageShape shape = images->image_shape();
  return {splits.train,  splits.valid, splits.test, Transforms(shape, options, true), Transforms(shape, options, false),
          opened.options};
}

}  // namespace

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
