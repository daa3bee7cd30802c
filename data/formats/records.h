// SPDX-License-Identifier: Apache-2.0
// Labelled images in record files: a folder of a manifest, records.json, and for each split files of records
// (record_file.h) and an index.
//
// A record is a label, a height, a width and a number of channels (each a u32), then the pixels; or, where the last
// three are 0, the bytes of an image file. The index is a record file of two records: the label of each sample (u32
// each), and the name of each sample, with a zero byte after it (nothing where samples have no names).
#pragma once

#include <string>

#include "core/io/json_text.h"
#include "data/images/image_dataset.h"

namespace hearth::data {

inline constexpr const char* records_manifest = "records.json";
inline constexpr const char* records_format = "hearth-records-1";

/// The front of a record: four u32.
struct RecordHeader {
  static constexpr std::size_t bytes = 16;
  std::int64_t label;
  int height, width, channels;
  /// Whether the bytes that follow are those of an image file.
  bool is_file() const { return height == 0; }
};

/// The splits of such a folder, and what their images are normalised by. FileError or DataError, naming the file, for
/// one that is missing, cut off or longer than it was, for a damaged header, and where the files are not those of the
/// manifest. What a record holds is checked each time it is read.
HEARTH_API ImageSplits records(const std::string& folder);

/// Whether a folder has such a manifest.
bool holds_records(const std::string& folder);

/// The manifest of a set, as far as it is one. DataError naming what is missing.
Json read_manifest(const std::string& folder);

}  // namespace hearth::data
