// SPDX-License-Identifier: Apache-2.0
// Operands of tensor-core kernels, and how far each element of a result may be from f64's.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/random.h"
#include "core/tensor.h"

namespace hearth::test {

/// Random numbers in the values of a type, on the CPU in f64.
inline Tensor numbers(const Shape& shape, std::uint64_t stream, DType dtype) {
  Random random(13, stream);
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (double& value : values) value = random.normal();
  return Tensor::of<double>(shape, values).to(dtype).to(DType::f64);
}

/// Each element within its own rounding, beside what f32 sums of `terms` numbers of order 1 may be off: tensor cores
/// (an H200's) cut sums off where others round.
inline void expect_rounded(const Tensor& found, const Tensor& expected, std::int64_t terms) {
  const std::vector<double> a = found.to_doubles(), b = expected.to_doubles();
  ASSERT_EQ(a.size(), b.size());
  const double rounding = found.dtype() == DType::f32 ? 0x1p-24 : found.dtype() == DType::f16 ? 0x1p-11 : 0x1p-8;
  const double sums = 0x1p-22 * static_cast<double>(terms);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < a.size() && wrong < 3; ++i) {
    if (std::abs(a[i] - b[i]) <= rounding * std::abs(b[i]) + sums) continue;
    ADD_FAILURE() << "element " << i << " of " << found.dtype() << " is " << a[i] << ", expected " << b[i];
    ++wrong;
  }
}

}  // namespace hearth::test
