// SPDX-License-Identifier: Apache-2.0
// Opening a set of record files, and reading its samples.
#include "data/formats/records.h"

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "core/io/checksum.h"
#include "data/images/channel_statistics.h"
#include "data/images/codecs/decode.h"
#include "data/images/conform.h"
#include "data/source/little_endian.h"
#include "data/source/record_file.h"
#include "data/source/source_bytes.h"

namespace hearth::data {
namespace {

/// A file that a manifest names, which lies beside it.
std::string file_beside(const std::string& folder, const std::string& name) {
  HEARTH_CHECK(DataError, !name.empty() && name.find('/') == name.npos && name != "." && name != "..", folder, "/",
               records_manifest, ": \"", name, "\" is no name of a file in this folder");
  return name_in(folder, name);
}

class RecordImages : public ImageDataset {
 public:
  RecordImages(const std::string& folder, const Json& manifest, const Json& split, Sha256& digest)
      : folder_(folder), shrink_to_(static_cast<int>(manifest.at("shrink_to").as_integer())) {
    for (const Json& name : manifest.at("classes").items()) names_.push_back(name.as_string());
    const Json& shape = manifest.at("image");
    const auto extent = [&](std::size_t axis) {
      const std::int64_t value = shape.at(axis).as_integer();
      HEARTH_CHECK(DataError, value >= (axis == 2 ? 1 : 0) && value <= max_image_pixels, folder,
                   ": images of an extent of ", value);
      return static_cast<int>(value);
    };
    shape_ = {extent(0), extent(1), extent(2)};
    for (const Json& file : split.at("files").items()) {
      RecordFile opened = open(file, digest);
      starts_.push_back(size_);
      size_ += opened.size();
      files_.push_back(std::move(opened));
    }
    read_index(open(split.at("index"), digest));
    check_counts(split);
  }

  std::int64_t size() const override { return size_; }
  ImageShape image_shape() const override { return shape_; }
  const std::vector<std::string>& class_names() const override { return names_; }
  int shrinks_to() const override { return shrink_to_; }
  const std::string& source() const override { return folder_; }
  std::int64_t label(std::int64_t index) const override {
    check_index(index);
    return labels_[static_cast<std::size_t>(index)];
  }
  std::string sample_name(std::int64_t index) const override {
    check_index(index);
    return sample_names_.empty() ? "" : sample_names_[static_cast<std::size_t>(index)];
  }
  void identify(std::int64_t index, Sha256& digest) const override {
    const auto [file, record] = locate(index);
    digest.update(join_text(file->checksum(record), ' ', file->bytes(record), '\n'));
  }
  std::int64_t read(std::int64_t index, Image& image) const override { return load(index, image, nullptr, nullptr); }
  std::optional<std::int64_t> try_read_region(std::int64_t index, const ChooseSizing& choose, Image& image,
                                              Region& region) const override {
    return load(index, image, &choose, &region);
  }
  void read_ahead(std::span<const std::int64_t> indices) const override {
    for (const std::int64_t index : indices) {
      const auto [file, record] = locate(index);
      file->read_ahead(record);
    }
  }
  bool encoded(std::int64_t index, std::vector<std::uint8_t>& bytes) const override {
    const auto [file, record] = locate(index);
    file->read(record, bytes);
    if (!header_of(bytes, *file, record).is_file()) return false;
    bytes.erase(bytes.begin(), bytes.begin() + RecordHeader::bytes);
    return true;
  }

