// SPDX-License-Identifier: Apache-2.0
// PNG decoding and writing by libpng. Its C errors leave by longjmp, so the functions that call setjmp own no C++
// object.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/build.h"
#include "core/error.h"
#include "data/images/codecs/image_codecs.h"

#if HEARTH_HAS_PNG
#include <png.h>

namespace hearth::data {
namespace {

// What libpng and zlib below it have allocated, within a limit.
struct Allowance {
  std::size_t left;
  bool is_exceeded = false;
  bool is_system_full = false;
};

// In front of each block, so that its end is known where it is freed.
constexpr std::size_t block_header = alignof(std::max_align_t);
static_assert(block_header >= sizeof(std::size_t));

png_voidp allocate(png_structp png, png_alloc_size_t size) {
  auto* allowance = static_cast<Allowance*>(png_get_mem_ptr(png));
  if (size > allowance->left || allowance->left - size < block_header) {
    allowance->is_exceeded = true;
    return nullptr;
  }
  auto* block = static_cast<unsigned char*>(std::malloc(size + block_header));
  if (block == nullptr) {
    allowance->is_system_full = true;
    return nullptr;
  }
  const std::size_t taken = size + block_header;
  std::memcpy(block, &taken, sizeof taken);
  allowance->left -= taken;
  return block + block_header;
}

void release(png_structp png, png_voidp pointer) {
  if (pointer == nullptr) return;
  auto* block = static_cast<unsigned char*>(pointer) - block_header;
  std::size_t taken = 0;
  std::memcpy(&taken, block, sizeof taken);
  static_cast<Allowance*>(png_get_mem_ptr(png))->left += taken;
  std::free(block);
}

struct PngDecoding {
  Allowance allowance;
  png_structp png = nullptr;
  png_infop info = nullptr;
  const unsigned char* bytes = nullptr;
  std::size_t left = 0;
  int passes = 1;
  int bits_a_pixel = 0;  // as stored
  bool has_alpha = false;
  char message[256] = "";

