// SPDX-License-Identifier: Apache-2.0
// The statistics of a tensor's channels, taken in passing by whoever writes it. Internal.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace hearth {

/// What a convolution leaves of its result y [..., C] for the batch normalisation that follows, so that y need not be
/// read again for its statistics: mean and sum of squared deviations, by channel, of each run of rows of y. They are
/// those of the values as stored, and valid until y is changed. `parts` stays undefined where nothing was taken.
struct ChannelMoments {
  Tensor parts;               ///< f64 [2, C, runs]: the means, then the sums of squared deviations from them
  std::int64_t run_rows = 0;  ///< rows of a run; the last run may have fewer
};

}  // namespace hearth
