// SPDX-License-Identifier: Apache-2.0
// Checksums of bytes: CRC-32C to find damage, SHA-256 to name contents. Both use the processor's instructions where it
// has them; the result does not depend on that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hearth {

/// CRC-32C (Castagnoli polynomial 0x1EDC6F41, reflected; RFC 3720 appendix B.4) of the bytes, or of a longer sequence
/// whose first part has the checksum `before`.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);
/// The same by tables only: what every processor can do.
std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// CRC-32 as zlib, PNG and gzip have it (polynomial 0x04C11DB7, reflected), for files of other programs.
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// Eight lower-case hexadecimal digits.
std::string hex_of(std::uint32_t checksum);

/// SHA-256 (FIPS 180-4) of bytes that come in pieces.
class Sha256 {
 public:
  enum class Path : std::uint8_t { best, portable };
  explicit Sha256(Path path = Path::best);

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  /// The digest of everything so far; the object can go on taking bytes.
  std::array<std::uint8_t, 32> digest() const;
  /// The digest as 64 lower-case hexadecimal digits.
  std::string hex() const;

 private:
  using Compress = void (*)(std::array<std::uint32_t, 8>& state, const std::byte* blocks, std::size_t count);

  Compress compress_;
  std::array<std::uint32_t, 8> state_;
  std::array<std::byte, 64> pending_{};
  std::uint64_t length_ = 0;
};

/// SHA-256 of the bytes as 64 lower-case hexadecimal digits.
std::string sha256(std::span<const std::byte> bytes);
std::string sha256(std::string_view text);

}  // namespace hearth
