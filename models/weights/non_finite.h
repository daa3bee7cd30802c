// SPDX-License-Identifier: Apache-2.0
// Counts values that are NaN or infinite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/dtype.h"

namespace hearth {

struct NonFinite {
  std::int64_t nan = 0;
  std::int64_t infinite = 0;
  bool any() const { return nan + infinite > 0; }
  /// "2 NaN, 1 infinite"; "" where there are none.
  std::string text() const;
};

/// Counts the non-finite values of a floating type in bytes, which need not be aligned. Other types have none.
NonFinite count_non_finite(DType dtype, std::span<const std::byte> bytes);

}  // namespace hearth