 private:
  /// All of the image, or the region that `choose` wants.
  std::int64_t load(std::int64_t index, Image& image, const ChooseSizing* choose, Region* region) const {
    const auto [file, record] = locate(index);
    // Each thread keeps the memory of the compressed bytes.
    thread_local std::vector<std::uint8_t> content;
    file->read(record, content);
    const RecordHeader header = header_of(content, *file, record);
    HEARTH_CHECK(DataError, header.label == label(index), file->place(record), ": label ", header.label,
                 ", and the index has ", label(index));
    const std::span<const std::uint8_t> bytes = std::span(content).subspan(RecordHeader::bytes);
    const auto require_shape = [&, &from = *file, &number = record](const ImageShape& stored) {
      const auto differs = [](int fixed, int value) { return fixed != 0 && fixed != value; };
      HEARTH_CHECK(DataError,
                   !differs(shape_.height, stored.height) && !differs(shape_.width, stored.width) &&
                       !differs(shape_.channels, stored.channels),
                   from.place(number), ": an image of ", stored, " in a set of ", shape_);
    };
    if (header.is_file()) {
      const std::string place = file->place(record);
      // What becomes grey is read whole.
      if (choose == nullptr || shape_.channels == 1) {
        decode_image(bytes, place, image);
        require_shape({image.height, image.width, shape_.channels == 1 ? 1 : image.channels});
        if (shape_.channels == 1) conform(image, *this, place);
        if (choose != nullptr) *region = region_of_whole(image, *choose);
        return header.label;
      }
      const auto checked = [&](int height, int width) {
        require_shape({height, width, 3});
        return (*choose)(height, width);
      };
      *region = decode_region(bytes, place, std::ref(checked), image);
      return header.label;
    }
    require_shape({header.height, header.width, header.channels});
    image.reshape(header.height, header.width, header.channels);
    std::copy(bytes.begin(), bytes.end(), image.pixels.begin());
    if (choose != nullptr) *region = region_of_whole(image, *choose);
    return header.label;
  }

  RecordFile open(const Json& described, Sha256& digest) const {
    RecordFile file(file_beside(folder_, described.at("name").as_string()));
    const std::int64_t records = described.at("records").as_integer();
    const std::int64_t bytes = described.at("bytes").as_integer();
    HEARTH_CHECK(DataError, file.size() == records && static_cast<std::int64_t>(file.file_bytes()) == bytes, folder_,
                 "/", described.at("name").as_string(), ": ", file.size(), " records in ", file.file_bytes(),
                 " bytes; ", records_manifest, " has ", records, " in ", bytes, ": the file was cut off or replaced");
    file.identify(digest);
    return file;
  }

  void read_index(const RecordFile& index) {
    HEARTH_CHECK(DataError, index.size() == 2, folder_, ": the index has ", index.size(), " records instead of 2");
    std::vector<std::uint8_t> content;
    index.read(0, content);
    HEARTH_CHECK(DataError, content.size() == 4 * static_cast<std::size_t>(size_), index.place(0), ": ",
                 content.size() / 4, " labels for ", size_, " samples");
    for (std::int64_t i = 0; i < size_; ++i) {
      const auto label =
          from_little_endian<std::uint32_t>(std::as_bytes(std::span(content)), 4 * static_cast<std::size_t>(i));
      HEARTH_CHECK(DataError, label < names_.size(), index.place(0), ": the label of sample ", i, " is ", label,
                   ", outside the ", names_.size(), " classes");
      labels_.push_back(static_cast<std::int32_t>(label));
    }
    index.read(1, content);
    for (auto at = content.begin(); at != content.end();) {
      const auto end = std::find(at, content.end(), 0);
      HEARTH_CHECK(DataError, end != content.end(), index.place(1), ": the last name does not end");
      sample_names_.emplace_back(at, end);
      at = end + 1;
    }
    HEARTH_CHECK(DataError, sample_names_.empty() || sample_names_.size() == labels_.size(), index.place(1), ": ",
                 sample_names_.size(), " names for ", size_, " samples");
  }

  /// What the manifest says of the split, which others may have counted on.
  void check_counts(const Json& split) const {
    std::vector<std::int64_t> histogram(names_.size());
    for (const std::int32_t label : labels_) ++histogram[static_cast<std::size_t>(label)];
    const Json* const samples = split.find("samples");
    const Json* const by_class = split.find("samples_by_class");
    HEARTH_CHECK(DataError,
                 (samples == nullptr || *samples == Json(size_)) &&
                     (by_class == nullptr || *by_class == Json::array_of(histogram)),
                 folder_, "/", records_manifest, ": says ", samples == nullptr ? "nothing" : to_text(*samples),
                 " of the samples, of classes ", by_class == nullptr ? "nothing" : to_text(*by_class),
                 ", and there are ", size_, ", of classes ", to_text(Json::array_of(histogram)),
                 ": it was edited; pack the set again");
  }

