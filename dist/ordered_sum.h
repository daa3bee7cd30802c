// SPDX-License-Identifier: Apache-2.0
// The one order in which numbers of several ranks are added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/collective.h"
#include "core/dtype.h"

namespace hearth::dist {

/// result[i] = the sum (minimum, maximum) over all rows of row[i], for `count` elements: neighbouring rows in pairs,
/// then pairs of these. f16 and bf16 are added in f32. Rows have type `from`; the result has type `to`, which is
/// `from`, f32 for rows of f16 or bf16, or one of these for rows of f32. It may be one of the rows. DTypeError for
/// bool.
void reduce_rows(std::span<const std::byte* const> rows, DType from, std::byte* result, DType to, std::int64_t count,
                 Reduce op);

}  // namespace hearth::dist
