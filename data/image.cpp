// SPDX-License-Identifier: Apache-2.0
// Choosing the decoder by a file's first bytes.
#include "hearth/data/image.h"

#include <algorithm>
#include <array>

#include "hearth/core/error.h"
#include "hearth/data/image_codecs.h"
#include "hearth/data/source_bytes.h"

namespace hearth::data {

void Image::reshape(int new_height, int new_width, int new_channels) {
  HEARTH_CHECK(ShapeError,
               new_height >= 0 && new_width >= 0 && new_channels >= 0 && new_channels <= max_image_channels &&
                   static_cast<std::int64_t>(new_height) * new_width <= max_image_pixels,
               "image: ", new_height, " x ", new_width, " x ", new_channels, " is outside 0..", max_image_pixels,
               " pixels of 0..", max_image_channels, " channels");
  height = new_height;
  width = new_width;
  channels = new_channels;
  pixels.resize(static_cast<std::size_t>(new_height) * row_bytes());
}

namespace {
constexpr const char* memory_remedy =
    " MiB of memory to decode: make the image smaller, or allow more (decode_mb of an image_folder)";
}

void require_decodable(const EncodedImage& file, std::int64_t width, std::int64_t height, std::int64_t bytes_a_pixel,
                       std::int64_t further_bytes) {
  HEARTH_CHECK(DataError, width > 0 && height > 0 && width <= max_image_pixels / height, file.name, ": ", width, " x ",
               height, " pixels; 1 to at most ", max_image_pixels, " can be decoded");
  const std::int64_t needed = width * height * bytes_a_pixel + further_bytes;
  HEARTH_CHECK(DataError, needed <= file.memory_limit, file.name, ": ", width, " x ", height, " pixels take ",
               needed >> 20, " MiB; the limit is ", file.memory_limit >> 20, memory_remedy);
}

void refuse_memory(const EncodedImage& file) {
  throw DataError(join_text(file.name, ": takes more than ", file.memory_limit >> 20, memory_remedy));
}

void refuse_claim(const EncodedImage& file, std::int64_t width, std::int64_t height) {
  throw DataError(join_text(file.name, ": the header claims ", width, " x ", height, " pixels, which a file of ",
                            file.bytes.size(), " bytes cannot hold; it is broken or cut off"));
}

void decode_image(std::span<const std::uint8_t> bytes, const std::string& name, Image& image,
                  std::int64_t memory_limit) {
  constexpr std::array<std::uint8_t, 3> jpeg{0xff, 0xd8, 0xff};
  constexpr std::array<std::uint8_t, 4> png{0x89, 'P', 'N', 'G'};
  const auto begins_with = [&](const auto& magic) {
    return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
  };
  HEARTH_CHECK(UsageError, memory_limit > 0, name, ": a memory limit of ", memory_limit,
               " bytes; give a positive one, or leave it out for ", default_decode_bytes);
  const EncodedImage file{bytes, name, memory_limit};
  if (begins_with(jpeg)) return decode_jpeg(file, image);
  if (begins_with(png)) return decode_png(file, image);
  throw DataError(name + (bytes.empty() ? ": the file is empty" : ": neither JPEG nor PNG"));
}

Image decode_image(const std::string& path, std::int64_t memory_limit) {
  std::vector<std::uint8_t> bytes;
  read_bytes(path, bytes, image_limit);
  Image image;
  decode_image(bytes, path, image, memory_limit);
  return image;
}

}  // namespace hearth::data
