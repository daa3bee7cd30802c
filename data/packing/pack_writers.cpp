// SPDX-License-Identifier: Apache-2.0
#include "data/packing/pack_writers.h"

#include <iomanip>
#include <stdexcept>

#include "core/error.h"
#include "core/text_stream.h"
#include "data/formats/example.h"
#include "data/formats/records.h"
#include "data/formats/shards.h"
#include "data/images/codecs/encode.h"
#include "data/source/file_opener.h"
#include "data/source/little_endian.h"
#include "data/source/record_file.h"
#include "data/source/tar.h"
#include "data/source/tfrecord.h"

namespace hearth::data {
namespace {

namespace fs = std::filesystem;

class RecordPack : public PackWriter {
 public:
  RecordPack(const fs::path& path, std::int64_t count) : writer_(path, count) {}
  void add(const PackedSample& sample) override {
    const auto value = [&](int extent) { return static_cast<std::uint32_t>(sample.is_file ? 0 : extent); };
    const std::uint32_t header[] = {static_cast<std::uint32_t>(sample.label), value(sample.image.height),
                                    value(sample.image.width), value(sample.image.channels)};
    writer_.add(
        {little_endian(header), std::as_bytes(std::span(sample.is_file ? sample.content : sample.image.pixels))});
  }
  void finish() override { writer_.finish(); }

 private:
  RecordWriter writer_;
};

/// The sample as an image file; pixels become a PNG, which loses nothing.
std::vector<std::uint8_t> file_of(const PackedSample& sample) {
  if (sample.is_file) return sample.content;
  std::vector<std::uint8_t> png = encode_png(sample.image);
  HEARTH_CHECK(DataError, !png.empty(),
               "pack: pixels go into shards as PNG, and this build of Hearth writes none: install libpng (libpng-dev) "
               "and build again, or pack records");
  return png;
}

/// The image last, so that looking through headers finds the others beside each other.
class TarPack : public PackWriter {
 public:
  explicit TarPack(const fs::path& path) : writer_(path) {}
  void add(const PackedSample& sample) override {
    TextStream key;
    key << std::setw(9) << std::setfill('0') << sample.number << '.';
    const std::vector<std::uint8_t> file = file_of(sample);
    writer_.add(key.str() + "cls", bytes_of(std::to_string(sample.label)));
    if (!sample.name.empty()) writer_.add(key.str() + packed_name, bytes_of(sample.name));
    writer_.add(key.str() + ending_of(file), std::as_bytes(std::span(file)));
  }
  void finish() override { writer_.finish(); }

 private:
  TarWriter writer_;
};

class TfRecordPack : public PackWriter {
 public:
  explicit TfRecordPack(const fs::path& path) : writer_(path) {}
  void add(const PackedSample& sample) override {
    const std::vector<std::uint8_t> file = file_of(sample);
    const std::string format = ending_of(file);
    ExampleBuilder example;
    example.add("image/class/label", sample.label);
    if (sample.class_name != nullptr) example.add("image/class/text", bytes_of(*sample.class_name));
    if (!sample.name.empty()) example.add("image/filename", bytes_of(sample.name));
    example.add("image/format", bytes_of(format == "jpg" ? "jpeg" : format));
    example.add("image/height", sample.image.height);
    example.add("image/width", sample.image.width);
    example.add("image/encoded", std::as_bytes(std::span(file)));
    writer_.add(bytes_of(example.message()));
  }
  void finish() override { writer_.finish(); }

 private:
  TfRecordWriter writer_;
};

std::optional<std::vector<std::int64_t>> labels_in_records(const fs::path& path) {
  const RecordFile written(path);
  std::vector<std::int64_t> labels;
  std::vector<std::uint8_t> content;
  for (std::int64_t record = 0; record < written.size(); ++record) {
    written.read(record, content);
    if (content.size() < RecordHeader::bytes) return std::nullopt;
    labels.push_back(from_little_endian<std::uint32_t>(std::as_bytes(std::span(content)), 0));
  }
  return labels;
}

}  // namespace

const char* name_of(PackFormat format) {
  const char* const names[] = {"records", "webdataset", "tfrecord"};
  return names[static_cast<std::size_t>(format)];
}

std::unique_ptr<PackWriter> make_writer(PackFormat format, const fs::path& path, std::int64_t count) {
  if (format == PackFormat::webdataset) return std::make_unique<TarPack>(path);
  if (format == PackFormat::tfrecord) return std::make_unique<TfRecordPack>(path);
  return std::make_unique<RecordPack>(path, count);
}

std::optional<std::vector<std::int64_t>> labels_in(PackFormat format, const fs::path& path) {
  if (!file_exists(path)) return std::nullopt;
  try {
    if (format == PackFormat::records) return labels_in_records(path);
    const auto kind = format == PackFormat::webdataset ? webdataset_kind({}) : tfrecord_kind({});
    const SourceFilePointer file = open_source(path.string());
    std::vector<std::int64_t> labels;
    std::vector<std::uint8_t> content;
    for (const FoundSample& sample : kind->scan(*file)) {
      (void)kind->read(*file, sample.offset, sample.bytes, sample.checksum, path.string(), content);
      labels.push_back(std::stoll(sample.label));
    }
    return labels;
  } catch (const DataError&) {
    return std::nullopt;
  } catch (const std::logic_error&) {
    return std::nullopt;  // a label that is no number
  }
}

std::string pack_file_name(PackFormat format, const std::string& split, std::int64_t number) {
  TextStream name;
  const bool is_tar = format == PackFormat::webdataset;
  name << split << '-' << std::setw(is_tar ? 6 : 5) << std::setfill('0') << number
       << (is_tar                           ? ".tar"
           : format == PackFormat::tfrecord ? ".tfrecord"
                                            : ".ffr");
  return name.str();
}

}  // namespace hearth::data
