// SPDX-License-Identifier: Apache-2.0
#include "data/described.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "data/boxes/box_dataset.h"
#include "data/formats/cifar.h"
#include "data/formats/idx.h"
#include "data/formats/image_folder.h"
#include "data/formats/records.h"
#include "data/formats/shards.h"
#include "data/images/conform.h"
#include "data/masks/mask_data.h"
#include "data/masks/mask_dataset.h"
#include "data/source/source.h"
#include "data/table/table_data.h"
#include "data/text/labelled.h"
#include "data/text/text_data.h"

namespace hearth::data {
namespace {

const std::string& not_opened() {
  static const std::string text = "the data of the training, which is not opened";
  return text;
}

class DescribedImages : public ImageDataset {
 public:
  explicit DescribedImages(const DataFacts& facts)
      : shape_(facts.image), shrinks_to_(facts.shrink_to), classes_(facts.classes) {}
  std::int64_t size() const override { return 0; }
  ImageShape image_shape() const override { return shape_; }
  const std::vector<std::string>& class_names() const override { return classes_; }
  std::int64_t label(std::int64_t index) const override { return check_index(index), 0; }
  std::int64_t read(std::int64_t index, Image&) const override { return check_index(index), 0; }
  int shrinks_to() const override { return shrinks_to_; }
  const std::string& source() const override { return not_opened(); }

 private:
  ImageShape shape_;
  int shrinks_to_;
  std::vector<std::string> classes_;
};

/// `Base` is TokenDataset or PairDataset.
template <class Base>
class DescribedText : public Base {
 public:
  explicit DescribedText(const DataFacts& facts) : Base(facts.tokenizer, not_opened()), longest_(facts.length) {}
  std::int64_t size() const override { return 0; }
  std::int64_t longest() const override { return longest_; }
  std::int64_t predicted_tokens() const override { return 0; }
  std::int64_t characters() const override { return 0; }
  void verify() const override {}
  std::unique_ptr<BatchMaker> batches(const Transforms&, const LoaderOptions&) const override {
    throw DataError(not_opened() + ": has no batch");
  }

 private:
  std::int64_t longest_;
};

class DescribedPairs : public DescribedText<PairDataset> {
 public:
  explicit DescribedPairs(const DataFacts& facts) : DescribedText(facts), source_tokenizer_(facts.source_tokenizer) {
    HEARTH_CHECK(DataError, source_tokenizer_ != nullptr, "data of kind ", facts.kind, " without a source tokenizer");
  }
  const Tokenizer& source_tokenizer() const override { return *source_tokenizer_; }
  std::vector<std::int32_t> target_ids(std::int64_t sample) const override { return check_index(sample), Ids(); }
  std::vector<std::int32_t> source_ids(std::int64_t sample) const override { return check_index(sample), Ids(); }

 private:
  using Ids = std::vector<std::int32_t>;
  TokenizerPointer source_tokenizer_;
};

std::shared_ptr<const MaskDataset> masks_of(const Datasets::Component& data, MaskedFiles files) {
  const auto* const options = data.options<MaskData>();
  HEARTH_CHECK(DataError, options != nullptr, "data of kind masks, and a configuration of ", data.type());
  return std::make_shared<MaskDataset>(std::move(files), std::make_shared<const MaskClasses>(*options),
                                       options->decode_mb << 20);
}

DatasetPointer described_set(const Datasets::Component& data, const DataFacts& facts) {
  if (facts.kind == "masks") return masks_of(data, {.source = not_opened()});
  if (facts.kind == "boxes")
    return std::make_shared<BoxDataset>(
        AnnotatedImages{.source = not_opened(), .class_names = facts.classes, .category_ids = facts.category_ids},
        default_decode_bytes);
  if (facts.kind == "images") return std::make_shared<DescribedImages>(facts);
  if (facts.kind == "table") return std::make_shared<TableDataset>(not_opened(), facts.table, RawRows{});
  HEARTH_CHECK(DataError, facts.tokenizer != nullptr, "data of kind ", facts.kind, " without a tokenizer");
  if (facts.kind == "parallel_text") return std::make_shared<DescribedPairs>(facts);
  if (facts.kind != "labelled_text") return std::make_shared<DescribedText<TokenDataset>>(facts);
  const Tokens::Meaning meaning{facts.tokenizer->size(), 0, facts.tokenizer->digest()};
  return std::make_shared<LabelledText>(
      facts.tokenizer,
      std::make_shared<Tokens>(std::vector<std::int32_t>{}, std::vector<std::uint64_t>{}, meaning, not_opened()),
      std::vector<std::int64_t>{}, facts.classes, LabelledOptions{.length = facts.length});
}

/// Images of another set in the size and channels of those that a model was trained on.
class Conformed : public ImageDataset {
 public:
  Conformed(ImageDatasetPointer images, ImageDatasetPointer like)
      : images_(std::move(images)), like_(std::move(like)) {}
  std::int64_t size() const override { return images_->size(); }
  ImageShape image_shape() const override { return like_->image_shape(); }
  const std::vector<std::string>& class_names() const override { return like_->class_names(); }
  std::int64_t label(std::int64_t index) const override { return images_->label(index); }
  std::int64_t read(std::int64_t index, Image& image) const override { return read_from(index, image); }
  std::optional<std::int64_t> try_read(std::int64_t index, Image& image) const override {
    return read_conformed(*images_, index, *like_, image);
  }
  std::optional<std::int64_t> try_read_region(std::int64_t index, const ChooseSizing& choose, Image& image,
                                              Region& region) const override {
    return read_conformed(*images_, index, *like_, choose, image, region);
  }
  std::string fault_of(std::int64_t index) const override { return images_->fault_of(index); }
  std::string sample_name(std::int64_t index) const override { return images_->sample_name(index); }
  void identify(std::int64_t index, Sha256& digest) const override { images_->identify(index, digest); }
  void read_ahead(std::span<const std::int64_t> indices) const override { images_->read_ahead(indices); }
  int shrinks_to() const override { return like_->shrinks_to(); }
  Warnings warnings() const override { return images_->warnings(); }
  Warnings unreadable() const override { return images_->unreadable(); }
  const std::string& source() const override { return images_->source(); }

