// SPDX-License-Identifier: Apache-2.0
// What a GPU leaves open about rounding: the last bits of its approximate instructions, and the order in which a
// tensor core sums. A seed chooses among what is allowed; the same seed gives the same bits.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace hearth::cuda::emulate {

/// "exact": as the host rounds; or a seed from 1 on. Holds for the launches that follow. At the start it is what
/// HEARTH_EMULATE_ROUNDING says, else 1. UsageError for another word.
void set_rounding(std::string_view name);
/// The rounding in force, in the same words.
std::string rounding();

/// The result of an approximate instruction for the operand x: up to 2 ulp from `exact`, a function of the seed and the
/// two numbers. Zeros, subnormals, infinities, NaN and the power of 0 are exact, as CUDA's documentation has them.
float approximate(float exact, float x);

/// How a tensor core adds 16 products to what it has.
struct SumOrder {
  std::array<std::uint8_t, 16> place;  ///< product k is summed as the place[k]-th
  bool begins_with_sum;                ///< what it has comes first, not last
};
const SumOrder& sum_order();

}  // namespace hearth::cuda::emulate
