// SPDX-License-Identifier: Apache-2.0
#include "data/images/codecs/image_codecs.h"

#include <cstring>

#include "core/error.h"
#include "data/images/codecs/exif.h"

namespace hearth::data {

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

void require_plausible(const EncodedImage& file, std::int64_t width, std::int64_t height) {
  constexpr std::int64_t free_pixels = std::int64_t{1} << 20, pixels_a_byte = 16'384;
  if (width * height > free_pixels + pixels_a_byte * static_cast<std::int64_t>(file.bytes.size()))
    refuse_claim(file, width, height);
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

void keep_box(Image& image, const Box& box) {
  const std::size_t from_bytes = image.row_bytes();
  const auto channels = static_cast<std::size_t>(image.channels);
  const std::size_t to_bytes = static_cast<std::size_t>(box.width) * channels;
  const std::uint8_t* from = image.row(box.top) + static_cast<std::size_t>(box.left) * channels;
  for (int y = 0; y < box.height; ++y, from += from_bytes)
    std::memmove(image.pixels.data() + static_cast<std::size_t>(y) * to_bytes, from, to_bytes);
  image.reshape(box.height, box.width, image.channels);
}

void require_inside(const Sizing& sizing, int height, int width) {
  const auto inside = [](const Box& box, int rows, int columns) {
    return box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0 && box.height <= rows - box.top &&
           box.width <= columns - box.left;
  };
  HEARTH_CHECK(ShapeError, inside(sizing.box, height, width) && inside(sizing.window, sizing.height, sizing.width),
               "sizing: the box of ", sizing.box.height, " x ", sizing.box.width, " at (", sizing.box.top, ", ",
               sizing.box.left, ") of an image of ", height, " x ", width, ", and the window of ", sizing.window.height,
               " x ", sizing.window.width, " at (", sizing.window.top, ", ", sizing.window.left, ") of ", sizing.height,
               " x ", sizing.width, " must be parts of these, and not empty");
}

namespace {

/// Of one axis of the upright image: the pixels of the decoder's that are needed, and where the box begins in them.
struct AxisCut {
  Span needed;
  double begin;
};
/// `mirrored`: the last pixel of the decoder's, which may reach over the image's edge, is the first one of the upright
/// image.
AxisCut cut_axis(int extent, int reduction, bool mirrored, int begin, int box, int size, int first, int count,
                 ResizeFilter filter) {
  const int decoded = (extent + reduction - 1) / reduction;
  const double over = mirrored ? decoded - static_cast<double>(extent) / reduction : 0;
  const double at = over + static_cast<double>(begin) / reduction;
  const Span needed = inputs_of(at, static_cast<double>(box) / reduction, size, first, count, filter);
  return {needed, at - needed.begin};
}

}  // namespace

Cut RegionChoice::cut(int height, int width, bool reduces) const {
  const OrientationAxes axes = axes_of(region_.orientation);
  const int upright_height = axes.swapped ? width : height, upright_width = axes.swapped ? height : width;
  region_.height = upright_height;
  region_.width = upright_width;
  if (choose_ == nullptr) {
    region_.sizing = unchanged(upright_height, upright_width);
    region_.area = {0, 0, static_cast<double>(upright_height), static_cast<double>(upright_width)};
    return {{0, 0, height, width}, 1};
  }
  const Sizing& sizing = region_.sizing = (*choose_)(upright_height, upright_width);
  require_inside(sizing, upright_height, upright_width);
  const int reduction = reduces ? reduction_of(sizing) : 1;
  const AxisCut rows = cut_axis(upright_height, reduction, axes.from_below, sizing.box.top, sizing.box.height,
                                sizing.height, sizing.window.top, sizing.window.height, sizing.filter);
  const AxisCut columns = cut_axis(upright_width, reduction, axes.from_right, sizing.box.left, sizing.box.width,
                                   sizing.width, sizing.window.left, sizing.window.width, sizing.filter);
  region_.area = {rows.begin, columns.begin, static_cast<double>(sizing.box.height) / reduction,
                  static_cast<double>(sizing.box.width) / reduction};
  const auto decoded = [&](int extent) { return (extent + reduction - 1) / reduction; };
  const auto stored = [](Span span, int extent, bool mirrored) {
    return mirrored ? Span{extent - span.end, extent - span.begin} : span;
  };
  const Span y = stored(rows.needed, decoded(upright_height), axes.from_below);
  const Span x = stored(columns.needed, decoded(upright_width), axes.from_right);
  const Span& top = axes.swapped ? x : y;
  const Span& left = axes.swapped ? y : x;
  return {{top.begin, left.begin, top.end - top.begin, left.end - left.begin}, reduction};
}

void RegionChoice::leave_columns(Image& image, const Cut& cut, int before) const {
  if (choose_ != nullptr && region_.orientation == 1)
    region_.area.left += before;
  else if (image.width != cut.box.width)
    keep_box(image, {0, before, cut.box.height, cut.box.width});
}

}  // namespace hearth::data
