// SPDX-License-Identifier: Apache-2.0
// PNG decoding and writing by libpng. Its C errors leave by longjmp, so the functions that call setjmp own no C++
// object.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "hearth/core/build.h"
#include "hearth/core/error.h"
#include "hearth/data/image.h"

#if HEARTH_HAS_PNG
#include <png.h>

namespace hearth::data {
namespace {

struct Decoding {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const unsigned char* bytes = nullptr;
  std::size_t left = 0;
  int passes = 1;
  bool has_alpha = false;
  char message[256] = "";

  ~Decoding() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* decoding = static_cast<Decoding*>(png_get_error_ptr(png));
  std::snprintf(decoding->message, sizeof decoding->message, "%s", message);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void take_bytes(png_structp png, png_bytep target, png_size_t count) {
  auto* decoding = static_cast<Decoding*>(png_get_io_ptr(png));
  if (count > decoding->left) png_error(png, "the file ends too early");
  std::memcpy(target, decoding->bytes, count);
  decoding->bytes += count;
  decoding->left -= count;
}

// Asks for 8-bit RGB or RGBA rows whatever is stored. False on error.
bool read_header(Decoding& decoding) {
  if (setjmp(png_jmpbuf(decoding.png)) != 0) return false;
  png_structp png = decoding.png;
  png_infop info = decoding.info;
  png_set_read_fn(png, &decoding, take_bytes);
  png_read_info(png, info);
  if (static_cast<std::int64_t>(png_get_image_width(png, info)) * png_get_image_height(png, info) > max_image_pixels) {
    png_error(png, "more than 100,000,000 pixels");
  }
  png_set_scale_16(png);
  png_set_expand(png);  // palettes, fewer than 8 bits, and a transparent colour to alpha
  png_set_gray_to_rgb(png);
  decoding.passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  decoding.has_alpha = png_get_channels(png, info) == 4;
  return true;
}

bool read_rows(Decoding& decoding, unsigned char* pixels, std::size_t stride, unsigned height) {
  if (setjmp(png_jmpbuf(decoding.png)) != 0) return false;
  for (int pass = 0; pass < decoding.passes; ++pass) {
    for (unsigned y = 0; y < height; ++y) png_read_row(decoding.png, pixels + y * stride, nullptr);
  }
  png_read_end(decoding.png, nullptr);
  return true;
}

void composite_on_white(const std::vector<std::uint8_t>& rgba, Image& image) {
  const std::size_t count = rgba.size() / 4;
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned alpha = rgba[4 * i + 3];
    for (std::size_t c = 0; c < 3; ++c) {
      image.pixels[3 * i + c] = static_cast<std::uint8_t>((rgba[4 * i + c] * alpha + 255 * (255 - alpha) + 127) / 255);
    }
  }
}

}  // namespace

void decode_png(std::span<const std::uint8_t> bytes, const std::string& name, Image& image) {
  Decoding decoding;
  decoding.bytes = bytes.data();
  decoding.left = bytes.size();
  decoding.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoding, on_error, on_warning);
  if (decoding.png != nullptr) decoding.info = png_create_info_struct(decoding.png);
  HEARTH_CHECK(DataError, decoding.info != nullptr, name, ": libpng cannot start");
  HEARTH_CHECK(DataError, read_header(decoding), name, ": broken PNG: ", decoding.message);
  const unsigned height = png_get_image_height(decoding.png, decoding.info);
  const unsigned width = png_get_image_width(decoding.png, decoding.info);
  image.reshape(static_cast<int>(height), static_cast<int>(width), 3);
  std::vector<std::uint8_t> rgba(decoding.has_alpha ? std::size_t{4} * height * width : 0);
  std::uint8_t* pixels = decoding.has_alpha ? rgba.data() : image.pixels.data();
  const std::size_t stride = std::size_t{width} * (decoding.has_alpha ? 4 : 3);
  HEARTH_CHECK(DataError, read_rows(decoding, pixels, stride, height), name, ": broken PNG: ", decoding.message);
  if (decoding.has_alpha) composite_on_white(rgba, image);
}

void write_png(const std::string& path, const Image& image) {
  HEARTH_CHECK(ShapeError, image.channels == 1 || image.channels == 3 || image.channels == 4, path, ": an image of ",
               image.channels, " channels cannot be a PNG; 1, 3 and 4 can");
  HEARTH_CHECK(ShapeError, image.height > 0 && image.width > 0, path, ": an empty image cannot be a PNG");
  png_image description{};
  description.version = PNG_IMAGE_VERSION;
  description.width = static_cast<png_uint_32>(image.width);
  description.height = static_cast<png_uint_32>(image.height);
  description.format = image.channels == 1 ? PNG_FORMAT_GRAY : image.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  const int written = png_image_write_to_file(&description, path.c_str(), 0, image.pixels.data(), 0, nullptr);
  HEARTH_CHECK(FileError, written != 0, path, ": cannot be written: ", description.message);
}

}  // namespace hearth::data
#else
namespace hearth::data {
void decode_png(std::span<const std::uint8_t>, const std::string& name, Image&) {
  throw DataError(name + ": this build of Hearth reads no PNG: install libpng (libpng-dev) and build again");
}
void write_png(const std::string& path, const Image&) {
  throw FileError(path + ": this build of Hearth writes no PNG: install libpng (libpng-dev) and build again");
}
}  // namespace hearth::data
#endif
