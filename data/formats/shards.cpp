// SPDX-License-Identifier: Apache-2.0
// Opening a set of shards: all headers first, then the labels, whose classes the training split tells.
#include "data/formats/shards.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_set>

#include "core/cpu/parallel.h"
#include "core/error.h"
#include "core/io/checksum.h"
#include "data/class_names.h"
#include "data/images/channel_statistics.h"
#include "data/images/codecs/decode.h"
#include "data/images/conform.h"
#include "data/loading/order.h"
#include "data/source/file_opener.h"

namespace hearth::data {
namespace {

constexpr std::int64_t most_classes = 1'000'000;

/// A split's shards, as looking at them found them.
struct Scanned {
  std::vector<SourceFilePointer> shards;
  std::vector<std::vector<FoundSample>> samples;  // of each shard
};

Scanned scan_all(const std::vector<std::string>& paths, const ShardKind& kind) {
  Scanned scanned;
  for (const std::string& path : paths) scanned.shards.push_back(open_source(path));
  scanned.samples.resize(paths.size());
  cpu::parallel_chunks(static_cast<std::int64_t>(paths.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    scanned.samples[at] = kind.scan(*scanned.shards[at]);
  });
  return scanned;
}

std::optional<std::int64_t> number_in(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  return fault == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// Whether a text is a number of any kind: "-1", "1.0", "1e3".
bool is_like_number(const std::string& text) {
  double value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  return fault != std::errc::invalid_argument && end == text.data() + text.size();
}

/// DataError where a record is damaged.
void require_sound(const ShardKind& kind, const SourceFile& shard, const FoundSample& sample, std::int64_t record) {
  std::vector<std::uint8_t> content;
  const std::string place = join_text(shard.name(), ": record ", record, " at offset ", sample.offset);
  (void)kind.read(shard, sample.offset, sample.bytes, sample.checksum, place, content);
}

/// DataError for the first damaged record of a split.
void require_sound(const ShardKind& kind, const Scanned& split) {
  for (std::size_t shard = 0; shard < split.shards.size(); ++shard)
    for (std::size_t record = 0; record < split.samples[shard].size(); ++record)
      require_sound(kind, *split.shards[shard], split.samples[shard][record], static_cast<std::int64_t>(record));
}

/// The classes that the labels of a split tell: as many as the greatest number says, or their names, sorted. DataError
/// for numbers that count no classes, as names or among names.
std::vector<std::string> classes_of(const Scanned& split) {
  std::set<std::string> names;
  std::int64_t greatest = -1;
  bool all_numbers = true;
  const FoundSample *like_number = nullptr, *other = nullptr;
  for (const auto& samples : split.samples)
    for (const FoundSample& sample : samples) {
      const std::optional<std::int64_t> number = number_in(sample.label);
      all_numbers = all_numbers && number && *number >= 0 && *number < most_classes;
      if (all_numbers) greatest = std::max(greatest, *number);
      const bool counts = number && *number >= 0 && *number < most_classes;
      if (is_like_number(sample.label) && (like_number == nullptr || !counts)) like_number = &sample;
      if (!counts && other == nullptr) other = &sample;
      if (names.size() <= most_classes) names.insert(sample.label);
    }
  if (all_numbers) return numbered_classes(greatest + 1);
  // A record without a label is damaged, which is told where it is read.
  HEARTH_CHECK(DataError, like_number == nullptr || other->label.empty(), like_number->name, ": the label \"",
               like_number->label, "\" is a number, and \"", other->label, "\" of ", other->name,
               " is none that counts classes, from 0 to below ", most_classes,
               "; write whole numbers, or names, or name all classes in data.classes");
  std::vector<std::string> classes(names.begin(), names.end());
  refuse_alike_classes("the labels", classes, "name all in data.classes if they are two");
  return classes;
}

/// Like classes_of; labels that it refuses are those of sound records.
std::vector<std::string> sound_classes_of(const Scanned& split, const ShardKind& kind) {
  try {
    return classes_of(split);
  } catch (const DataError&) {
    require_sound(kind, split);
    throw;
  }
}

/// The labels of a set are the names of classes, or their numbers.
class Labels {
 public:
  explicit Labels(const std::vector<std::string>& classes) : count_(static_cast<std::int64_t>(classes.size())) {
    for (const std::string& name : classes) by_name_.emplace_back(name, static_cast<std::int32_t>(by_name_.size()));
    std::ranges::sort(by_name_);
  }
  /// Whether those of a split are names, as a class may be called "1": all are, or one is neither that nor a number.
  bool are_names(const Scanned& split) const {
    bool all_names = true, all_numbers = true;
    for (const auto& samples : split.samples)
      for (const FoundSample& sample : samples) {
        if (sample.is_number) return false;
        all_names = all_names && by_name(sample.label);
        all_numbers = all_numbers && number_in(sample.label);
      }
    return all_names || !all_numbers;
  }
  std::optional<std::int32_t> of(const std::string& text, bool is_name) const {
    if (is_name) return by_name(text);
    const std::optional<std::int64_t> number = number_in(text);
    if (number && *number >= 0 && *number < count_) return static_cast<std::int32_t>(*number);
    return std::nullopt;
  }

 private:
  std::optional<std::int32_t> by_name(const std::string& text) const {
    const auto at = std::ranges::lower_bound(by_name_, text, {}, &std::pair<std::string, std::int32_t>::first);
    return at != by_name_.end() && at->first == text ? std::optional(at->second) : std::nullopt;
  }

  std::vector<std::pair<std::string, std::int32_t>> by_name_;
  std::int64_t count_;
};

/// What a set has in common, by its manifest or its options.
struct Common {
  std::string source;
  std::vector<std::string> classes{};
  std::optional<bool> labels_are_names{};  // decided by the manifest, or by the first split
  ImageShape shape{};
  int shrink_to = 0;
  ChannelStatistics statistics{};
  bool stream = false;
  std::int64_t shuffle_buffer = 0;
};

class ShardImages : public ImageDataset {
 public:
  ShardImages(std::shared_ptr<const ShardKind> kind, std::shared_ptr<const Common> common, Scanned scanned)
      : kind_(std::move(kind)), common_(std::move(common)), shards_(std::move(scanned.shards)) {
    const Labels labels(common_->classes);
    const bool has_names = name_apart(scanned.samples);
    for (std::size_t shard = 0; shard < scanned.samples.size(); ++shard) {
      starts_.push_back(size());
      for (FoundSample& found : scanned.samples[shard]) {
        const std::optional<std::int32_t> label = labels.of(found.label, *common_->labels_are_names);
        if (!label) require_sound(*kind_, *shards_[shard], found, size() - starts_.back());
        HEARTH_CHECK(DataError, label.has_value(), shards_[shard]->name(), ": ", found.name, " at offset ",
                     found.offset, ": the label \"", found.label, "\" is none of the ", common_->classes.size(),
                     " classes", *common_->labels_are_names ? "" : ", which the labels of this set number from 0",
                     "; a training names all of them in data.classes");
        samples_.push_back({found.offset, found.bytes, found.checksum, *label});
        if (has_names) names_.push_back(std::move(found.name));
      }
    }
    starts_.push_back(size());
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  ImageShape image_shape() const override { return common_->shape; }
  const std::vector<std::string>& class_names() const override { return common_->classes; }
  int shrinks_to() const override { return common_->shrink_to; }
  const std::string& source() const override { return common_->source; }
  std::int64_t label(std::int64_t index) const override { return at(index).label; }
  std::string sample_name(std::int64_t index) const override {
    check_index(index);
    return names_.empty() ? "" : names_[static_cast<std::size_t>(index)];
  }
  void identify(std::int64_t index, Sha256& digest) const override {
    const Stored& sample = at(index);
    digest.update(join_text(sample_name(index), ' ', sample.checksum, ' ', sample.bytes, '\n'));
  }
  std::int64_t read(std::int64_t index, Image& image) const override {
    thread_local std::vector<std::uint8_t> content;
    const std::string where = place(index);
    decode_image(encoded_in(index, where, content), where, image);
    require_size(image.height, image.width, where);
    conform(image, *this, where);
    return at(index).label;
  }
  std::optional<std::int64_t> try_read_region(std::int64_t index, const ChooseSizing& choose, Image& image,
                                              Region& region) const override {
    // What becomes grey is read whole.
    if (common_->shape.channels != 3) return ImageDataset::try_read_region(index, choose, image, region);
    thread_local std::vector<std::uint8_t> content;
    const std::string where = place(index);
    const auto checked = [&](int height, int width) {
      require_size(height, width, where);
      return choose(height, width);
    };
    region = decode_region(encoded_in(index, where, content), where, std::ref(checked), image);
    return at(index).label;
  }
  bool encoded(std::int64_t index, std::vector<std::uint8_t>& bytes) const override {
    if (common_->shape.channels != 3) return false;
    std::vector<std::uint8_t> content;
    const auto file = encoded_in(index, place(index), content);
    bytes.assign(file.begin(), file.end());
    return true;
  }
  std::vector<std::int64_t> stream_order(std::uint64_t seed, std::uint64_t epoch) const override;
  void read_ahead(std::span<const std::int64_t> indices) const override {
    for (const std::int64_t index : indices) {
      const Stored& sample = at(index);
      shards_[shard_of(index)]->read_ahead(sample.offset, sample.bytes);
    }
  }

 private:
  struct Stored {
    std::uint64_t offset;
    std::uint64_t bytes;
    std::uint32_t checksum;
    std::int32_t label;
  };

  /// Whether the samples have names, which hold out some of them: all have one, and no other has it, if need be with
  /// that of the shard before it.
  bool name_apart(std::vector<std::vector<FoundSample>>& samples) const {
    std::unordered_set<std::string_view> seen;
    bool all = true, apart = true;
    for (const auto& shard : samples)
      for (const FoundSample& sample : shard) {
        all = all && !sample.name.empty();
        apart = apart && seen.insert(sample.name).second;
      }
    if (!all || apart) return all;
    seen.clear();
    for (std::size_t shard = 0; shard < samples.size(); ++shard)
      for (FoundSample& sample : samples[shard]) {
        const std::string& file = shards_[shard]->name();
        sample.name = file.substr(file.rfind('/') + 1) + "/" + sample.name;
        if (!seen.insert(sample.name).second) return false;
      }
    return true;
  }
  void require_size(int height, int width, const std::string& where) const {
    const ImageShape& wanted = common_->shape;
    const auto differs = [](int a, int b) { return a != 0 && a != b; };
    HEARTH_CHECK(DataError, !differs(wanted.height, height) && !differs(wanted.width, width), where, ": an image of ",
                 height, " x ", width, " in a set of ", wanted);
  }
  const Stored& at(std::int64_t index) const {
    check_index(index);
    return samples_[static_cast<std::size_t>(index)];
  }
  std::size_t shard_of(std::int64_t index) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(starts_, index) - starts_.begin() - 1);
  }
  std::string place(std::int64_t index) const {
    const Stored& sample = at(index);
    const std::size_t shard = shard_of(index);
    const std::string name = sample_name(index);
    return join_text(shards_[shard]->name(), ": record ", index - starts_[shard], name.empty() ? "" : " (" + name + ")",
                     " at offset ", sample.offset);
  }
  std::span<const std::uint8_t> encoded_in(std::int64_t index, const std::string& where,
                                           std::vector<std::uint8_t>& content) const {
    const Stored& sample = at(index);
    return kind_->read(*shards_[shard_of(index)], sample.offset, sample.bytes, sample.checksum, where, content);
  }

  std::shared_ptr<const ShardKind> kind_;
  std::shared_ptr<const Common> common_;
  std::vector<SourceFilePointer> shards_;
  std::vector<std::int64_t> starts_;  // the number of each shard's first sample, and the end
  std::vector<Stored> samples_;
  std::vector<std::string> names_;  // none, or one a sample
};

/// Shards in random order, one after the other through a buffer of which a random sample goes out for each that comes
/// in.
std::vector<std::int64_t> ShardImages::stream_order(std::uint64_t seed, std::uint64_t epoch) const {
  if (!common_->stream) return {};
  const auto shards = static_cast<std::int64_t>(shards_.size());
  const std::vector<std::int64_t> visited = shuffled_order(shards, seed, epoch);
  Random random = random_of(seed, Purpose::order, epoch, 1);
  const auto capacity = static_cast<std::size_t>(std::min(common_->shuffle_buffer, size()));
  std::vector<std::int64_t> buffer, order;
  buffer.reserve(capacity), order.reserve(samples_.size());
  const auto draw = [&]() -> std::int64_t& { return buffer[random.below(buffer.size())]; };
  for (const std::int64_t shard : visited) {
    for (std::int64_t i = starts_[static_cast<std::size_t>(shard)]; i < starts_[static_cast<std::size_t>(shard) + 1];
         ++i) {
      if (buffer.size() < capacity) {
        buffer.push_back(i);
        continue;
      }
      std::int64_t& chosen = draw();
      order.push_back(std::exchange(chosen, i));
    }
  }
  while (!buffer.empty()) {
    std::int64_t& chosen = draw();
    order.push_back(std::exchange(chosen, buffer.back()));
    buffer.pop_back();
  }
  return order;
}

/// The files of each split.
using SplitFiles = std::array<std::vector<std::string>, 3>;

std::vector<std::string> found_by_name(const ShardOptions& options, const ShardKind& kind,
                                       std::initializer_list<const char*> splits) {
  std::vector<std::string> names;
  if (options.path.empty()) return names;
  for (const char* split : splits) {
    for (const SourceEntry& entry : list_source(options.path)) {
      const std::string& name = entry.name;
      const bool is_of_split = name.starts_with(std::string(split) + "-") || name.starts_with(std::string(split) + ".");
      const auto endings = kind.endings();
      const bool fits = std::ranges::any_of(endings, [&](const std::string& ending) {
        // TFRecord files are often numbered behind their ending: train.tfrecord-00000-of-00010.
        return name.ends_with(ending) || name.find(ending + "-") != name.npos;
      });
      if (is_of_split && fits) names.push_back(name_in(options.path, name));
    }
    if (!names.empty()) return names;
  }
  return names;
}

SplitFiles files_of(const ShardOptions& options, const ShardKind& kind) {
  SplitFiles files;
  const std::string* const patterns[] = {&options.train, &options.valid, &options.test};
  const bool is_given = std::ranges::any_of(patterns, [](const std::string* pattern) { return !pattern->empty(); });
  HEARTH_CHECK(ConfigError, is_given || !options.path.empty(), "/data: ", kind.name(),
               " needs the folder of its shards, \"path\", or the names of its files, \"train\": \"train-{000..009}",
               kind.endings().front(), "\"");
  for (std::size_t i = 0; is_given && i < 3; ++i)
    if (!patterns[i]->empty()) files[i] = expand_shards(options.path, *patterns[i]);
  if (!is_given)
    files = {found_by_name(options, kind, {"train"}), found_by_name(options, kind, {"valid", "val", "validation"}),
             found_by_name(options, kind, {"test"})};
  HEARTH_CHECK(DataError, !files[0].empty(), options.path, ": no shard train-*", kind.endings().front(),
               " is there; name the files by \"train\": \"NAME-{000..009}", kind.endings().front(), "\"");
  return files;
}

/// What the manifest of a packed set says; its files are compared with it by size.
SplitFiles read_manifest_into(Common& common, const ShardOptions& options, const ShardKind& kind) {
  const Json manifest = read_shards_manifest(options.path);
  const std::string& container = manifest.at("container").as_string();
  HEARTH_CHECK(DataError, container == kind.name(), options.path, ": holds shards of ", container, ", not of ",
               kind.name(), "; change /data/type");
  for (const Json& name : manifest.at("classes").items()) common.classes.push_back(name.as_string());
  int extents[3];
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t extent = manifest.at("image").at(axis).as_integer();
    HEARTH_CHECK(DataError, extent >= 0 && extent <= max_image_pixels, options.path, ": images of an extent of ",
                 extent);
    extents[axis] = static_cast<int>(extent);
  }
  common.shape = {extents[0], extents[1], extents[2]};
  HEARTH_CHECK(DataError, extents[2] == 1 || extents[2] == 3, options.path, ": images of ", extents[2], " channels");
  common.shrink_to = static_cast<int>(manifest.at("shrink_to").as_integer());
  common.statistics = manifest_statistics(manifest);
  SplitFiles files;
  const char* const splits[] = {"train", "valid", "test"};
  for (std::size_t i = 0; i < 3; ++i) {
    const Json* const split = manifest.at("splits").find(splits[i]);
    if (split == nullptr) continue;
    for (const Json& file : split->at("files").items()) {
      const std::string& name = file.at("name").as_string();
      HEARTH_CHECK(DataError, !name.empty() && name.find('/') == name.npos && name != "." && name != "..", options.path,
                   "/", shards_manifest, ": \"", name, "\" is no name of a file in this folder");
      const std::string path = name_in(options.path, name);
      const auto bytes = static_cast<std::int64_t>(open_source(path)->size()), wanted = file.at("bytes").as_integer();
      HEARTH_CHECK(DataError, bytes == wanted, path, ": ", bytes, " bytes; ", shards_manifest, " has ", wanted,
                   ": the file was cut off or replaced");
      files[i].push_back(path);
    }
  }
  return files;
}

}  // namespace

