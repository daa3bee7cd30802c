// SPDX-License-Identifier: Apache-2.0
// An option for both axes of an image.
#pragma once

#include <cstdint>

namespace hearth {

/// One number for both image axes, or {height, width}.
struct Pair {
  std::int64_t h = 1;
  std::int64_t w = 1;

  constexpr Pair(std::int64_t both) : h(both), w(both) {}  // NOLINT: `.stride = 2` is meant to read so
  constexpr Pair(std::int64_t height, std::int64_t width) : h(height), w(width) {}
  bool operator==(const Pair&) const = default;
};

}  // namespace hearth
