// SPDX-License-Identifier: Apache-2.0
// Labelled images in shards: tar archives as WebDataset has them, or TFRecord files. Opening a set looks at the headers
// of all shards once, side by side, so that every sample can be read by its number.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/io/json_text.h"
#include "data/images/image_dataset.h"
#include "data/source/source.h"

namespace hearth::data {

inline constexpr const char* shards_manifest = "shards.json";
inline constexpr const char* shards_format = "hearth-shards-1";
/// Ending of the member of a tar archive that has a sample's name before it was packed.
inline constexpr const char* packed_name = "name";

struct ShardOptions {
  /// Folder that the patterns are relative to; with a manifest of `hearth data pack` in it, what that says.
  std::string path{};
  /// Files of each split: names with {000..009}, {a,b} and, in the last part, *. Without any: train-*, valid-* or
  /// val-*, and test-* in the folder, with the ending of the kind.
  std::string train{}, valid{}, test{};
  /// Names by label; empty: as the manifest or the labels of the training split say.
  std::vector<std::string> classes{};
  int channels = 3;     ///< 1 makes images grey
  bool stream = false;  ///< epochs visit shards in random order, and samples by a shuffle buffer
  std::int64_t shuffle_buffer = 4096;
};

struct WebdatasetOptions : ShardOptions {
  std::string label{};             ///< ending of the member with the label; empty: cls, or json where there is none
  std::string json_key = "label";  ///< of the label in a member of JSON
};
struct TfRecordOptions : ShardOptions {
  std::string image = "image/encoded";
  std::string label = "image/class/label";
  std::string name = "image/filename";
};

/// The splits of such a set. ConfigError for patterns that cannot be; FileError or DataError, naming shard, member or
/// record, and offset, for what is missing or damaged, as far as that can be told without reading the images.
HEARTH_API ImageSplits webdataset(const WebdatasetOptions& options);
HEARTH_API ImageSplits tfrecord(const TfRecordOptions& options);

/// The names that a pattern stands for, in order; those of a `*` are sorted. ConfigError for a pattern that is none;
/// FileError if nothing is there.
HEARTH_API std::vector<std::string> expand_shards(const std::string& folder, const std::string& pattern);

/// The dataset that the manifest in a folder is of, "webdataset" or "tfrecord"; empty where there is none.
std::string type_of_shards(const std::string& folder);
/// The manifest of a packed set. DataError naming what is missing.
Json read_shards_manifest(const std::string& folder);
/// SHA-256 of a file's bytes. FileError if it cannot be read.
std::string sha256_of_file(const std::string& path);
/// Compares each shard of a packed set with the SHA-256 that the manifest has of it. Returns a line for each that
/// differs.
std::vector<std::string> verify_shards(const std::string& folder);

/// A sample as looking at a shard finds it.
struct FoundSample {
  std::uint64_t offset = 0;  ///< of the image file, or of the record that holds it
  std::uint64_t bytes = 0;
  std::uint32_t checksum = 0;  ///< of a record
  std::string name;            ///< of the sample, within the set
  std::string label{};         ///< a number, or the name of a class
  bool is_number = false;      ///< the label is stored as one
};

/// One kind of shard.
class ShardKind {
 public:
  virtual ~ShardKind() = default;
  virtual const char* name() const = 0;
  /// Endings of the files, with the dot.
  virtual std::vector<std::string> endings() const = 0;
  /// What is in a shard, in order.
  virtual std::vector<FoundSample> scan(const SourceFile& file) const = 0;
  /// The bytes of a sample's image file, which lie in `content`.
  virtual std::span<const std::uint8_t> read(const SourceFile& file, std::uint64_t offset, std::uint64_t bytes,
                                             std::uint32_t checksum, const std::string& place,
                                             std::vector<std::uint8_t>& content) const = 0;
};

std::shared_ptr<const ShardKind> webdataset_kind(const WebdatasetOptions& options);
std::shared_ptr<const ShardKind> tfrecord_kind(const TfRecordOptions& options);

/// Opens the splits of shards of a kind.
ImageSplits open_shards(const ShardOptions& options, std::shared_ptr<const ShardKind> kind);

}  // namespace hearth::data
