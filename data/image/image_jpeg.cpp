// SPDX-License-Identifier: Apache-2.0
// JPEG decoding by libjpeg-turbo. Its C errors leave by longjmp, so the function that calls setjmp owns no C++ object.
#include <cstdio>
#include <cstring>
#include <new>

#include "core/build.h"
#include "core/error.h"
#include "data/image/image_codecs.h"

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

// Scans of a progressive image; cameras and programs write about ten. Each costs a pass over all blocks, however few
// bytes of the file it takes.
constexpr int max_scans = 100;

void limit_scans(j_common_ptr common) {
  if (reinterpret_cast<j_decompress_ptr>(common)->input_scan_number <= max_scans) return;
  auto* errors = reinterpret_cast<JpegErrors*>(common->err);
  std::snprintf(errors->message, sizeof errors->message, "more than %d scans", max_scans);
  std::longjmp(errors->escape, 1);
}

struct Decoding {
  jpeg_decompress_struct info;
  JpegErrors errors;
  jpeg_progress_mgr progress;
  bool is_cmyk;
};

// Stops after the header, with the output size known. False on error.
bool begin(Decoding& decoding, const unsigned char* bytes, unsigned long size) {
  jpeg_decompress_struct& info = decoding.info;
  info.err = jpeg_std_error(&decoding.errors.manager);
  decoding.errors.manager.error_exit = leave;
  decoding.errors.manager.emit_message = on_message;
  decoding.errors.manager.output_message = discard_output;
  if (setjmp(decoding.errors.escape) != 0) return false;
  jpeg_create_decompress(&info);
  decoding.progress.progress_monitor = limit_scans;
  info.progress = &decoding.progress;
  jpeg_mem_src(&info, bytes, size);
  jpeg_read_header(&info, TRUE);
  decoding.is_cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = decoding.is_cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_calc_output_dimensions(&info);
  return true;
}

// Rows of `stride` bytes. `cmyk_row` holds one row of four channels. False on error.
bool read_rows(Decoding& decoding, unsigned char* rows, std::size_t stride, unsigned char* cmyk_row) {
  jpeg_decompress_struct& info = decoding.info;
  if (setjmp(decoding.errors.escape) != 0) return false;
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
  return true;
}

// Of 64 pixels of one component each.
std::int64_t blocks_of(const jpeg_decompress_struct& info) {
  std::int64_t blocks = 0;
  for (int i = 0; i < info.num_components; ++i)
    blocks += static_cast<std::int64_t>(info.comp_info[i].width_in_blocks) * info.comp_info[i].height_in_blocks;
  return blocks;
}

// What the library holds: rows of a few blocks' height, and all coefficients where scans refine them.
std::int64_t library_bytes(jpeg_decompress_struct& info) {
  const std::int64_t rows = std::int64_t{1 << 20} + std::int64_t{256} * info.output_width;
  return rows + (jpeg_has_multiple_scans(&info) ? blocks_of(info) * 64 * std::int64_t{sizeof(JCOEF)} : 0);
}

[[noreturn]] void refuse(const EncodedImage& file, const Decoding& decoding) {
  const int code = decoding.errors.manager.msg_code;
  if (code == JERR_OUT_OF_MEMORY) throw std::bad_alloc();
  if (code == JERR_NO_BACKING_STORE) refuse_memory(file);
  throw DataError(file.name + ": broken JPEG: " + decoding.errors.message);
}

}  // namespace

void decode_jpeg(const EncodedImage& file, Image& image) {
  Decoding decoding;
  std::memset(&decoding, 0, sizeof decoding);
  jpeg_decompress_struct& info = decoding.info;
  struct Release {
    jpeg_decompress_struct* info;
    ~Release() { jpeg_destroy_decompress(info); }
  } release{&info};
  if (!begin(decoding, file.bytes.data(), static_cast<unsigned long>(file.bytes.size()))) refuse(file, decoding);
  require_decodable(file, info.output_width, info.output_height, 3, library_bytes(info));
  // A Huffman code has a bit at least, and each block begins with one. Arithmetic codes have no such bound.
  if (!info.arith_code && blocks_of(info) / 8 > static_cast<std::int64_t>(file.bytes.size()))
    refuse_claim(file, info.output_width, info.output_height);
  image.reshape(static_cast<int>(info.output_height), static_cast<int>(info.output_width), 3);
  info.mem->max_memory_to_use = static_cast<long>(file.memory_limit - static_cast<std::int64_t>(image.pixels.size()));
  std::vector<unsigned char> cmyk_row(decoding.is_cmyk ? std::size_t{4} * info.output_width : 0);
  if (!read_rows(decoding, image.pixels.data(), image.row_bytes(), cmyk_row.data())) refuse(file, decoding);
}

}  // namespace hearth::data
#else
namespace hearth::data {
void decode_jpeg(const EncodedImage& file, Image&) {
  throw DataError(file.name +
                  ": this build of Hearth reads no JPEG: install libjpeg-turbo (libjpeg-dev) and build again");
}
}  // namespace hearth::data
#endif
