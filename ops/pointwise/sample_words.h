// SPDX-License-Identifier: Apache-2.0
// Which samples stochastic depth leaves out, for CPU kernels: dropout's choice, of samples in place of elements.
#pragma once

#include <vector>

#include "ops/pointwise/dropout_strip.h"

namespace hearth::kernels {

/// The random words of `samples` samples; one is left out when its word lies below dropout_threshold().
inline std::vector<std::uint32_t> sample_words(const RandomKey& key, std::int64_t samples) {
  std::vector<std::uint32_t> all(static_cast<std::size_t>(samples));
  const std::int64_t first = key.first_element(samples);
  std::uint32_t words[dropout_strip];
  for (std::int64_t i = 0, taken = 0; i < samples; i += taken) {
    strip_words(key, static_cast<std::uint64_t>((first + i) / dropout_strip), words);
    const std::int64_t skipped = (first + i) % dropout_strip;
    taken = std::min(dropout_strip - skipped, samples - i);
    std::copy_n(words + skipped, taken, all.data() + i);
  }
  return all;
}

/// What stochastic depth multiplies samples with.
template <class P>
struct PathFactors {
  const P* factors;          ///< of each sample: 0 where it is left out. Null: nothing is
  std::int64_t sample_rows;  ///< rows of a sample

  HEARTH_ALWAYS_INLINE P of_row(std::int64_t row) const {
    return factors == nullptr ? P(1) : factors[row / sample_rows];
  }
};

}  // namespace hearth::kernels
