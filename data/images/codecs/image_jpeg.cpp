// SPDX-License-Identifier: Apache-2.0
// JPEG decoding by libjpeg-turbo. Its C errors leave by longjmp, so the function that calls setjmp owns no C++ object.
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "core/build.h"
#include "core/error.h"
#include "data/images/codecs/image_codecs.h"

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

struct JpegDecoding {
  jpeg_decompress_struct info;
  JpegErrors errors;
  jpeg_progress_mgr progress;
  bool is_cmyk;
};

// Stops after the header, with the output size known. False on error.
bool begin(JpegDecoding& decoding, const unsigned char* bytes, unsigned long size) {
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
  return true;
}

void put_rgb(const jpeg_decompress_struct& info, const unsigned char* cmyk, int pixels, unsigned char* rgb) {
  // Adobe stores the inks inverted: 255 is no ink.
  const unsigned flip = info.saw_Adobe_marker ? 0u : 255u;
  for (int x = 0; x < pixels; ++x, cmyk += 4, rgb += 3) {
    const unsigned k = cmyk[3] ^ flip;
    for (unsigned c = 0; c < 3; ++c) rgb[c] = static_cast<unsigned char>(((cmyk[c] ^ flip) * k + 127) / 255);
  }
}

// The columns that are decoded.
struct Columns {
  JDIMENSION first;
  JDIMENSION count;
};

// Starts decoding at the first row of a box. The columns are those of the box, and one more on each side, because
// chroma is interpolated from neighbours; the library begins at a block. False on error.
bool start(JpegDecoding& decoding, const Box& box, Columns& columns) {
  jpeg_decompress_struct& info = decoding.info;
  if (setjmp(decoding.errors.escape) != 0) return false;
  jpeg_start_decompress(&info);
  const auto left = static_cast<JDIMENSION>(box.left), end = static_cast<JDIMENSION>(box.left + box.width);
  columns.first = left > 0 ? left - 1 : 0;
  columns.count = (end < info.output_width ? end + 1 : info.output_width) - columns.first;
  if (columns.count < info.output_width) jpeg_crop_scanline(&info, &columns.first, &columns.count);
  if (box.top > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(box.top));
  return true;
}

// Rows of `stride` bytes. `cmyk_row` holds one row of four channels. False on error.
bool read_rows(JpegDecoding& decoding, int count, unsigned char* rows, std::size_t stride, unsigned char* cmyk_row) {
  jpeg_decompress_struct& info = decoding.info;
  if (setjmp(decoding.errors.escape) != 0) return false;
  for (int y = 0; y < count; ++y) {
    unsigned char* const row = rows + stride * static_cast<std::size_t>(y);
    unsigned char* line = decoding.is_cmyk ? cmyk_row : row;
    jpeg_read_scanlines(&info, &line, 1);
    if (decoding.is_cmyk) put_rgb(info, cmyk_row, static_cast<int>(info.output_width), row);
  }
  // Behind the last row of the image the file is read to its end.
  if (info.output_scanline == info.output_height) jpeg_finish_decompress(&info);
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
std::int64_t jpeg_library_bytes(jpeg_decompress_struct& info) {
  const std::int64_t rows = std::int64_t{1 << 20} + std::int64_t{256} * info.image_width;
  return rows + (jpeg_has_multiple_scans(&info) ? blocks_of(info) * 64 * std::int64_t{sizeof(JCOEF)} : 0);
}

[[noreturn]] void refuse_jpeg(const EncodedImage& file, const JpegDecoding& decoding) {
  const int code = decoding.errors.manager.msg_code;
  if (code == JERR_OUT_OF_MEMORY) throw std::bad_alloc();
  if (code == JERR_NO_BACKING_STORE) refuse_memory(file);
  throw DataError(file.name + ": broken JPEG: " + decoding.errors.message);
}

}  // namespace

void decode_jpeg(const EncodedImage& file, const RegionChoice& choice, Image& image) {
  JpegDecoding decoding;
  std::memset(&decoding, 0, sizeof decoding);
  jpeg_decompress_struct& info = decoding.info;
  struct Release {
    jpeg_decompress_struct* info;
    ~Release() { jpeg_destroy_decompress(info); }
  } release{&info};
  if (!begin(decoding, file.bytes.data(), static_cast<unsigned long>(file.bytes.size()))) refuse_jpeg(file, decoding);
  require_decodable(file, info.image_width, info.image_height, 3, jpeg_library_bytes(info));
  // A Huffman code has a bit at least, and each block begins with one. Arithmetic codes have no such bound.
  if (info.arith_code) require_plausible(file, info.image_width, info.image_height);
  if (!info.arith_code && blocks_of(info) / 8 > static_cast<std::int64_t>(file.bytes.size()))
    refuse_claim(file, info.image_width, info.image_height);
  const auto height = static_cast<int>(info.image_height), width = static_cast<int>(info.image_width);
  const Cut cut = choice.cut(height, width, true);
  info.scale_num = static_cast<unsigned>(8 / cut.reduction);
  info.scale_denom = 8;
  info.mem->max_memory_to_use = static_cast<long>(file.memory_limit - std::int64_t{3} * height * width);
  Columns columns{};
  if (!start(decoding, cut.box, columns)) refuse_jpeg(file, decoding);
  image.reshape(cut.box.height, static_cast<int>(columns.count), 3);
  thread_local std::vector<unsigned char> cmyk_row;
  if (decoding.is_cmyk) cmyk_row.resize(std::size_t{4} * columns.count);
  if (!read_rows(decoding, cut.box.height, image.pixels.data(), image.row_bytes(), cmyk_row.data()))
    refuse_jpeg(file, decoding);
  choice.leave_columns(image, cut, cut.box.left - static_cast<int>(columns.first));
}

}  // namespace hearth::data
#else
namespace hearth::data {
void decode_jpeg(const EncodedImage& file, const RegionChoice&, Image&) {
  throw DataError(file.name +
                  ": this build of Hearth reads no JPEG: install libjpeg-turbo (libjpeg-dev) and build again");
}
}  // namespace hearth::data
#endif
