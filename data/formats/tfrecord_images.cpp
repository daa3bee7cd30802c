// SPDX-License-Identifier: Apache-2.0
// TFRecord files of tf.train.Example messages, each with an image file, a label and perhaps a name.
#include "core/error.h"
#include "data/formats/example.h"
#include "data/formats/shards.h"
#include "data/images/codecs/decode.h"
#include "data/source/tfrecord.h"

namespace hearth::data {
namespace {

class TfRecordImages : public ShardKind {
 public:
  explicit TfRecordImages(const TfRecordOptions& options) : names_{options.image, options.label, options.name} {}
  const char* name() const override { return "tfrecord"; }
  std::vector<std::string> endings() const override { return {".tfrecord", ".tfrecords", ".tfrec"}; }

  std::vector<FoundSample> scan(const SourceFile& file) const override {
    std::vector<FoundSample> found;
    FileWindow headers(file), window(file);
    const BytesAt bytes = [&](std::uint64_t offset, std::size_t count) { return window.at(offset, count); };
    scan_tfrecord(file, headers, [&](const TfRecord& record) {
      const std::string place = join_text(file.name(), ": record ", found.size(), " at offset ", record.offset);
      try {
        found.push_back(sample_of(bytes, record, place));
      } catch (const DataError&) {
        std::vector<std::uint8_t> content;
        read_tfrecord(file, record, place, content);  // says so where it is damaged
        throw;
      }
    });
    return found;
  }

  std::span<const std::uint8_t> read(const SourceFile& file, std::uint64_t offset, std::uint64_t bytes,
                                     std::uint32_t checksum, const std::string& place,
                                     std::vector<std::uint8_t>& content) const override {
    read_tfrecord(file, {offset, bytes, checksum}, place, content);
    const BytesAt in_memory = [&](std::uint64_t at, std::size_t count) {
      return std::as_bytes(std::span(content)).subspan(at, count);
    };
    const auto features = find_features(in_memory, 0, content.size(), names_, place);
    const Extent image = require_image(in_memory, features, place);
    HEARTH_CHECK(DataError, image.end - image.begin <= image_limit.bytes, place, ": an image of ",
                 image.end - image.begin, " bytes; at most ", image_limit.bytes, " are read");
    return std::span<const std::uint8_t>(content).subspan(image.begin, image.end - image.begin);
  }

 private:
  FoundSample sample_of(const BytesAt& bytes, const TfRecord& record, const std::string& place) const {
    const auto features = find_features(bytes, record.begin(), record.begin() + record.bytes, names_, place);
    require_image(bytes, features, place);
    const std::optional<std::string> label = one_value(bytes, features[1], place);
    HEARTH_CHECK(DataError, label && !label->empty(), place, ": has no feature \"", names_[1],
                 "\" that is one label; name it by \"label\"");
    return {record.offset,   record.bytes,
            record.checksum, one_value(bytes, features[2], place).value_or(std::string()),
            *label,          features[1].kind != FoundFeature::Kind::bytes};
  }
  Extent require_image(const BytesAt& bytes, const std::vector<FoundFeature>& features,
                       const std::string& place) const {
    const std::optional<Extent> image = one_string(bytes, features[0], place);
    HEARTH_CHECK(DataError, image.has_value(), place, ": has no feature \"", names_[0],
                 "\" that is one image file; name it by \"image\"");
    return *image;
  }

  std::vector<std::string> names_;
};

}  // namespace

std::shared_ptr<const ShardKind> tfrecord_kind(const TfRecordOptions& options) {
  return std::make_shared<TfRecordImages>(options);
}

ImageSplits tfrecord(const TfRecordOptions& options) { return open_shards(options, tfrecord_kind(options)); }

}  // namespace hearth::data
