// SPDX-License-Identifier: Apache-2.0
#include "data/images/conform.h"

#include <functional>
#include <utility>

#include "core/error.h"
#include "data/images/codecs/decode.h"
#include "data/images/transforms/resize.h"

namespace hearth::data {
namespace {

Image to_grey(const Image& image) {
  Image grey;
  grey.reshape(image.height, image.width, 1);
  for (std::size_t i = 0; i < grey.pixels.size(); ++i) {
    const std::uint8_t* rgb = image.pixels.data() + 3 * i;
    grey.pixels[i] = static_cast<std::uint8_t>((299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000);
  }
  return grey;
}

Image to_rgb(const Image& image) {
  Image rgb;
  rgb.reshape(image.height, image.width, 3);
  for (std::size_t i = 0; i < rgb.pixels.size(); ++i) rgb.pixels[i] = image.pixels[i / 3];
  return rgb;
}

void to_channels(Image& image, int channels, const std::string& name) {
  if (image.channels == 3 && channels == 1)
    image = to_grey(image);
  else if (image.channels == 1 && channels == 3)
    image = to_rgb(image);
  HEARTH_CHECK(DataError, image.channels == channels, name, ": an image of ", image.channels,
               " channels; the model was trained on images of ", channels);
}

/// Of a set's sample, for messages.
std::string name_of(const ImageDataset& images, std::int64_t index) {
  const std::string name = images.sample_name(index);
  return name.empty() ? images.source() : images.source() + ": " + name;
}

}  // namespace

void conform(Image& image, const ImageDataset& dataset, const std::string& name) {
  const ImageShape set_shape = dataset.image_shape();
  HEARTH_CHECK(DataError, image.height > 0 && image.width > 0, name, ": an image without pixels");
  to_channels(image, set_shape.channels, name);
  dataset.shrink(image);
  if (set_shape.height == 0 || (image.height == set_shape.height && image.width == set_shape.width)) return;
  Image resized;
  resize(image, {0, 0, image.height, image.width}, set_shape.height, set_shape.width, resized);
  image = std::move(resized);
}

std::optional<std::int64_t> read_conformed(const ImageDataset& images, std::int64_t index, const ImageDataset& dataset,
                                           Image& image) {
  const std::optional<std::int64_t> label = images.try_read(index, image);
  if (label) conform(image, dataset, name_of(images, index));
  return label;
}

std::optional<std::int64_t> read_conformed(const ImageDataset& images, std::int64_t index, const ImageDataset& dataset,
                                           const ChooseSizing& choose, Image& image, Region& region) {
  const ImageShape set_shape = dataset.image_shape();
  bool fits = set_shape.channels == 3 && (dataset.shrinks_to() == 0 || dataset.shrinks_to() == images.shrinks_to());
  if (fits) {
    const auto compared = [&](int height, int width) {
      fits = set_shape.height == 0 || (height == set_shape.height && width == set_shape.width);
      return choose(height, width);
    };
    const std::optional<std::int64_t> label = images.try_read_region(index, std::ref(compared), image, region);
    if (label && fits) to_channels(image, set_shape.channels, name_of(images, index));
    if (!label || fits) return label;
  }
  const std::optional<std::int64_t> label = read_conformed(images, index, dataset, image);
  if (label) region = region_of_whole(image, choose);
  return label;
}

}  // namespace hearth::data
