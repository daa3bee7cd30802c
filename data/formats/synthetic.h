// SPDX-License-Identifier: Apache-2.0
// Images made from numbers: for benchmarks of any size and for tests that need something learnable without files.
#pragma once

#include "data/images/image_dataset.h"

namespace hearth::data {

struct SyntheticOptions {
  std::int64_t train_size = 1024;
  std::int64_t test_size = 256;
  int height = 32;
  int width = 32;
  int channels = 3;
  std::int64_t classes = 10;
  /// Standard deviation of the noise in grey levels; each class has a smooth pattern of its own beneath it.
  double noise = 32;
  std::uint64_t seed = 0;
  bool operator==(const SyntheticOptions&) const = default;
};

/// train and test. Sample i is of class i mod classes; its pixels are a pure function of (seed, split, i).
HEARTH_API ImageSplits synthetic(const SyntheticOptions& options);

}  // namespace hearth::data
