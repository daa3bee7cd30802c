// SPDX-License-Identifier: Apache-2.0
// Choosing the decoder by a file's first bytes.
#include "data/images/codecs/decode.h"

#include <cstring>
#include <string_view>

#include "core/error.h"
#include "data/images/codecs/exif.h"
#include "data/images/codecs/image_codecs.h"
#include "data/loading/stages.h"
#include "data/source/source_bytes.h"

namespace hearth::data {

Region region_of_whole(const Image& image, const ChooseSizing& choose) {
  const Sizing sizing = choose(image.height, image.width);
  require_inside(sizing, image.height, image.width);
  const Box& box = sizing.box;
  return {sizing, {1.0 * box.top, 1.0 * box.left, 1.0 * box.height, 1.0 * box.width}, image.height, image.width};
}

namespace {

void decode_as_stored(const EncodedImage& file, const RegionChoice& choice, Image& image) {
  const auto has = [&](std::size_t at, std::string_view text) {
    return file.bytes.size() >= at + text.size() && std::memcmp(file.bytes.data() + at, text.data(), text.size()) == 0;
  };
  if (has(0, "\xff\xd8\xff")) return decode_jpeg(file, choice, image);
  if (has(0, "\x89PNG")) return decode_png(file, choice, image);
  if (has(0, "RIFF") && has(8, "WEBP")) return decode_webp(file, choice, image);
  if (has(0, "BM")) return decode_bmp(file, choice, image);
  if (file.bytes.empty()) throw DataError(file.name + ": the file is empty");
  std::string other_format;
  if (has(0, "GIF8")) other_format = " (it is a GIF)";
  if (has(0, std::string_view("II*\0", 4)) || has(0, std::string_view("MM\0*", 4))) other_format = " (it is a TIFF)";
  throw DataError(file.name + ": neither JPEG, PNG, WebP nor BMP" + other_format);
}

Region decode(std::span<const std::uint8_t> bytes, const std::string& name, const ChooseSizing* choose, Image& image,
              std::int64_t memory_limit) {
  HEARTH_CHECK(UsageError, memory_limit > 0, name, ": a memory limit of ", memory_limit,
               " bytes; give a positive one, or leave it out for ", default_decode_bytes);
  const StageScope stage(Stage::decode);
  const EncodedImage file{bytes, name, memory_limit};
  Region region{.orientation = exif_orientation(bytes)};
  decode_as_stored(file, choose ? RegionChoice(*choose, region) : RegionChoice(region), image);
  if (region.orientation != 1) require_decodable(file, region.width, region.height, 6);
  make_upright(image, region.orientation);
  return region;
}

}  // namespace

int decode_image(std::span<const std::uint8_t> bytes, const std::string& name, Image& image,
                 std::int64_t memory_limit) {
  return decode(bytes, name, nullptr, image, memory_limit).orientation;
}

Region decode_region(std::span<const std::uint8_t> bytes, const std::string& name, const ChooseSizing& choose,
                     Image& image, std::int64_t memory_limit) {
  return decode(bytes, name, &choose, image, memory_limit);
}

Image decode_image(const std::string& path, std::int64_t memory_limit) {
  std::vector<std::uint8_t> bytes;
  read_bytes(path, bytes, image_limit);
  Image image;
  decode_image(bytes, path, image, memory_limit);
  return image;
}

}  // namespace hearth::data
