// SPDX-License-Identifier: Apache-2.0
// CRC-32C against RFC 3720 B.4, SHA-256 against FIPS 180 examples; the instruction paths against the portable ones.
#include "core/io/checksum.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/random.h"

namespace hearth::checksum_test {
namespace {

std::span<const std::byte> raw(std::string_view text) { return std::as_bytes(std::span(text)); }

std::vector<std::byte> random_bytes(std::size_t count) {
  Random random(7, 0);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next_u32());
  return bytes;
}

using Crc = std::uint32_t (*)(std::span<const std::byte>, std::uint32_t);

class Crc32c : public testing::TestWithParam<Crc> {};

TEST_P(Crc32c, KnownVectors) {
  const Crc crc = GetParam();
  EXPECT_EQ(crc({}, 0), 0u);
  EXPECT_EQ(crc(raw("123456789"), 0), 0xE3069283u);
  std::vector<std::byte> bytes(32, std::byte{0});
  EXPECT_EQ(crc(bytes, 0), 0x8A9136AAu);
  bytes.assign(32, std::byte{0xff});
  EXPECT_EQ(crc(bytes, 0), 0x62A8AB43u);
  for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc(bytes, 0), 0x46DD794Eu);
  for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(31 - i);
  EXPECT_EQ(crc(bytes, 0), 0x113FDB5Cu);
}

TEST_P(Crc32c, ContinuesFromAnySplitAndAlignment) {
  const Crc crc = GetParam();
  const std::vector<std::byte> bytes = random_bytes(100);
  const std::span<const std::byte> all(bytes);
  for (std::size_t start = 0; start < 9; ++start) {
    const std::uint32_t whole = crc32c_portable(all.subspan(start));
    for (std::size_t split = 0; split <= all.size() - start; ++split) {
      const std::uint32_t first = crc(all.subspan(start, split), 0);
      EXPECT_EQ(crc(all.subspan(start + split), first), whole) << start << " " << split;
    }
  }
}

TEST(Crc32, IsThatOfZlib) {
  EXPECT_EQ(crc32({}), 0u);
  EXPECT_EQ(crc32(raw("123456789")), 0xCBF43926u);
  EXPECT_EQ(crc32(raw("6789"), crc32(raw("12345"))), 0xCBF43926u);
}

INSTANTIATE_TEST_SUITE_P(Paths, Crc32c, testing::Values(&crc32c, &crc32c_portable));

TEST(Crc32cHex, HasEightDigits) {
  EXPECT_EQ(hex_of(0u), "00000000");
  EXPECT_EQ(hex_of(0xE3069283u), "e3069283");
}

class Sha256Paths : public testing::TestWithParam<Sha256::Path> {
 protected:
  static std::string hash(std::string_view text) {
    Sha256 hash(GetParam());
    hash.update(text);
    return hash.hex();
  }
};

TEST_P(Sha256Paths, KnownVectors) {
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_P(Sha256Paths, PiecesOfEveryLengthGiveTheWhole) {
  const std::vector<std::byte> bytes = random_bytes(300);
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    Sha256 whole(Sha256::Path::portable);
    whole.update(std::span(bytes).first(length));
    for (const std::size_t piece : {std::size_t{1}, std::size_t{63}, std::size_t{65}}) {
      Sha256 pieces(GetParam());
      for (std::size_t at = 0; at < length; at += piece) {
        pieces.update(std::span(bytes).subspan(at, std::min(piece, length - at)));
      }
      EXPECT_EQ(pieces.hex(), whole.hex()) << length << " in pieces of " << piece;
    }
  }
}

TEST_P(Sha256Paths, GoesOnAfterADigest) {
  Sha256 hash(GetParam());
  hash.update("ab");
  EXPECT_EQ(hash.hex(), sha256("ab"));
  hash.update("c");
  EXPECT_EQ(hash.hex(), sha256("abc"));
}

INSTANTIATE_TEST_SUITE_P(Paths, Sha256Paths, testing::Values(Sha256::Path::best, Sha256::Path::portable));

}  // namespace
}  // namespace hearth::checksum_test