ImageSplits open_shards(const ShardOptions& options, std::shared_ptr<const ShardKind> kind) {
  auto common = std::make_shared<Common>();
  common->source = options.path.empty() ? options.train : options.path;
  common->stream = options.stream;
  common->shuffle_buffer = options.shuffle_buffer;
  SplitFiles files;
  const bool is_packed = options.train.empty() && !type_of_shards(options.path).empty();
  try {
    if (is_packed) files = read_manifest_into(*common, options, *kind);
  } catch (const ConfigError& error) {
    throw DataError(join_text(options.path, "/", shards_manifest, ": ", error.what()));
  }
  if (!is_packed) {
    files = files_of(options, *kind);
    common->shape.channels = options.channels;
  }
  if (is_packed) {
    HEARTH_CHECK(ConfigError, options.classes.empty() || options.classes == common->classes,
                 "/data/classes: ", options.path,
                 " was packed with other classes, which its labels number; leave them out");
    common->labels_are_names = false;
  }
  if (!options.classes.empty()) common->classes = distinct_classes(options.classes);
  ImageSplits splits;
  splits.statistics = common->statistics;
  ImageDatasetPointer* const opened[] = {&splits.train, &splits.valid, &splits.test};
  for (std::size_t i = 0; i < 3; ++i) {
    if (files[i].empty()) continue;
    Scanned scanned = scan_all(files[i], *kind);
    if (common->classes.empty()) common->classes = sound_classes_of(scanned, *kind);
    if (!common->labels_are_names) common->labels_are_names = Labels(common->classes).are_names(scanned);
    *opened[i] = std::make_shared<ShardImages>(kind, common, std::move(scanned));
  }
  return splits;
}

}  // namespace hearth::data