 private:
  ImageDatasetPointer images_;
  ImageDatasetPointer like_;
};

/// The test files of the training's own format in a folder; null where the format has none, or they are not there.
ImageDatasetPointer own_format(const Datasets::Component& data, const std::string& path,
                               const std::vector<std::string>& classes) {
  const auto holds = [&](const std::string& name) {
    return find_source(name_in(path, name)) || find_source(name_in(path, name + ".gz"));
  };
  const std::string& type = data.type();
  if (type == "cifar10" && holds("test_batch.bin")) return cifar10_test(path);
  if (const auto* cifar = data.options<Cifar100Data>(); cifar != nullptr && holds("test.bin"))
    return cifar100_test(path, cifar->labels);
  if ((type == "idx" || type == "fashion_mnist") && holds("t10k-images-idx3-ubyte")) return idx_test(path, classes);
  return nullptr;
}

/// Classes may be missing among images to be evaluated on.
ImageDatasetPointer class_folders(const Datasets::Component& data, const std::string& path,
                                  const std::vector<std::string>& classes) {
  ImageFolderOptions options = folder_options(data);
  options.empty_classes = OnFault::skip;
  return image_folder(path, options, classes);
}

ImageSplits images_at(const Datasets::Component& data, const std::string& path,
                      const std::vector<std::string>& classes) {
  if (holds_records(path)) return records(path);
  if (const std::string container = type_of_shards(path); !container.empty()) {
    ShardOptions shards;
    shards.path = path;
    return container == "tfrecord" ? tfrecord({shards}) : webdataset({shards});
  }
  ImageSplits found;
  found.test = own_format(data, path, classes);
  if (found.test) return found;
  const auto folder = [&](const std::string& name) -> ImageDatasetPointer {
    const std::string below = name_in(path, name);
    const std::optional<SourceEntry> there = find_source(below);
    return there && there->kind == SourceEntry::Kind::folder ? class_folders(data, below, classes) : nullptr;
  };
  const auto is_class = [&](const char* name) {
    return std::find(classes.begin(), classes.end(), name) != classes.end();
  };
  for (const char* name : {"val", "valid", "validation"})
    if (!found.valid && !is_class(name)) found.valid = folder(name);
  if (!is_class("test")) found.test = folder("test");
  if (!found.valid && !found.test) found.test = class_folders(data, path, classes);
  return found;
}

}  // namespace

std::string classes_differ(const std::vector<std::string>& before, const std::vector<std::string>& now) {
  const auto numbered = [](const std::vector<std::string>& names) {
    return names == numbered_classes(static_cast<std::int64_t>(names.size()));
  };
  if (before == now || (before.size() == now.size() && (numbered(before) || numbered(now)))) return "";
  const auto [a, b] = std::mismatch(before.begin(), before.end(), now.begin(), now.end());
  const auto name = [](const auto& at, const auto& all) { return at == all.end() ? "no class" : "\"" + *at + "\""; };
  return join_text("label ", a - before.begin(), " was ", name(a, before), " of ", before.size(),
                   " classes in training and is ", name(b, now), " of ", now.size(),
                   " in the data now; bring back the names and the order of the classes");
}

DataFacts facts_of(const DataSplits& data) {
  DataFacts facts;
  const TokenDataset* const sequences = data.train->tokens();
  if (const ImageDataset* const images = data.train->images()) {
    facts.classes = images->class_names();
    facts.image = images->image_shape();
    facts.shrink_to = images->shrinks_to();
    facts.normalize = data.image_options.normalize;
    return facts;
  }
  if (const BoxDataset* const boxes = data.train->boxes()) {
    facts.kind = "boxes";
    facts.classes = boxes->class_names();
    facts.category_ids = boxes->annotated().category_ids;
    facts.image = boxes->image_shape();
    facts.normalize = data.image_options.normalize;
    return facts;
  }
  if (const MaskDataset* const masks = data.train->masks()) {
    facts.kind = "masks";
    facts.classes = masks->class_names();
    facts.image = masks->image_shape();
    facts.normalize = data.image_options.normalize;
    return facts;
  }
  if (sequences == nullptr) {
    const auto* const table = dynamic_cast<const TableDataset*>(data.train.get());
    facts.kind = table != nullptr ? "table" : "samples";
    facts.classes = data.train->class_names();
    if (table != nullptr) facts.table = table->shared_facts();
    return facts;
  }
  facts.kind = sequences->pairs() != nullptr ? "parallel_text" : "text";
  facts.length = sequences->longest();
  if (const LabelledText* const labelled = sequences->labelled()) {
    facts.kind = "labelled_text";
    facts.classes = sequences->class_names();
    facts.length = labelled->options().length;
  }
  return facts;
}

DataSplits described_data(const Datasets::Component& data, const DataFacts& facts) {
  const OpenedData opened = data.make(Opening::options_only);
  const DatasetPointer set = described_set(data, facts);
  DataSplits described{set, nullptr, nullptr, no_transforms(), no_transforms(), opened.options};
  if (!facts.has_pixels()) return described;
  described.image_options = opened.image_options.value_or(ImageOptions{});
  ChannelStatistics& normalize = described.image_options.normalize;
  if (normalize.mean.empty()) normalize.mean = facts.normalize.mean;
  if (normalize.std.empty()) normalize.std = facts.normalize.std;
  const TransformOptions transforms = transform_options(described.image_options);
  described.train_transforms = Transforms(facts.image, transforms, true);
  described.eval_transforms = Transforms(facts.image, transforms, false);
  return described;
}

DataSplits data_as_trained(const Datasets::Component& data, const DataFacts& facts) {
  if (facts.table == nullptr) return make_data(data);
  DataSplits made = described_data(data, facts);
  const Splits splits = table_splits(data, facts.table);
  made.train = splits.train, made.valid = splits.valid, made.test = splits.test;
  return made;
}

DataSplits evaluation_data(const Datasets::Component& configured, const DataFacts& facts, const std::string& path) {
  HEARTH_CHECK(FileError, find_source(path).has_value(), path,
               ": is not there; give a folder or file of data to evaluate on");
  HEARTH_CHECK(UsageError, facts.kind != "samples", path,
               ": data of the program's own is opened as the configuration says; change it by --set data.FIELD=...");
  HEARTH_CHECK(UsageError, facts.kind != "boxes", path,
               ": images with boxes are opened as the configuration says; name others by --set data.test=... (coco) or "
               "data.path=... (yolo, voc)");
  DataSplits data = described_data(configured, facts);
  if (facts.kind == "table") {
    const TablePointer rows = open_rows(configured, facts.table, path, true);
    HEARTH_CHECK(DataError, rows->has_targets(), path, ": has no target \"", facts.table->target,
                 "\", which an evaluation compares with");
    data.test = rows;
    return data;
  }
  if (facts.kind == "masks") {
    const MaskSplits masks = masks_at(*configured.options<MaskData>(), path);
    data.valid = masks.valid;
    data.test = masks.train != nullptr && masks.valid == nullptr && masks.test == nullptr ? masks.train : masks.test;
    data.make_quarantines();
    return data;
  }
  if (facts.kind != "images") {
    const Splits sequences = text_splits_at(configured, path, {facts.tokenizer, facts.source_tokenizer, facts.classes});
    data.valid = sequences.valid;
    data.test = sequences.test;
    data.make_quarantines();
    return data;
  }
  const ImageSplits images = images_at(configured, path, facts.classes);
  const auto like = std::static_pointer_cast<const ImageDataset>(data.train);
  for (const auto& [from, to] : {std::pair{&images.valid, &data.valid}, {&images.test, &data.test}}) {
    if (*from == nullptr) continue;
    const std::string fault = classes_differ(facts.classes, (*from)->class_names());
    HEARTH_CHECK(DataError, fault.empty(), path, ": ", fault);
    *to = std::make_shared<Conformed>(*from, like);
  }
  data.make_quarantines();
  return data;
}

}  // namespace hearth::data
