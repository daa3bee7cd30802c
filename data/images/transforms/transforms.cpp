// SPDX-License-Identifier: Apache-2.0
// The steps of a split and their checks.
#include "data/images/transforms/transforms.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "data/images/codecs/decode.h"
#include "data/images/transforms/rand_augment.h"
#include "data/images/transforms/resize.h"
#include "data/images/transforms/scale_pixels.h"

namespace hearth::data {
namespace {

// Boxes of random area and ratio are tried this often before a rule takes over, as in torchvision.
constexpr int box_tries = 10;

bool draw_box(int height, int width, double scale_min, double scale_max, double ratio_min, double ratio_max,
              Random& random, Box& box) {
  const double area = static_cast<double>(height) * width;
  for (int i = 0; i < box_tries; ++i) {
    const double wanted = area * random.uniform(scale_min, scale_max);
    const double ratio = std::exp(random.uniform(std::log(ratio_min), std::log(ratio_max)));
    const auto w = static_cast<int>(std::lround(std::sqrt(wanted * ratio)));
    const auto h = static_cast<int>(std::lround(std::sqrt(wanted / ratio)));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    box.height = h;
    box.width = w;
    box.top = static_cast<int>(random.below(static_cast<std::uint64_t>(height - h) + 1));
    box.left = static_cast<int>(random.below(static_cast<std::uint64_t>(width - w) + 1));
    return true;
  }
  return false;
}

void check_box_ranges(const char* name, double scale_min, double scale_max, double ratio_min, double ratio_max) {
  HEARTH_CHECK(ConfigError, 0 < scale_min && scale_min <= scale_max && scale_max <= 1, name, ": scale ", scale_min,
               " to ", scale_max, "; wanted is 0 < min <= max <= 1");
  HEARTH_CHECK(ConfigError, 0 < ratio_min && ratio_min <= ratio_max, name, ": ratio ", ratio_min, " to ", ratio_max,
               "; wanted is 0 < min <= max");
}

void check_options(const TransformOptions& options) {
  HEARTH_CHECK(ConfigError, options.image_size >= 0 && options.image_size <= 8192, "image_size: ", options.image_size,
               " is outside 0..8192");
  HEARTH_CHECK(ConfigError, options.eval_crop > 0 && options.eval_crop <= 1, "eval_crop: ", options.eval_crop,
               " is not above 0 and at most 1");
  HEARTH_CHECK(ConfigError, !options.random_resized_crop || options.image_size > 0,
               "random_resized_crop: needs image_size, the side of the result");
  HEARTH_CHECK(ConfigError, options.padded_crop >= 0 && options.padded_crop <= 4096,
               "padded_crop: ", options.padded_crop, " is outside 0..4096");
  HEARTH_CHECK(ConfigError, options.fit == Fit::crop || options.image_size > 0,
               "fit: pad and stretch need image_size, the side of the square that they make");
  const std::int64_t side = evaluated_side(options);
  HEARTH_CHECK(ConfigError, side * side <= max_image_pixels, "eval_crop: ", options.eval_crop, " of an image_size of ",
               options.image_size, " needs images of ", side, " x ", side, " pixels; ", max_image_pixels,
               " is the most: use a larger eval_crop");
  const double fill = options.fill.value_or(0);
  HEARTH_CHECK(ConfigError, fill >= 0 && fill <= 1, "fill: ", fill, " is outside 0..1");
  check_box_ranges("random_resized_crop", options.crop.scale_min, options.crop.scale_max, options.crop.ratio_min,
                   options.crop.ratio_max);
  check_box_ranges("erasing", options.erasing.scale_min, options.erasing.scale_max, options.erasing.ratio_min,
                   options.erasing.ratio_max);
  HEARTH_CHECK(ConfigError, options.erasing.probability >= 0 && options.erasing.probability <= 1,
               "erasing: probability ", options.erasing.probability, " is outside 0..1");
  const ColorJitter& jitter = options.color_jitter;
  for (const double width : {jitter.brightness, jitter.contrast, jitter.saturation}) {
    HEARTH_CHECK(ConfigError, width >= 0 && width <= 100, "color_jitter: ", width, " is outside 0..100");
  }
  HEARTH_CHECK(ConfigError, jitter.hue >= 0 && jitter.hue <= 0.5, "color_jitter: hue ", jitter.hue,
               " is outside 0..0.5");
  const RandAugment& augment = options.rand_augment;
  HEARTH_CHECK(ConfigError, augment.ops >= 0 && augment.ops <= 100, "rand_augment: ", augment.ops,
               " ops are outside 0..100");
  for (const double level : {augment.magnitude, augment.spread})
    HEARTH_CHECK(ConfigError, level >= 0 && level <= 10, "rand_augment: a magnitude or spread of ", level,
                 " is outside 0..10");
  HEARTH_CHECK(ConfigError, augment.probability >= 0 && augment.probability <= 1, "rand_augment: probability ",
               augment.probability, " is outside 0..1");
}

ImageShape output_of(ImageShape input, const TransformOptions& options) {
  HEARTH_CHECK(ConfigError, input.channels > 0, "transforms: the dataset's images differ in channels");
  if (options.image_size > 0) return {options.image_size, options.image_size, input.channels};
  HEARTH_CHECK(ConfigError, input.height > 0 && input.width > 0,
               "transforms: the dataset's images differ in size; set image_size");
  return input;
}

double channel_value(const std::vector<double>& values, int channel, double otherwise) {
  if (values.empty()) return otherwise;
  return values[values.size() == 1 ? 0 : static_cast<std::size_t>(channel)];
}

bool any_jitter(const ColorJitter& jitter) {
  return jitter.brightness > 0 || jitter.contrast > 0 || jitter.saturation > 0 || jitter.hue > 0;
}

}  // namespace

Box draw_resized_crop(int height, int width, const RandomResizedCrop& options, Random& random) {
  Box box;
  if (draw_box(height, width, options.scale_min, options.scale_max, options.ratio_min, options.ratio_max, random,
               box)) {
    return box;
  }
  // The centre, cut to the nearest allowed ratio.
  const double ratio = static_cast<double>(width) / height;
  box.width = width;
  box.height = height;
  if (ratio < options.ratio_min)
    box.height = static_cast<int>(std::lround(width / options.ratio_min));
  else if (ratio > options.ratio_max)
    box.width = static_cast<int>(std::lround(height * options.ratio_max));
  box.height = std::clamp(box.height, 1, height);
  box.width = std::clamp(box.width, 1, width);
  box.top = (height - box.height) / 2;
  box.left = (width - box.width) / 2;
  return box;
}

int evaluated_side(const TransformOptions& options) {
  if (options.fit != Fit::crop || !options.random_resized_crop) return options.image_size;
  // Far more than any image has stands for whatever is no int.
  return static_cast<int>(std::lround(std::min(options.image_size / options.eval_crop, 1e9)));
}

namespace {
bool is_unchanged(const Region& region, const Image& image) {
  const Box& window = region.sizing.window;
  return keeps_pixels(region) && !region.sizing.mirrored && image.height == window.height &&
         image.width == window.width;
}

/// Half of what is to spare, as torchvision's center_crop has it: halves are rounded to the even side.
int centred(int spare) { return spare / 2 + (spare % 4 == 3 ? 1 : 0); }
}  // namespace

Sizing centre_of(int height, int width, int side, int size) {
  HEARTH_CHECK(ShapeError, height > 0 && width > 0, "resize: an empty image");
  HEARTH_CHECK(ShapeError, 0 < size && size <= side && std::int64_t{side} * side <= max_image_pixels,
               "resize: the centre of ", size, " pixels of a shorter side of ", side,
               "; wanted is 0 < size <= side, and ", max_image_pixels, " pixels at most");
  // Of a long image only the middle, with some room for the filter: the rest, cut off later, could be of any length.
  const std::int64_t longest = std::min<std::int64_t>(4 * std::int64_t{side}, max_image_pixels / side);
  const int kept = static_cast<int>(std::min(height, width) * longest / side);
  const int rows = std::min(height, kept), columns = std::min(width, kept);
  const auto [to_height, to_width] = with_shorter_side(rows, columns, side);
  return {{(height - rows) / 2, (width - columns) / 2, rows, columns},
          to_height,
          to_width,
          {centred(to_height - size), centred(to_width - size), size, size}};
}

Sizing whole_within(int height, int width, int size) {
  HEARTH_CHECK(ShapeError, height > 0 && width > 0, "resize: an empty image");
  HEARTH_CHECK(ShapeError, size > 0, "resize: to ", size, " pixels");
  const int longer = std::max(height, width);
  const auto scaled = [&](int extent) {
    return std::max(static_cast<int>((static_cast<std::int64_t>(extent) * size + longer / 2) / longer), 1);
  };
  const int to_height = scaled(height), to_width = scaled(width);
  return {{0, 0, height, width}, to_height, to_width, {0, 0, to_height, to_width}};
}

namespace {

struct ScaledLine {
  double scale, shift;
};

/// Element i of `to`: the parts that are added exactly are multiples of a unit that leaves 24 bits for every result.
void split(const ScaledLine& line, int attempt, std::size_t i, kernels::PixelScale& to) {
  const double most = std::max(std::abs(line.shift), std::abs(line.shift + 255 * line.scale));
  const double unit = std::ldexp(1.0, std::ilogb(most) + 1 - 23);
  const double scale = (std::floor(line.scale / unit) + attempt) * unit;
  const double shift = std::round(line.shift / unit) * unit;
  to.scale[i] = static_cast<float>(scale);
  to.shift[i] = static_cast<float>(shift);
  to.scale_rest[i] = static_cast<float>(line.scale - scale);
  to.shift_rest[i] = static_cast<float>(line.shift - shift);
}

}  // namespace

Normalizer::Normalizer(int channels, const std::vector<double>& mean, const std::vector<double>& std)
    : channels_(channels) {
  const auto fits = [&](std::size_t count) { return count <= 1 || count == static_cast<std::size_t>(channels); };
  HEARTH_CHECK(ConfigError, fits(mean.size()) && fits(std.size()), "normalize: ", mean.size(), " means and ",
               std.size(), " standard deviations for ", channels, " channels; give none, one, or one a channel");
  for (const double value : std) {
    HEARTH_CHECK(ConfigError, value > 0, "normalize: a standard deviation of ", value, " is not above 0");
  }
  for (int c = 0; c < channels; ++c) {
    for (int value = 0; value < 256; ++value) {
      const double exact = (value / 255.0 - channel_value(mean, c, 0.0)) / channel_value(std, c, 1.0);
      const auto single = static_cast<float>(exact);
      table_.push_back(single);
      table_bf16_.push_back(bf16(single));
      table_f16_.push_back(f16(single));
    }
  }
  if (channels < 1 || kernels::PixelScale::period % static_cast<std::size_t>(channels) != 0) return;
  // Where a sum of the rests comes to lie at the middle of two floats, other parts of the same number do not.
  for (int attempt = 0; attempt < 8 && !scale_; ++attempt) {
    kernels::PixelScale scale{};
    for (std::size_t i = 0; i < kernels::PixelScale::period; ++i) {
      const int c = static_cast<int>(i % static_cast<std::size_t>(channels));
      const double deviation = channel_value(std, c, 1.0);
      split({1 / (255 * deviation), -channel_value(mean, c, 0.0) / deviation}, attempt, i, scale);
    }
    if (gives_table(scale)) scale_ = std::make_shared<const kernels::PixelScale>(scale);
  }
}

bool Normalizer::gives_table(const kernels::PixelScale& scale) const {
  // A whole period, and what is left of one.
  std::vector<std::uint8_t> pixels(2 * kernels::PixelScale::period - 1);
  std::vector<float> made(pixels.size());
  for (std::size_t value = 0; value < 256; ++value) {
    std::fill(pixels.begin(), pixels.end(), static_cast<std::uint8_t>(value));
    kernels::scale_pixels(pixels.data(), pixels.size(), scale, made.data());
    for (std::size_t i = 0; i < made.size(); ++i)
      if (made[i] != table_[256 * (i % static_cast<std::size_t>(channels_)) + value]) return false;
  }
  return true;
}

template <class T>
void Normalizer::apply(const Image& image, T* target) const {
  HEARTH_CHECK(ShapeError, image.channels == channels_, "normalize: an image of ", image.channels,
               " channels, set up for ", channels_);
  const std::uint8_t* in = image.pixels.data();
  const std::size_t count = image.pixels.size();
  const T* table = nullptr;
  if constexpr (std::is_same_v<T, float>) {
    if (scale_) return kernels::scale_pixels(in, count, *scale_, target);
    table = table_.data();
  } else if constexpr (std::is_same_v<T, bf16>)
    table = table_bf16_.data();
  else
    table = table_f16_.data();
  if (channels_ == 1) {
    for (std::size_t i = 0; i < count; ++i) target[i] = table[in[i]];
  } else if (channels_ == 3) {
    for (std::size_t i = 0; i + 2 < count; i += 3) {
      target[i] = table[in[i]];
      target[i + 1] = table[256 + in[i + 1]];
      target[i + 2] = table[512 + in[i + 2]];
    }
  } else {
    const auto channels = static_cast<std::size_t>(channels_);
    for (std::size_t i = 0; i < count; ++i) target[i] = table[256 * (i % channels) + in[i]];
  }
}

template void Normalizer::apply<float>(const Image&, float*) const;
template void Normalizer::apply<bf16>(const Image&, bf16*) const;
template void Normalizer::apply<f16>(const Image&, f16*) const;

Transforms::Transforms(ImageShape input, TransformOptions options, bool training)
    : options_((check_options(options), std::move(options))),
      training_(training),
      output_(output_of(input, options_)),
      normalizer_(output_.channels, options_.mean, options_.std) {
  HEARTH_CHECK(ConfigError, !any_jitter(options_.color_jitter) || output_.channels == 1 || output_.channels == 3,
               "color_jitter: needs images of 1 or 3 channels, not ", output_.channels);
  HEARTH_CHECK(ConfigError, options_.rand_augment.ops == 0 || output_.channels == 1 || output_.channels == 3,
               "rand_augment: needs images of 1 or 3 channels, not ", output_.channels);
  const auto as_pixel = [](double value) { return static_cast<std::uint8_t>(std::lround(255 * value)); };
  margin_ = as_pixel(options_.fill.value_or(0));
  for (int c = 0; c < output_.channels; ++c) {
    const double mean = std::clamp(channel_value(options_.mean, c, 0.0), 0.0, 1.0);
    fill_.push_back(as_pixel(options_.fill.value_or(mean)));
  }
}

bool Transforms::mirrors_at_once() const {
  return training_ && options_.horizontal_flip && options_.padded_crop == 0 && options_.fit != Fit::pad;
}

Sizing Transforms::sizing(int height, int width, Random& random) const {
  const int size = options_.image_size;
  Sizing sizing;
  if (size == 0) {
    sizing = unchanged(height, width);
  } else if (options_.random_resized_crop && training_) {
    const Box box = draw_resized_crop(height, width, options_.crop, random);
    sizing = {box, size, size, {0, 0, size, size}};
  } else if (options_.fit == Fit::stretch) {
    sizing = {{0, 0, height, width}, size, size, {0, 0, size, size}};
  } else if (options_.fit == Fit::pad) {
    sizing = whole_within(height, width, size);
  } else {
    sizing = centre_of(height, width, evaluated_side(options_), size);
  }
  sizing.filter = options_.filter;
  sizing.scaled_decoding = options_.scaled_decoding;
  sizing.mirrored = mirrors_at_once() && random.below(2) == 1;
  return sizing;
}

void Transforms::augment(Image& image, Image& scratch, Random& random) const {
  const Region region = region_of_whole(image, [&](int height, int width) { return sizing(height, width, random); });
  if (!is_unchanged(region, image)) {
    resize(image, region, scratch);
    std::swap(image, scratch);
  }
  change(image, scratch, random);
}

void Transforms::augment(Image& decoded, const Region& region, Image& image, Image& scratch, Random& random) const {
  if (is_unchanged(region, decoded))
    std::swap(decoded, image);
  else
    resize(decoded, region, image);
  change(image, scratch, random);
}

// The counterpart of change(), for what need not be an Image in between.
bool resizes_only(const Transforms& transforms, const Region& region, int channels) {
  const TransformOptions& options = transforms.options();
  const Box& window = region.sizing.window;
  if (ImageShape{window.height, window.width, channels} != transforms.output_shape()) return false;
  return !transforms.training() || (options.padded_crop == 0 && (!options.horizontal_flip || options.fit != Fit::pad) &&
                                    options.rand_augment.ops == 0 && !any_jitter(options.color_jitter));
}

Transforms::Moves Transforms::draw_moves(Random& random) const {
  Moves moves;
  if (!training_) return moves;
  if (options_.padded_crop > 0) {
    const int pad = options_.padded_crop;
    const std::uint64_t places = 2 * static_cast<std::uint64_t>(pad) + 1;
    moves.top = static_cast<int>(random.below(places)) - pad;
    moves.left = static_cast<int>(random.below(places)) - pad;
  }
  moves.mirrored = options_.horizontal_flip && !mirrors_at_once() && random.below(2) == 1;
  return moves;
}

void Transforms::move(Image& image, Image& scratch, const Moves& moves, std::uint8_t fill) const {
  const int size = options_.image_size;
  if (size > 0 && (image.height < size || image.width < size)) {
    crop(image, {(image.height - size) / 2, (image.width - size) / 2, size, size}, fill, scratch);
    std::swap(image, scratch);
  }
  if (moves.top != 0 || moves.left != 0) {
    crop(image, {moves.top, moves.left, image.height, image.width}, fill, scratch);
    std::swap(image, scratch);
  }
  if (moves.mirrored) flip_horizontally(image);
}

void Transforms::change(Image& image, Image& scratch, Random& random) const {
  move(image, scratch, draw_moves(random), margin_);
  if (training_) {
    rand_augment(image, scratch, options_.rand_augment, fill_, random);
    if (any_jitter(options_.color_jitter)) jitter_color(image, options_.color_jitter, random);
  }
  HEARTH_CHECK(ShapeError,
               image.height == output_.height && image.width == output_.width && image.channels == output_.channels,
               "transforms: an image of ", image.height, " x ", image.width, " x ", image.channels, ", expected ",
               output_.height, " x ", output_.width, " x ", output_.channels);
}

Box Transforms::draw_erased(Random& random) const {
  const RandomErasing& erasing = options_.erasing;
  if (!erases() || random.uniform() >= erasing.probability) return {};
  Box box;
  const bool found = draw_box(output_.height, output_.width, erasing.scale_min, erasing.scale_max, erasing.ratio_min,
                              erasing.ratio_max, random, box);
  return found ? box : Box{};
}

void Transforms::apply(Image& image, Image& scratch, Random random, DType dtype, std::byte* target) const {
  augment(image, scratch, random);
  finish(image, random, dtype, target);
}

void Transforms::finish(const Image& image, Random& random, DType dtype, std::byte* target) const {
  visit_dtype("loader", dtype, Types<float, bf16, f16>{},
              [&]<class T>() { normalizer_.apply(image, reinterpret_cast<T*>(target)); });
  const Box box = draw_erased(random);
  // All bits zero is 0 in each of the types.
  const std::size_t pixel = static_cast<std::size_t>(output_.channels) * size_of(dtype);
  for (int y = box.top; y < box.top + box.height; ++y) {
    const std::size_t begin =
        static_cast<std::size_t>(y) * static_cast<std::size_t>(output_.width) + static_cast<std::size_t>(box.left);
    std::fill_n(target + begin * pixel, static_cast<std::size_t>(box.width) * pixel, std::byte{0});
  }
}

Box Transforms::finish_pixels(const Image& image, Random& random, std::uint8_t* target) const {
  std::copy(image.pixels.begin(), image.pixels.end(), target);
  return draw_erased(random);
}

const Transforms& no_transforms() {
  static const Transforms none({1, 1, 1}, {}, false);
  return none;
}

}  // namespace hearth::data
