// SPDX-License-Identifier: Apache-2.0
// The one list of comparisons. A row makes the public functions and both kernels.
#pragma once

// clang-format off
#define HEARTH_COMPARISONS(row) \
  row(equal,         a == b)                \
  row(not_equal,     a != b)                \
  row(less,          a < b)                 \
  row(less_equal,    a <= b)                \
  row(greater,       a > b)                 \
  row(greater_equal, a >= b)                \
  row(logical_and,   (a != 0) && (b != 0))  \
  row(logical_or,    (a != 0) || (b != 0))
// clang-format on
