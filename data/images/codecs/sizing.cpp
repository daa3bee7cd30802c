// SPDX-License-Identifier: Apache-2.0
#include "data/images/codecs/sizing.h"

#include <algorithm>
#include <cmath>

namespace hearth::data {

Span inputs_of(double begin, double extent, int size, int first, int count, ResizeFilter filter) {
  const double scale = extent / size;
  const double reach = (filter == ResizeFilter::bicubic ? 2.0 : 1.0) * std::max(scale, 1.0);
  // A pixel more on either side than the filter reaches: roundings decide nothing.
  const double lowest = begin + (first + 0.5) * scale - reach - 1;
  const double highest = begin + (first + count - 0.5) * scale + reach + 1;
  return {static_cast<int>(std::floor(std::max(lowest, begin))),
          static_cast<int>(std::ceil(std::min(highest, begin + extent)))};
}

int reduction_of(const Sizing& sizing) {
  if (!sizing.scaled_decoding) return 1;
  const auto fits = [&](std::int64_t times) {
    return sizing.box.height >= times * sizing.height && sizing.box.width >= times * sizing.width;
  };
  return fits(8) ? 8 : fits(4) ? 4 : fits(2) ? 2 : 1;
}

}  // namespace hearth::data
