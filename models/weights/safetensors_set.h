// SPDX-License-Identifier: Apache-2.0
// The tensors of one safetensors file, or of the several that a model.safetensors.index.json joins.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "core/io/safetensors.h"

namespace hearth {

class SafetensorsSet {
 public:
  struct Item {
    const SafetensorsFile* file;
    const TensorRecord* record;
    /// SafetensorsFile::read() of the record.
    void read(std::span<std::byte> target) const { file->read(*record, target); }
    std::vector<std::byte> read() const { return file->read(*record); }
  };

  /// `path` is a .safetensors file; an index, whose "weight_map" tells the file beside it that each tensor is in; or a
  /// folder with model.safetensors or model.safetensors.index.json. FileError as of SafetensorsFile, and of kinds
  /// InvalidIndex (no such map, or a file that is not beside it), IndexMismatch (a file has other tensors than the map
  /// says) and IoError.
  explicit SafetensorsSet(const std::filesystem::path& path);

  /// In the order of the files' names, then of their bytes.
  const std::vector<Item>& items() const { return items_; }
  /// Of the first file.
  const SafetensorsMetadata& metadata() const;
  /// The files, and the index if there is one.
  std::vector<std::filesystem::path> paths() const;
  /// SafetensorsFile::verify() of every file.
  void verify() const;

 private:
  void open_index(const std::filesystem::path& path);

  std::filesystem::path path_;  // the only file, or the index
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<Item> items_;
};

}  // namespace hearth
