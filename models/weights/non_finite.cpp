// SPDX-License-Identifier: Apache-2.0
#include "models/weights/non_finite.h"

#include <cstring>

namespace hearth {
namespace {

/// `exponent` is the mask of the exponent's bits, which lie above those of the fraction.
template <class Bits>
NonFinite count(std::span<const std::byte> bytes, Bits exponent) {
  const Bits fraction = static_cast<Bits>((exponent & (~exponent + 1)) - 1);
  NonFinite found;
  for (std::size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits value;
    std::memcpy(&value, bytes.data() + at, sizeof(Bits));
    if ((value & exponent) == exponent) ++((value & fraction) != 0 ? found.nan : found.infinite);
  }
  return found;
}

}  // namespace

std::string NonFinite::text() const {
  std::string result = nan > 0 ? join_text(nan, " NaN") : std::string();
  if (infinite > 0) result += join_text(result.empty() ? "" : ", ", infinite, " infinite");
  return result;
}

NonFinite count_non_finite(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::f64:
      return count<std::uint64_t>(bytes, 0x7ff0000000000000);
    case DType::f32:
      return count<std::uint32_t>(bytes, 0x7f800000);
    case DType::f16:
      return count<std::uint16_t>(bytes, 0x7c00);
    case DType::bf16:
      return count<std::uint16_t>(bytes, 0x7f80);
    default:
      return {};
  }
}

}  // namespace hearth
