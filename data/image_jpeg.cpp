// SPDX-License-Identifier: Apache-2.0
// JPEG decoding by libjpeg-turbo. Its C errors leave by longjmp, so the function that calls setjmp owns no C++ object.
#include <cstdio>
#include <cstring>

#include "hearth/core/build.h"
#include "hearth/core/error.h"
#include "hearth/data/image.h"

#if HEARTH_HAS_JPEG
#include <csetjmp>

#include <jpeglib.h>
// Behind the other: what it names depends on what the library was built with.
#include <jerror.h>

namespace hearth::data {
namespace {

struct JpegErrors {
  jpeg_error_mgr manager;  // first, so that the library's pointer is also ours
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void leave(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  errors->manager.format_message(info, errors->message);
  std::longjmp(errors->escape, 1);
}

// libjpeg fills missing data with grey, reads on where codes make no sense or scans do not follow each other, and
// warns; those warnings mean lost pixels. The others (stray bytes between markers, odd headers) are common in files
// that decode in full.
void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_BOGUS_PROGRESSION:
#if JPEG_LIB_VERSION >= 70 || defined(C_ARITH_CODING_SUPPORTED) || defined(D_ARITH_CODING_SUPPORTED)
    case JWRN_ARITH_BAD_CODE:
#endif
      leave(info);
    default:
      break;
  }
}

void discard_output(j_common_ptr) {}

enum class Outcome { decoded, failed, too_large };

struct Decoding {
  jpeg_decompress_struct info;
  JpegErrors errors;
  bool is_cmyk;
};

// Stops after the header, with the output size known.
Outcome begin(Decoding& decoding, const unsigned char* bytes, unsigned long size) {
  jpeg_decompress_struct& info = decoding.info;
  info.err = jpeg_std_error(&decoding.errors.manager);
  decoding.errors.manager.error_exit = leave;
  decoding.errors.manager.emit_message = on_message;
  decoding.errors.manager.output_message = discard_output;
  if (setjmp(decoding.errors.escape) != 0) return Outcome::failed;
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, bytes, size);
  jpeg_read_header(&info, TRUE);
  if (static_cast<std::int64_t>(info.image_width) * info.image_height > max_image_pixels) return Outcome::too_large;
  decoding.is_cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = decoding.is_cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_calc_output_dimensions(&info);
  return Outcome::decoded;
}

// Rows of `stride` bytes. `cmyk_row` has room for one row of four channels.
Outcome read_rows(Decoding& decoding, unsigned char* rows, std::size_t stride, unsigned char* cmyk_row) {
  jpeg_decompress_struct& info = decoding.info;
  if (setjmp(decoding.errors.escape) != 0) return Outcome::failed;
  jpeg_start_decompress(&info);
  while (info.output_scanline < info.output_height) {
    unsigned char* target = rows + info.output_scanline * stride;
    unsigned char* line = decoding.is_cmyk ? cmyk_row : target;
    jpeg_read_scanlines(&info, &line, 1);
    if (!decoding.is_cmyk) continue;
    for (unsigned x = 0; x < info.output_width; ++x) {
      // Adobe stores the inks inverted: 255 is no ink.
      const unsigned flip = info.saw_Adobe_marker ? 0u : 255u;
      const unsigned k = cmyk_row[4 * x + 3] ^ flip;
      for (unsigned c = 0; c < 3; ++c) {
        target[3 * x + c] = static_cast<unsigned char>(((cmyk_row[4 * x + c] ^ flip) * k + 127) / 255);
      }
    }
  }
  jpeg_finish_decompress(&info);
  return Outcome::decoded;
}

}  // namespace

void decode_jpeg(std::span<const std::uint8_t> bytes, const std::string& name, Image& image) {
  Decoding decoding;
  std::memset(&decoding, 0, sizeof decoding);
  struct Release {
    jpeg_decompress_struct* info;
    ~Release() { jpeg_destroy_decompress(info); }
  } release{&decoding.info};
  Outcome outcome = begin(decoding, bytes.data(), static_cast<unsigned long>(bytes.size()));
  HEARTH_CHECK(DataError, outcome != Outcome::too_large, name, ": ", decoding.info.image_width, " x ",
               decoding.info.image_height, " pixels; at most ", max_image_pixels, " are decoded");
  if (outcome == Outcome::decoded) {
    image.reshape(static_cast<int>(decoding.info.output_height), static_cast<int>(decoding.info.output_width), 3);
    std::vector<unsigned char> cmyk_row(decoding.is_cmyk ? std::size_t{4} * decoding.info.output_width : 0);
    outcome = read_rows(decoding, image.pixels.data(), image.row_bytes(), cmyk_row.data());
  }
  HEARTH_CHECK(DataError, outcome == Outcome::decoded, name, ": broken JPEG: ", decoding.errors.message);
}

}  // namespace hearth::data
#else
namespace hearth::data {
void decode_jpeg(std::span<const std::uint8_t>, const std::string& name, Image&) {
  throw DataError(name + ": this build of Hearth reads no JPEG: install libjpeg-turbo (libjpeg-dev) and build again");
}
}  // namespace hearth::data
#endif
