// SPDX-License-Identifier: Apache-2.0
// What `hearth data pack` writes its files with, one kind for each format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/images/codecs/image.h"

namespace hearth::data {

enum class PackFormat : std::uint8_t { records, webdataset, tfrecord };
/// "records", "webdataset", "tfrecord".
const char* name_of(PackFormat format);

/// A sample as it is packed: an image file, or pixels.
struct PackedSample {
  std::int64_t number = 0;  ///< in its split
  std::int64_t label = 0;
  std::string name{};
  const std::string* class_name = nullptr;
  bool is_file = false;
  std::vector<std::uint8_t> content{};  ///< of the file
  Image image{};                        ///< decoded in any case
};

/// One file of a packed set.
class PackWriter {
 public:
  virtual ~PackWriter() = default;
  virtual void add(const PackedSample& sample) = 0;
  virtual void finish() = 0;
};

/// Begins a file of `count` samples. FileError if it cannot be made.
std::unique_ptr<PackWriter> make_writer(PackFormat format, const std::filesystem::path& path, std::int64_t count);
/// The labels of a file that was written before; nothing where it is not whole, as far as that shows without decoding.
std::optional<std::vector<std::int64_t>> labels_in(PackFormat format, const std::filesystem::path& path);
/// "train-00000.ffr", "train-000000.tar", "train-00000.tfrecord".
std::string pack_file_name(PackFormat format, const std::string& split, std::int64_t number);

}  // namespace hearth::data
