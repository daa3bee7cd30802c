// SPDX-License-Identifier: Apache-2.0
// What a dataset holds, and whether all of it can be read: behind `hearth data inspect` and `hearth data verify`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json_text.h"
#include "data/images/image_dataset.h"

namespace hearth::data {

struct Range {
  int least = 0;
  int greatest = 0;
};

struct Inspection {
  std::string source;
  std::int64_t samples = 0;
  std::vector<std::string> class_names;
  std::vector<std::int64_t> histogram;  ///< samples of each class
  // Of the samples that were decoded:
  std::int64_t decoded = 0;
  Range height;
  Range width;
  Range channels;
  ChannelStatistics statistics;
  std::string sha256;  ///< of every decoded sample's label, size and pixels, in order; empty unless all were decoded
  Warnings problems;   ///< samples that cannot be read or have a label outside the classes
  Warnings warnings;   ///< what else is worth a look
  Json examples = Json::array();  ///< a few of the decoded samples: index, name, label, class and size
};

/// Counts labels, and decodes up to `most` samples spread evenly over the set (negative: all of them).
Inspection inspect(const ImageDataset& dataset, std::int64_t most = 256);
/// Decodes everything; the set is sound if it has no problems.
Inspection verify(const ImageDataset& dataset);

/// As a JSON object, with the class histogram by name.
Json to_json(const Inspection& inspection);
/// As lines for people.
std::string to_text(const Inspection& inspection);

}  // namespace hearth::data