  std::pair<const RecordFile*, std::int64_t> locate(std::int64_t index) const {
    check_index(index);
    const auto which = std::upper_bound(starts_.begin(), starts_.end(), index) - starts_.begin() - 1;
    const auto at = static_cast<std::size_t>(which);
    return {&files_[at], index - starts_[at]};
  }

  /// DataError, naming file, record and offset, unless the record is as long as its header says.
  static RecordHeader header_of(const std::vector<std::uint8_t>& content, const RecordFile& file, std::int64_t record) {
    HEARTH_CHECK(DataError, content.size() >= RecordHeader::bytes, file.place(record), ": ", content.size(),
                 " bytes are too few for a labelled image");
    const auto value = [&](std::size_t which) {
      return from_little_endian<std::uint32_t>(std::as_bytes(std::span(content)), 4 * which);
    };
    const std::uint64_t height = value(1), width = value(2), channels = value(3);
    const bool is_file = height == 0 && width == 0 && channels == 0;
    HEARTH_CHECK(DataError,
                 is_file || (height > 0 && width > 0 && channels > 0 && channels <= max_image_channels &&
                             height <= max_image_pixels && width <= max_image_pixels / height),
                 file.place(record), ": an image of ", height, " x ", width, " x ", channels);
    HEARTH_CHECK(DataError, is_file || content.size() - RecordHeader::bytes == height * width * channels,
                 file.place(record), ": ", content.size() - RecordHeader::bytes, " bytes for an image of ", height,
                 " x ", width, " x ", channels);
    return {value(0), static_cast<int>(height), static_cast<int>(width), static_cast<int>(channels)};
  }

  std::string folder_;
  int shrink_to_;
  ImageShape shape_;
  std::vector<std::string> names_;
  std::vector<RecordFile> files_;
  std::vector<std::int64_t> starts_;  // the number of each file's first sample
  std::int64_t size_ = 0;
  std::vector<std::int32_t> labels_;
  std::vector<std::string> sample_names_;
};

ImageSplits open_splits(const std::string& folder, const Json& manifest) {
  Sha256 digest;
  for (const Json& name : manifest.at("classes").items()) digest.update(name.as_string() + '\0');
  ImageSplits splits;
  for (const auto& [name, split] :
       {std::pair{"train", &splits.train}, {"valid", &splits.valid}, {"test", &splits.test}})
    if (const Json* const described = manifest.at("splits").find(name))
      *split = std::make_shared<RecordImages>(folder, manifest, *described, digest);
  const std::string& wanted = manifest.at("sha256").as_string();
  HEARTH_CHECK(DataError, digest.hex() == wanted, folder, ": the files have the content ", digest.hex(), ", and ",
               records_manifest, " is of ", wanted, ": one of them was replaced; pack the set again");
  splits.statistics = manifest_statistics(manifest);
  return splits;
}

}  // namespace

bool holds_records(const std::string& folder) { return find_source(name_in(folder, records_manifest)).has_value(); }

Json read_manifest(const std::string& folder) {
  const std::string path = name_in(folder, records_manifest);
  try {
    Json manifest = read_manifest_json(path);
    HEARTH_CHECK(DataError, manifest.at("format").as_string() == records_format, path, ": the format is \"",
                 manifest.at("format").as_string(), "\"; this version reads \"", records_format, "\"");
    return manifest;
  } catch (const ConfigError& error) {
    throw DataError(error.what());
  }
}

ImageSplits records(const std::string& folder) {
  const Json manifest = read_manifest(folder);
  try {
    return open_splits(folder, manifest);
  } catch (const ConfigError& error) {
    throw DataError(join_text(folder, "/", records_manifest, ": ", error.what()));
  }
}

}  // namespace hearth::data
