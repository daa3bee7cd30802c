// SPDX-License-Identifier: Apache-2.0
// UCI digits: 1,797 handwritten digits, 8x8 grey, part of the library itself. The set that every build can train on.
// Source: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998 (CC BY 4.0).
#pragma once

#include "data/images/image_dataset.h"

namespace hearth::data {

/// What the test split is: samples drawn by a seed, or the last ones, by other writers, which is harder.
enum class DigitsSplit : std::uint8_t { shuffled, ordered };

struct DigitsOptions {
  DigitsSplit split = DigitsSplit::shuffled;
  std::int64_t test_size = 360;
  std::uint64_t seed = 0;
};

/// All 1,797 samples in the file's order, values 0..16 scaled to 0..255.
HEARTH_API ImageDatasetPointer digits();
/// train and test.
HEARTH_API ImageSplits digits(const DigitsOptions& options);

}  // namespace hearth::data
