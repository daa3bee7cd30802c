// SPDX-License-Identifier: Apache-2.0
// BMP decoding: uncompressed images of 1, 4, 8, 16, 24 and 32 bits, by the headers of OS/2 1 and of Windows 3 to 5.
// What the header claims is compared with the file's length before anything is done with it.
#include <array>
#include <bit>
#include <cstdlib>

#include "core/error.h"
#include "data/images/codecs/image_codecs.h"

namespace hearth::data {
namespace {

constexpr std::int64_t file_header_bytes = 14;

/// Bits of a pixel that hold a channel.
struct Field {
  int shift = 0;
  int bits = 0;

  /// The channel's value, 0 to 255; `otherwise` where the pixel has no such channel.
  std::uint8_t value(std::uint32_t pixel, std::uint8_t otherwise) const {
    if (bits == 0) return otherwise;
    const std::uint64_t most = (std::uint64_t{1} << bits) - 1;
    return static_cast<std::uint8_t>(((pixel >> shift & most) * 255 + most / 2) / most);
  }
};

struct Header {
  std::int64_t width = 0;
  std::int64_t height = 0;
  bool is_top_down = false;
  int bits = 0;
  std::int64_t colors_at = 0;  ///< where the palette begins
  std::int64_t colors = 0;     ///< and how many colours it has
  int bytes_a_color = 4;
  std::int64_t pixels_at = 0;
  std::array<Field, 4> fields{};  ///< red, green, blue and alpha of 16 and 32 bits

  /// Rows begin at multiples of 4 bytes.
  std::int64_t stride() const { return (width * bits + 31) / 32 * 4; }
};

class Reader {
 public:
  explicit Reader(const EncodedImage& file) : file_(file) {}

  std::uint32_t number(std::int64_t at, int bytes) const {
    require(at + bytes <= static_cast<std::int64_t>(file_.bytes.size()), "the file ends too early");
    std::uint32_t value = 0;
    for (int i = bytes - 1; i >= 0; --i) value = value << 8 | file_.bytes[static_cast<std::size_t>(at + i)];
    return value;
  }
  std::int64_t signed_number(std::int64_t at) const { return static_cast<std::int32_t>(number(at, 4)); }
  template <class... Parts>
  void require(bool condition, const Parts&... parts) const {
    HEARTH_CHECK(DataError, condition, file_.name, ": broken BMP: ", parts...);
  }
  Field field(std::uint32_t mask) const {
    if (mask == 0) return {};
    const Field field{std::countr_zero(mask), std::popcount(mask)};
    require(field.bits == 32 || mask >> field.shift == (1u << field.bits) - 1, "a channel's bits do not lie together");
    return field;
  }
  Header header() const;

 private:
  void read_masks(Header& header, std::int64_t compression, std::int64_t header_bytes) const;

  const EncodedImage& file_;
};

void Reader::read_masks(Header& header, std::int64_t compression, std::int64_t header_bytes) const {
  constexpr std::int64_t masks_at = file_header_bytes + 40;
  if (compression == 0) {
    const bool wide = header.bits == 32;
    header.fields = {field(wide ? 0xff0000 : 0x7c00), field(wide ? 0xff00 : 0x3e0), field(wide ? 0xff : 0x1f), Field{}};
    return;
  }
  for (int i = 0; i < 3; ++i) header.fields[static_cast<std::size_t>(i)] = field(number(masks_at + 4 * i, 4));
  if (header_bytes >= 56) header.fields[3] = field(number(masks_at + 12, 4));
}

Header Reader::header() const {
  Header header;
  header.pixels_at = number(10, 4);
  const std::int64_t header_bytes = number(14, 4);
  std::int64_t compression = 0;
  if (header_bytes == 12) {
    header.width = number(18, 2);
    header.height = number(20, 2);
    header.bits = static_cast<int>(number(24, 2));
    header.bytes_a_color = 3;
  } else {
    require(header_bytes >= 40 && header_bytes <= 124, "a header of ", header_bytes, " bytes; 12 and 40 to 124 exist");
    header.width = signed_number(18);
    header.height = std::abs(signed_number(22));
    header.is_top_down = signed_number(22) < 0;
    header.bits = static_cast<int>(number(28, 2));
    compression = number(30, 4);
    header.colors = number(46, 4);
  }
  const bool has_palette = header.bits == 1 || header.bits == 4 || header.bits == 8;
  const bool has_fields = header.bits == 16 || header.bits == 32;
  require(has_palette || has_fields || header.bits == 24, "pixels of ", header.bits, " bits");
  HEARTH_CHECK(DataError, compression == 0 || (compression == 3 && has_fields), file_.name, ": a BMP of compression ",
               compression, ", which is not read; save it uncompressed, or as PNG");
  if (has_fields) read_masks(header, compression, header_bytes);
  if (has_palette) {
    const std::int64_t most = std::int64_t{1} << header.bits;
    if (header.colors == 0) header.colors = most;
    require(header.colors <= most, header.colors, " colours for pixels of ", header.bits, " bits");
    header.colors_at = file_header_bytes + header_bytes;
    number(header.colors_at + (header.colors - 1) * header.bytes_a_color, header.bytes_a_color);
  }
  return header;
}

void put_pixel(const Header& header, std::uint32_t pixel, std::uint8_t* rgb) {
  const unsigned alpha = header.fields[3].value(pixel, 255);
  for (std::size_t c = 0; c < 3; ++c) {
    const unsigned value = header.fields[c].value(pixel, 0);
    rgb[c] = static_cast<std::uint8_t>((value * alpha + 255 * (255 - alpha) + 127) / 255);
  }
}

}  // namespace

void decode_bmp(const EncodedImage& file, const RegionChoice& choice, Image& image) {
  const Reader reader(file);
  const Header header = reader.header();
  require_decodable(file, header.width, header.height, 3);
  if (header.pixels_at + header.stride() * header.height > static_cast<std::int64_t>(file.bytes.size()))
    refuse_claim(file, header.width, header.height);
  const Box box = choice.cut(static_cast<int>(header.height), static_cast<int>(header.width), false).box;
  image.reshape(box.height, box.width, 3);
  const std::uint8_t* const bytes = file.bytes.data();
  for (int y = box.top; y < box.top + box.height; ++y) {
    const std::int64_t stored = header.is_top_down ? y : header.height - 1 - y;
    const std::uint8_t* const from = bytes + header.pixels_at + stored * header.stride();
    std::uint8_t* to = image.row(y - box.top);
    for (int x = box.left; x < box.left + box.width; ++x, to += 3) {
      if (header.bits <= 8) {
        const int first = x * header.bits;
        const std::int64_t index = from[first / 8] >> (8 - header.bits - first % 8) & ((1 << header.bits) - 1);
        reader.require(index < header.colors, "colour ", index, " of ", header.colors);
        const std::uint8_t* const bgr = bytes + header.colors_at + index * header.bytes_a_color;
        to[0] = bgr[2], to[1] = bgr[1], to[2] = bgr[0];
      } else if (header.bits == 24) {
        to[0] = from[3 * x + 2], to[1] = from[3 * x + 1], to[2] = from[3 * x];
      } else {
        std::uint32_t pixel = 0;
        for (int i = header.bits / 8 - 1; i >= 0; --i) pixel = pixel << 8 | from[x * (header.bits / 8) + i];
        put_pixel(header, pixel, to);
      }
    }
  }
}

}  // namespace hearth::data
