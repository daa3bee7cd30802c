// SPDX-License-Identifier: Apache-2.0
// Packing labelled images into record files (data/formats/records.h), or shards (data/formats/shards.h), as `hearth
// data pack` does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/io/json_text.h"
#include "data/packing/pack_writers.h"
#include "data/splits.h"

namespace hearth::data {

struct PackOptions {
  std::int64_t records_per_file = 0;  ///< 0: 512, or as many as make 128 files of the largest split
  PackFormat format = PackFormat::records;
  int quality = 0;  ///< above 0: images are packed as JPEG files of this quality, whatever they are
  /// Called after each file, one call at a time.
  std::function<void(std::int64_t files_done, std::int64_t files)> progress{};
};

/// Writes all splits to a folder, and with them what their images are normalised by; files of records are written side
/// by side by the threads of the process. Returns the manifest. Images that read() gives as their files have them are
/// packed as these files, others as pixels, which are PNG files in shards. A pack that was interrupted goes on when it
/// is started again with the same data and options. UsageError if the data are no images, or the folder holds something
/// else, or a whole set; DataError for an image that cannot be decoded, unless the set passes over it: then, as in
/// training, another one stands in, and DataSplits::quarantines know of it. DataError where more are bad than may be.
Json pack_records(const DataSplits& data, const std::string& folder, const PackOptions& options = {});

}  // namespace hearth::data
