// SPDX-License-Identifier: Apache-2.0
// The decoders behind decode_image(), one a format, and the checks that they share.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/images/codecs/image.h"
#include "data/images/codecs/sizing.h"

namespace hearth::data {

/// An image file in memory.
struct EncodedImage {
  std::span<const std::uint8_t> bytes;
  const std::string& name;    ///< for messages
  std::int64_t memory_limit;  ///< that decoding may take, in bytes
};

/// What is to be decoded, in pixels of the image as it is stored, at 1/reduction of its size.
struct Cut {
  Box box{};
  int reduction = 1;
};

/// Decides what is decoded of a file, once the decoder knows its size.
class RegionChoice {
 public:
  /// All of it.
  explicit RegionChoice(Region& region) : region_(region) {}
  /// What `choose` says of the image turned by the orientation in `region`, whose other fields follow.
  RegionChoice(const ChooseSizing& choose, Region& region) : choose_(&choose), region_(region) {}
  /// Of an image of this size as stored. `reduces` where the decoder can give it at 1/2, 1/4 and 1/8 of its size,
  /// rounded up.
  Cut cut(int height, int width, bool reduces) const;
  /// Makes `image`, the rows of the cut with `before` columns more on the left and perhaps some on the right, the cut;
  /// or leaves them there, if they do not matter.
  void leave_columns(Image& image, const Cut& cut, int before) const;

 private:
  const ChooseSizing* choose_ = nullptr;
  Region& region_;
};

/// Makes `image` the cut of an image, in RGB. DataError as of decode_image(), and naming the library where the build
/// lacks it.
void decode_jpeg(const EncodedImage& file, const RegionChoice& choice, Image& image);
void decode_png(const EncodedImage& file, const RegionChoice& choice, Image& image);
void decode_webp(const EncodedImage& file, const RegionChoice& choice, Image& image);
void decode_bmp(const EncodedImage& file, const RegionChoice& choice, Image& image);

/// A PNG as it is stored: numbers of a palette or grey values (1 channel), or colours (3).
struct PngSamples {
  Image image{};
  std::vector<std::array<std::uint8_t, 3>> palette{};  ///< of such an image; empty for others
};
/// DataError as decode_png(), for samples of 16 bits, grey of fewer than 8, and transparency.
PngSamples decode_png_samples(const EncodedImage& file);

/// ShapeError unless the box is a part of an image of this size, and the window one of the result, and none is empty.
void require_inside(const Sizing& sizing, int height, int width);

/// Leaves this part of an image, where it lies.
void keep_box(Image& image, const Box& box);

/// Turns RGBA into RGB where it lies.
void composite_on_white(Image& image);

/// DataError unless the image has pixels, no more than max_image_pixels, and so many bytes for each of them and
/// `further_bytes` are within the limit.
void require_decodable(const EncodedImage& file, std::int64_t width, std::int64_t height, std::int64_t bytes_a_pixel,
                       std::int64_t further_bytes = 0);
/// DataError for a header that claims more than a megapixel and 16,384 pixels for each byte of the file, where the
/// format itself sets no such bound: what an image of one colour may take, and a small file may cost.
void require_plausible(const EncodedImage& file, std::int64_t width, std::int64_t height);
/// The DataError for a decoder that went beyond the limit.
[[noreturn]] void refuse_memory(const EncodedImage& file);
/// The DataError for a header that claims more than a file of this length can hold.
[[noreturn]] void refuse_claim(const EncodedImage& file, std::int64_t width, std::int64_t height);

}  // namespace hearth::data
