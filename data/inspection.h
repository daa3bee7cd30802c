// SPDX-License-Identifier: Apache-2.0
// What the samples of a split are, whatever they are: behind `hearth data inspect`, `data verify` and `bench data`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json_text.h"
#include "data/dataset.h"

namespace hearth::data {

struct PartReport {
  Json json;
  std::string text;
  std::int64_t problems = 0;  ///< samples that cannot be read, or have bad labels
};

/// Reports on a split of images, images with boxes or masks, sequences or rows of a table; looks at all samples if
/// `whole`, else at some. Padding is that of batches of `batch_size`. UsageError for other samples.
PartReport inspect_part(const Dataset& part, bool whole, std::int64_t batch_size);

/// Writes a PNG with about `most` samples of a split of images side by side, with their boxes or masks, and returns
/// their number. UsageError for other samples.
std::int64_t write_sheet(const std::string& path, const Dataset& part, std::int64_t most);

/// Image files of a split, as they are, from everywhere in it: at most `max_files` and about `max_bytes` in all; none
/// where the samples have no such files.
std::vector<std::vector<std::uint8_t>> encoded_samples(const Dataset& part, std::int64_t max_files,
                                                       std::uint64_t max_bytes);

}  // namespace hearth::data
