// SPDX-License-Identifier: Apache-2.0
// JPEG files by libjpeg-turbo. Its C errors leave by longjmp, so the function that calls setjmp owns no C++ object.
#include "data/images/codecs/encode.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/build.h"
#include "core/error.h"

#if HEARTH_HAS_JPEG
#include <csetjmp>

#include <jpeglib.h>
#endif

namespace hearth::data {

const char* ending_of(std::span<const std::uint8_t> file) {
  const std::string_view front(reinterpret_cast<const char*>(file.data()), std::min<std::size_t>(file.size(), 12));
  if (front.starts_with("\xff\xd8")) return "jpg";
  if (front.starts_with("\x89PNG")) return "png";
  if (front.starts_with("RIFF") && front.ends_with("WEBP")) return "webp";
  return front.starts_with("BM") ? "bmp" : "bin";
}

#if HEARTH_HAS_JPEG
namespace {

struct Encoding {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
  unsigned char* bytes;
  unsigned long size;
};

[[noreturn]] void leave_encoding(j_common_ptr info) {
  auto* encoding = static_cast<Encoding*>(info->client_data);
  info->err->format_message(info, encoding->message);
  std::longjmp(encoding->escape, 1);
}

bool encode(Encoding& encoding, const Image& image, int quality) {
  jpeg_compress_struct& info = encoding.info;
  info.err = jpeg_std_error(&encoding.errors);
  encoding.errors.error_exit = leave_encoding;
  info.client_data = &encoding;
  if (setjmp(encoding.escape) != 0) return false;
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, &encoding.bytes, &encoding.size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = image.channels;
  info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  if (quality >= 90) info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = 1;
  info.optimize_coding = TRUE;
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    // The library takes rows it does not change by a pointer that could.
    auto* row = const_cast<unsigned char*>(image.row(static_cast<int>(info.next_scanline)));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  return true;
}

}  // namespace

std::vector<std::uint8_t> encode_jpeg(const Image& image, int quality) {
  HEARTH_CHECK(ShapeError, image.channels == 1 || image.channels == 3, "encode_jpeg: an image of ", image.channels,
               " channels cannot be a JPEG; 1 and 3 can");
  HEARTH_CHECK(
      ShapeError,
      image.height > 0 && image.width > 0 && image.height <= JPEG_MAX_DIMENSION && image.width <= JPEG_MAX_DIMENSION,
      "encode_jpeg: an image of ", image.height, " x ", image.width, "; sides of 1 to ", JPEG_MAX_DIMENSION,
      " are possible");
  Encoding encoding;
  std::memset(&encoding, 0, sizeof encoding);
  struct Release {
    Encoding* encoding;
    ~Release() {
      jpeg_destroy_compress(&encoding->info);
      std::free(encoding->bytes);
    }
  } release{&encoding};
  HEARTH_CHECK(DataError, encode(encoding, image, quality), "encode_jpeg: ", encoding.message);
  return {encoding.bytes, encoding.bytes + encoding.size};
}
#else
std::vector<std::uint8_t> encode_jpeg(const Image&, int) {
  throw DataError(
      "encode_jpeg: this build of Hearth writes no JPEG: install libjpeg-turbo (libjpeg-dev) and build again");
}
#endif

}  // namespace hearth::data
