// SPDX-License-Identifier: Apache-2.0
// Mean and deviation of the channels of images.
#pragma once

#include <cstdint>
#include <vector>

#include "core/io/json_text.h"
#include "data/images/image_dataset.h"
#include "data/loading/quarantine.h"

namespace hearth::data {

/// Counts of every pixel value of each channel: sums that are exact, whatever the order.
class HEARTH_API PixelHistogram {
 public:
  void add(const Image& image);
  /// Of everything added.
  ChannelStatistics statistics() const;

 private:
  std::vector<std::uint64_t> counts_;  // [channel][256]
};

/// Measured over `most` samples at equal distances, from the first on; over all where there are no more.
HEARTH_API ChannelStatistics channel_statistics(const ImageDataset& dataset, std::int64_t most,
                                                BadSamplePolicy policy = BadSamplePolicy::fail);

/// "mean" and "std" of a packed set's manifest.
HEARTH_API ChannelStatistics manifest_statistics(const Json& manifest);

}  // namespace hearth::data
