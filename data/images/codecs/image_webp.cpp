// SPDX-License-Identifier: Apache-2.0
// WebP decoding by libwebp.
#include <algorithm>
#include <new>

#include "core/error.h"
#include "data/images/codecs/image_codecs.h"

#if HEARTH_HAS_WEBP
#include <webp/decode.h>

namespace hearth::data {
namespace {

struct WebpDecoding {
  WebPDecoderConfig config;
  ~WebpDecoding() { WebPFreeDecBuffer(&config.output); }
};

// What the library holds beside the pixels: of a lossless image all of them once more, 4 bytes each, of a lossy one
// rows of blocks and the plane of alpha, which is lossless.
std::int64_t webp_library_bytes(const WebPBitstreamFeatures& features) {
  const std::int64_t pixels = std::int64_t{features.width} * features.height;
  const std::int64_t rows = (std::int64_t{1} << 20) + std::int64_t{256} * features.width;
  constexpr int lossless = 2;
  return rows + (features.format == lossless ? 4 * pixels : features.has_alpha ? 5 * pixels : 0);
}

const char* reason_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "the file ends too early";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "it uses what libwebp does not read";
    default:
      return "its data makes no sense";
  }
}

void require_ok(const EncodedImage& file, VP8StatusCode status) {
  if (status == VP8_STATUS_OUT_OF_MEMORY) throw std::bad_alloc();
  HEARTH_CHECK(DataError, status == VP8_STATUS_OK, file.name, ": broken WebP: ", reason_of(status));
}

// A macroblock of 16x16 pixels takes a bit at least of a lossy image: those of its modes have fixed odds. The codes of
// a lossless one may have no bits.
void require_possible(const EncodedImage& file, const WebPBitstreamFeatures& features) {
  constexpr int lossy = 1;
  const std::int64_t blocks = (std::int64_t{features.width} + 15) / 16 * ((features.height + 15) / 16);
  if (features.format != lossy)
    require_plausible(file, features.width, features.height);
  else if (blocks / 8 > static_cast<std::int64_t>(file.bytes.size()))
    refuse_claim(file, features.width, features.height);
}

// Chroma at the edge of a crop is interpolated without its neighbours: two pixels more on each side have them, from
// even positions, where the library begins crops.
Box with_margin(const Box& box, const WebPBitstreamFeatures& features) {
  const int top = std::max(box.top - 2, 0) / 2 * 2, left = std::max(box.left - 2, 0) / 2 * 2;
  const int bottom = std::min(box.top + box.height + 2, features.height);
  const int right = std::min(box.left + box.width + 2, features.width);
  return {top, left, bottom - top, right - left};
}

}  // namespace

void decode_webp(const EncodedImage& file, const RegionChoice& choice, Image& image) {
  WebpDecoding decoding;
  HEARTH_CHECK(DataError, WebPInitDecoderConfig(&decoding.config) != 0, file.name,
               ": libwebp is of another version than its header");
  require_ok(file, WebPGetFeatures(file.bytes.data(), file.bytes.size(), &decoding.config.input));
  const WebPBitstreamFeatures& features = decoding.config.input;
  HEARTH_CHECK(DataError, features.has_animation == 0, file.name,
               ": an animated WebP, which is not read; save the frames as images of their own");
  const int channels = features.has_alpha ? 4 : 3;
  require_decodable(file, features.width, features.height, channels, webp_library_bytes(features));
  require_possible(file, features);
  const Box box = choice.cut(features.height, features.width, false).box;
  const Box around = with_margin(box, features);
  WebPDecoderOptions& options = decoding.config.options;
  options.use_cropping = around.height < features.height || around.width < features.width;
  options.crop_top = around.top;
  options.crop_left = around.left;
  options.crop_height = around.height;
  options.crop_width = around.width;
  image.reshape(around.height, around.width, channels);
  WebPDecBuffer& output = decoding.config.output;
  output.colorspace = features.has_alpha ? MODE_RGBA : MODE_RGB;
  output.is_external_memory = 1;
  output.u.RGBA = {image.pixels.data(), static_cast<int>(image.row_bytes()), image.pixels.size()};
  require_ok(file, WebPDecode(file.bytes.data(), file.bytes.size(), &decoding.config));
  keep_box(image, {box.top - around.top, box.left - around.left, box.height, box.width});
  if (features.has_alpha) composite_on_white(image);
}

}  // namespace hearth::data
#else
namespace hearth::data {
void decode_webp(const EncodedImage& file, const RegionChoice&, Image&) {
  throw DataError(file.name + ": this build of Hearth reads no WebP: install libwebp (libwebp-dev) and build again");
}
}  // namespace hearth::data
#endif
