// SPDX-License-Identifier: Apache-2.0
// A gzip file that inflates to a hundred and fifty times its size, without a library that compresses.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace hearth::test {

/// gzip whose data, one block of deflate's fixed codes (RFC 1951), are at least `bytes` zeros. It ends there: without
/// the end of the block, and without checksum.
inline std::vector<std::uint8_t> gzip_of_zeros(std::uint64_t bytes) {
  std::vector<std::uint8_t> gzip{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
  unsigned held = 0, bits = 0;
  // The first sign of a code is the lowest free bit.
  const auto put = [&](const char* code) {
    for (; *code != 0; ++code) {
      held |= static_cast<unsigned>(*code - '0') << bits;
      if (++bits < 8) continue;
      gzip.push_back(static_cast<std::uint8_t>(held));
      held = bits = 0;
    }
  };
  put("110");       // the last block, fixed codes: its bits come lowest first
  put("00110000");  // the literal 0
  // The length 258 is code 285, the distance 1 is code 0.
  for (std::uint64_t made = 1; made < bytes; made += 258) put("1100010100000");
  put("0000000");  // the end of the block
  while (bits != 0) put("0");
  return gzip;
}

}  // namespace hearth::test
