// SPDX-License-Identifier: Apache-2.0
// Where the squares of Winograd's convolution lie in their images, and which have results in a plane.
#include <algorithm>

#include "ops/conv/cpu/winograd_kernels.h"

namespace hearth::kernels::winograd {
namespace {

// Squares of a group by their results, in their order.
struct Sizes {
  std::int64_t first, images;  // squares before the group; its images
  std::int64_t tall, wide;     // rows of whole squares, columns
  std::int64_t tall_narrow, tall_wide, short_wide;

  Sizes(const Squares& s, std::int64_t index) {
    const std::int64_t before = index / (s.group * s.of_image()) * s.group;
    first = before * s.of_image(), images = std::min(s.group, s.n - before);
    tall = s.down - s.short_down, wide = s.across - s.short_across;
    tall_narrow = images * tall * s.short_across, tall_wide = images * tall * wide;
    short_wide = images * s.short_down * wide;
  }
};

}  // namespace

Squares::Corner Squares::corner(std::int64_t index) const {
  index = std::min(index, count() - 1);
  const Sizes sizes(*this, index);
  std::int64_t i = index - sizes.first;
  const bool is_tall = i < sizes.tall_narrow + sizes.tall_wide;
  const std::int64_t narrow_end = sizes.tall_narrow, wide_end = narrow_end + sizes.tall_wide + sizes.short_wide;
  const bool is_wide = i >= narrow_end && i < wide_end;
  if (is_wide) i -= is_tall ? narrow_end : narrow_end + sizes.tall_wide;
  if (i >= wide_end) i -= wide_end;
  const std::int64_t rows = is_tall ? sizes.tall : short_down, columns = is_wide ? sizes.wide : short_across;
  const std::int64_t row = i / columns % rows, column = i % columns;
  const std::int64_t top = is_tall ? row * tile : sizes.tall * tile + row * (tile - 1);
  const std::int64_t left = is_wide ? column * tile : sizes.wide * tile + column * (tile - 1);
  return {sizes.first / of_image() + i / columns / rows, top - pad_h, left - pad_w, is_tall ? tile : tile - 1,
          is_wide ? tile : tile - 1};
}

Range Squares::in_plane(std::int64_t plane, Range which) const {
  const bool of_tall = plane / patch() == patch() - 1, of_wide = plane % patch() == patch() - 1;
  const Sizes sizes(*this, which.begin);
  Range found = which;
  const std::int64_t wide_begin = sizes.first + sizes.tall_narrow, tall_end = wide_begin + sizes.tall_wide;
  if (of_wide) found = {std::max(found.begin, wide_begin), std::min(found.end, tall_end + sizes.short_wide)};
  if (of_tall) found.end = std::min(found.end, tall_end);
  return {found.begin, std::max(found.begin, found.end)};
}

}  // namespace hearth::kernels::winograd
