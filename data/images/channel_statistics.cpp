// SPDX-License-Identifier: Apache-2.0
#include "data/images/channel_statistics.h"

#include <algorithm>
#include <cmath>

namespace hearth::data {

void PixelHistogram::add(const Image& image) {
  const auto channels = static_cast<std::size_t>(image.channels);
  counts_.resize(std::max(counts_.size(), 256 * channels));
  std::size_t channel = 0;
  for (const std::uint8_t value : image.pixels) {
    ++counts_[256 * channel + value];
    channel = channel + 1 == channels ? 0 : channel + 1;
  }
}

ChannelStatistics PixelHistogram::statistics() const {
  ChannelStatistics result;
  for (std::size_t begin = 0; begin < counts_.size(); begin += 256) {
    double count = 0, sum = 0, squares = 0;
    for (std::size_t value = 0; value < 256; ++value) {
      const auto times = static_cast<double>(counts_[begin + value]);
      const double level = static_cast<double>(value) / 255.0;
      count += times;
      sum += times * level;
      squares += times * level * level;
    }
    const double mean = sum / std::max(count, 1.0);
    result.mean.push_back(mean);
    result.std.push_back(std::sqrt(std::max(0.0, squares / std::max(count, 1.0) - mean * mean)));
  }
  return result;
}

ChannelStatistics channel_statistics(const ImageDataset& dataset, std::int64_t most, BadSamplePolicy policy) {
  PixelHistogram histogram;
  Image image;
  const std::int64_t samples = std::min(most, dataset.size());
  for (std::int64_t i = 0; i < samples; ++i) {
    try {
      // The first ones of a sorted set are of few classes.
      dataset.read(i * dataset.size() / samples, image);
    } catch (const Error& error) {
      if (policy == BadSamplePolicy::fail || !is_bad_sample(error)) throw;
      continue;
    }
    histogram.add(image);
  }
  return histogram.statistics();
}

ChannelStatistics manifest_statistics(const Json& manifest) {
  const auto numbers = [&](const char* key) {
    std::vector<double> values;
    for (const Json& number : manifest.at(key).items()) values.push_back(number.as_number());
    return values;
  };
  return {numbers("mean"), numbers("std")};
}

}  // namespace hearth::data