  ~PngDecoding() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* decoding = static_cast<PngDecoding*>(png_get_error_ptr(png));
  std::snprintf(decoding->message, sizeof decoding->message, "%s", message);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void take_bytes(png_structp png, png_bytep target, png_size_t count) {
  auto* decoding = static_cast<PngDecoding*>(png_get_io_ptr(png));
  if (count > decoding->left) png_error(png, "the file ends too early");
  std::memcpy(target, decoding->bytes, count);
  decoding->bytes += count;
  decoding->left -= count;
}

// Asks for 8-bit RGB or RGBA rows whatever is stored, or for what is stored, of 8 bits a sample. False on error.
bool read_header(PngDecoding& decoding, bool as_stored) {
  if (setjmp(png_jmpbuf(decoding.png)) != 0) return false;
  png_structp png = decoding.png;
  png_infop info = decoding.info;
  png_set_read_fn(png, &decoding, take_bytes);
  // Sequences, profiles and the like are passed over unread, however long they are: none changes the pixels.
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_set_chunk_malloc_max(png, 0);
  png_read_info(png, info);
  decoding.bits_a_pixel = png_get_channels(png, info) * png_get_bit_depth(png, info);
  if (as_stored) {
    png_set_packing(png);
  } else {
    png_set_scale_16(png);
    png_set_expand(png);  // palettes, fewer than 8 bits, and a transparent colour to alpha
    png_set_gray_to_rgb(png);
  }
  decoding.passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  decoding.has_alpha = png_get_channels(png, info) == 4;
  return true;
}

// All rows of an interlaced image, which come again in each pass.
bool read_passes(PngDecoding& decoding, unsigned char* pixels, std::size_t stride, unsigned height) {
  if (setjmp(png_jmpbuf(decoding.png)) != 0) return false;
  for (int pass = 0; pass < decoding.passes; ++pass) {
    for (unsigned y = 0; y < height; ++y) png_read_row(decoding.png, pixels + y * stride, nullptr);
  }
  png_read_end(decoding.png, nullptr);
  return true;
}

// Rows up to the last one of a box; `row` holds one row of the image. What follows the last row of the image is
// read to the end, so that a file that is cut off there is found.
bool read_box(PngDecoding& decoding, const Box& box, unsigned height, std::size_t pixel_bytes, unsigned char* row,
              unsigned char* pixels) {
  if (setjmp(png_jmpbuf(decoding.png)) != 0) return false;
  const std::size_t bytes = static_cast<std::size_t>(box.width) * pixel_bytes;
  for (int y = 0; y < box.top + box.height; ++y) {
    png_read_row(decoding.png, row, nullptr);
    if (y < box.top) continue;
    std::memcpy(pixels + bytes * static_cast<std::size_t>(y - box.top),
                row + static_cast<std::size_t>(box.left) * pixel_bytes, bytes);
  }
  if (static_cast<unsigned>(box.top + box.height) == height) png_read_end(decoding.png, nullptr);
  return true;
}

// A PngDecoding that has an info structure, unless memory is short.
void prepare(PngDecoding& decoding, const EncodedImage& file) {
  decoding.bytes = file.bytes.data();
  decoding.left = file.bytes.size();
  decoding.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &decoding, on_error, on_warning, &decoding.allowance,
                                          allocate, release);
  if (decoding.png != nullptr) decoding.info = png_create_info_struct(decoding.png);
}

[[noreturn]] void refuse_png(const EncodedImage& file, const PngDecoding& decoding) {
  if (decoding.allowance.is_exceeded) refuse_memory(file);
  if (decoding.allowance.is_system_full) throw std::bad_alloc();
  throw DataError(file.name + ": broken PNG: " + decoding.message);
}

// zlib makes at most 1,032 bytes of one.
void require_inflatable(const EncodedImage& file, std::int64_t width, std::int64_t height, int bits_a_pixel) {
  const auto longest = static_cast<double>(file.bytes.size()) * 1032;
  if (static_cast<double>(width) * static_cast<double>(height) * bits_a_pixel / 8 > longest)
    refuse_claim(file, width, height);
}

// Bytes of the chunks that hold the pixels, compressed.
std::uint64_t bytes_of_pixels(std::span<const std::uint8_t> file) {
  std::uint64_t total = 0;
  for (std::uint64_t at = 8; at + 12 <= file.size();) {
    const std::uint8_t* const chunk = file.data() + at;
    const std::uint64_t length = std::uint64_t{chunk[0]} << 24 | chunk[1] << 16 | chunk[2] << 8 | chunk[3];
    if (std::memcmp(chunk + 4, "IDAT", 4) == 0) total += length;
    at += 12 + length;
  }
  return total;
}

// libpng inflates what comes behind the last row, however much it is, and drops it. Compressing makes pixels no longer
// but for a few bytes; interlaced rows have more beginnings.
void require_no_surplus(const EncodedImage& file, std::int64_t width, std::int64_t height, int bits_a_pixel) {
  const auto row = (static_cast<std::uint64_t>(width) * static_cast<std::uint64_t>(bits_a_pixel) + 7) / 8;
  const std::uint64_t most = (row + 8) * static_cast<std::uint64_t>(height) * 2 + 4096;
  HEARTH_CHECK(DataError, bytes_of_pixels(file.bytes) <= most, file.name,
               ": broken PNG: it has more pixels than its header says");
}

/// DataError for an image whose samples leave open which classes they mean.
void require_class_samples(const std::string& name, int colour_type, int bits, bool has_transparency) {
  HEARTH_CHECK(DataError, bits <= 8, name, ": a mask of ", bits,
               " bits a sample; write class ids as 8-bit grey or as a palette, or colours of 8 bits");
  HEARTH_CHECK(DataError, (colour_type & PNG_COLOR_MASK_ALPHA) == 0 && !has_transparency, name,
               ": a mask with transparency; write it without, as 8-bit grey, a palette, or colours of 8 bits");
  HEARTH_CHECK(DataError, colour_type != PNG_COLOR_TYPE_GRAY || bits == 8, name, ": a grey mask of ", bits,
               " bits a sample, whose white is ", (1 << bits) - 1,
               " to some programs and 255 to others; write class ids as 8-bit grey or as a palette");
}

/// What libpng is told of an image; ShapeError, beginning with `name`, for one that cannot be a PNG.
png_image described(const std::string& name, const Image& image) {
  HEARTH_CHECK(ShapeError, image.channels == 1 || image.channels == 3 || image.channels == 4, name, ": an image of ",
               image.channels, " channels cannot be a PNG; 1, 3 and 4 can");
  HEARTH_CHECK(ShapeError, image.height > 0 && image.width > 0, name, ": an empty image cannot be a PNG");
  png_image description{};
  description.version = PNG_IMAGE_VERSION;
  description.width = static_cast<png_uint_32>(image.width);
  description.height = static_cast<png_uint_32>(image.height);
  description.format = image.channels == 1 ? PNG_FORMAT_GRAY : image.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  return description;
}

}  // namespace

void decode_png(const EncodedImage& file, const RegionChoice& choice, Image& image) {
  PngDecoding decoding{.allowance = {static_cast<std::size_t>(file.memory_limit)}};
  prepare(decoding, file);
  if (decoding.info == nullptr || !read_header(decoding, false)) refuse_png(file, decoding);
  const std::int64_t height = png_get_image_height(decoding.png, decoding.info);
  const std::int64_t width = png_get_image_width(decoding.png, decoding.info);
  const int channels = decoding.has_alpha ? 4 : 3;
  const auto taken = file.memory_limit - static_cast<std::int64_t>(decoding.allowance.left);
  require_decodable(file, width, height, channels, taken);
  require_inflatable(file, width, height, decoding.bits_a_pixel);
  require_no_surplus(file, width, height, decoding.bits_a_pixel);
  const Box box = choice.cut(static_cast<int>(height), static_cast<int>(width), false).box;
  decoding.allowance.left -= static_cast<std::size_t>(height * width * channels);
  if (decoding.passes > 1) {
    image.reshape(static_cast<int>(height), static_cast<int>(width), channels);
    if (!read_passes(decoding, image.pixels.data(), image.row_bytes(), static_cast<unsigned>(height)))
      refuse_png(file, decoding);
    keep_box(image, box);
  } else {
    image.reshape(box.height, box.width, channels);
    thread_local std::vector<unsigned char> row;
    row.resize(static_cast<std::size_t>(width * channels));
    if (!read_box(decoding, box, static_cast<unsigned>(height), static_cast<std::size_t>(channels), row.data(),
                  image.pixels.data()))
      refuse_png(file, decoding);
  }
  if (decoding.has_alpha) composite_on_white(image);
}

PngSamples decode_png_samples(const EncodedImage& file) {
  PngDecoding decoding{.allowance = {static_cast<std::size_t>(file.memory_limit)}};
  prepare(decoding, file);
  if (decoding.info == nullptr || !read_header(decoding, true)) refuse_png(file, decoding);
  const std::int64_t height = png_get_image_height(decoding.png, decoding.info);
  const std::int64_t width = png_get_image_width(decoding.png, decoding.info);
  const int colour_type = png_get_color_type(decoding.png, decoding.info);
  const int channels = png_get_channels(decoding.png, decoding.info);
  const bool has_transparency = png_get_valid(decoding.png, decoding.info, PNG_INFO_tRNS) != 0;
  const int samples = colour_type == PNG_COLOR_TYPE_RGB || colour_type == PNG_COLOR_TYPE_RGB_ALPHA ? 3 : 1;
  const int stored_channels = samples + ((colour_type & PNG_COLOR_MASK_ALPHA) != 0 ? 1 : 0);
  require_class_samples(file.name, colour_type, decoding.bits_a_pixel / stored_channels, has_transparency);
  const auto used = file.memory_limit - static_cast<std::int64_t>(decoding.allowance.left);
  require_decodable(file, width, height, channels, used);
  require_inflatable(file, width, height, decoding.bits_a_pixel);
  require_no_surplus(file, width, height, decoding.bits_a_pixel);
  PngSamples result;
  if (colour_type == PNG_COLOR_TYPE_PALETTE) {
    png_colorp entries = nullptr;
    int count = 0;
    png_get_PLTE(decoding.png, decoding.info, &entries, &count);
    for (int i = 0; i < count; ++i) result.palette.push_back({entries[i].red, entries[i].green, entries[i].blue});
  }
  result.image.reshape(static_cast<int>(height), static_cast<int>(width), channels);
  decoding.allowance.left -= std::min(decoding.allowance.left, result.image.pixels.size());
  if (!read_passes(decoding, result.image.pixels.data(), result.image.row_bytes(), static_cast<unsigned>(height)))
    refuse_png(file, decoding);
  return result;
}

void write_png(const std::string& path, const Image& image) {
  png_image description = described(path, image);
  const int written = png_image_write_to_file(&description, path.c_str(), 0, image.pixels.data(), 0, nullptr);
  HEARTH_CHECK(FileError, written != 0, path, ": cannot be written: ", description.message);
}

std::vector<std::uint8_t> encode_png(const Image& image) {
  png_image description = described("encode_png", image);
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(description);
  std::vector<std::uint8_t> bytes(size);
  const int written = png_image_write_to_memory(&description, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr);
  HEARTH_CHECK(DataError, written != 0, "encode_png: ", description.message);
  bytes.resize(size);
  return bytes;
}

}  // namespace hearth::data
#else
namespace hearth::data {
void decode_png(const EncodedImage& file, const RegionChoice&, Image&) {
  throw DataError(file.name + ": this build of Hearth reads no PNG: install libpng (libpng-dev) and build again");
}
PngSamples decode_png_samples(const EncodedImage& file) {
  throw DataError(file.name + ": this build of Hearth reads no PNG: install libpng (libpng-dev) and build again");
}
void write_png(const std::string& path, const Image&) {
  throw FileError(path + ": this build of Hearth writes no PNG: install libpng (libpng-dev) and build again");
}
std::vector<std::uint8_t> encode_png(const Image&) { return {}; }
}  // namespace hearth::data
#endif
