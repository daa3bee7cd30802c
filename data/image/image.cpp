// SPDX-License-Identifier: Apache-2.0
// Choosing the decoder by a file's first bytes.
#include "data/image/image.h"

#include <cstring>
#include <string_view>

#include "core/error.h"
#include "data/image/exif.h"
#include "data/image/image_codecs.h"
#include "data/source_bytes.h"
#include "data/stages.h"

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

void composite_on_white(Image& image) {
  const std::size_t count = image.pixels.size() / 4;
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned alpha = image.pixels[4 * i + 3];
    for (std::size_t c = 0; c < 3; ++c) {
      const unsigned value = image.pixels[4 * i + c];
      image.pixels[3 * i + c] = static_cast<std::uint8_t>((value * alpha + 255 * (255 - alpha) + 127) / 255);
    }
  }
  image.reshape(image.height, image.width, 3);
}

namespace {

void decode_as_stored(const EncodedImage& file, Image& image) {
  const auto has = [&](std::size_t at, std::string_view text) {
    return file.bytes.size() >= at + text.size() && std::memcmp(file.bytes.data() + at, text.data(), text.size()) == 0;
  };
  if (has(0, "\xff\xd8\xff")) return decode_jpeg(file, image);
  if (has(0, "\x89PNG")) return decode_png(file, image);
  if (has(0, "RIFF") && has(8, "WEBP")) return decode_webp(file, image);
  if (has(0, "BM")) return decode_bmp(file, image);
  if (file.bytes.empty()) throw DataError(file.name + ": the file is empty");
  std::string found;
  if (has(0, "GIF8")) found = " (it is a GIF)";
  if (has(0, std::string_view("II*\0", 4)) || has(0, std::string_view("MM\0*", 4))) found = " (it is a TIFF)";
  throw DataError(file.name + ": neither JPEG, PNG, WebP nor BMP" + found);
}

}  // namespace

int decode_image(std::span<const std::uint8_t> bytes, const std::string& name, Image& image,
                 std::int64_t memory_limit) {
  HEARTH_CHECK(UsageError, memory_limit > 0, name, ": a memory limit of ", memory_limit,
               " bytes; give a positive one, or leave it out for ", default_decode_bytes);
  const StageScope stage(Stage::decode);
  const EncodedImage file{bytes, name, memory_limit};
  decode_as_stored(file, image);
  const int orientation = exif_orientation(bytes);
  if (orientation != 1) require_decodable(file, image.width, image.height, 6);
  make_upright(image, orientation);
  return orientation;
}

Image decode_image(const std::string& path, std::int64_t memory_limit) {
  std::vector<std::uint8_t> bytes;
  read_bytes(path, bytes, image_limit);
  Image image;
  decode_image(bytes, path, image, memory_limit);
  return image;
}

}  // namespace hearth::data
