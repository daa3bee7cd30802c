// SPDX-License-Identifier: Apache-2.0
// From a decoded image to the model's input: sizing, augmentation, normalisation. Everything random is drawn from the
// stream it is given, which the loader keys by (seed, epoch, sample), so results never depend on who does the work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "core/random.h"
#include "data/dataset.h"
#include "data/image/image.h"
#include "data/quarantine.h"

namespace hearth {
namespace kernels {
struct PixelScale;
}
}  // namespace hearth

namespace hearth::data {

/// Cubuk et al., "RandAugment" (2020): a few changes of an image, drawn evenly from a list, all of one strength.
/// The scale of strengths is timm's, not torchvision's. Defaults as timm's "rand-m9-mstd0.5-inc1", but for the number
/// of changes and the list they are drawn from: timm's has no identity, and invert and solarize-add. Posterize keeps a
/// bit at least, where timm's makes the image one colour.
struct RandAugment {
  int ops = 0;               ///< changes drawn for each image, one after another; 0 turns it off
  double magnitude = 9;      ///< mean strength, 0 to 10
  double spread = 0.5;       ///< standard deviation of the strength, which stays within 0 to 10
  double probability = 0.5;  ///< that a drawn change is applied
  bool increasing =
      true;  ///< whether posterize, solarize and the four enhancements also grow stronger with the magnitude
};

/// A box of random area and aspect ratio, resized to the image size.
/// Source: Szegedy et al., "Going Deeper with Convolutions" (2015); defaults as in torchvision.
struct RandomResizedCrop {
  double scale_min = 0.08;  ///< least part of the image's area
  double scale_max = 1.0;
  double ratio_min = 0.75;  ///< least width / height
  double ratio_max = 4.0 / 3.0;
};

/// Factors are uniform in [1 - x, 1 + x] (hue: shift in [-x, x] of a full turn), applied in random order. 0 turns one
/// off.
struct ColorJitter {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;
};

/// A random box of the normalised image is set to 0, the mean. Source: Zhong et al., "Random Erasing" (2020).
struct RandomErasing {
  double probability = 0;
  double scale_min = 0.02;
  double scale_max = 0.33;
  double ratio_min = 0.3;
  double ratio_max = 3.3;
};

/// What becomes of an image that is no square, where no random box of it is taken.
enum class Fit {
  crop,     ///< the shorter side is resized to the input's, and the centre taken
  pad,      ///< the longer side is resized to the input's, with even margins along the other
  stretch,  ///< both sides are resized to the input's
};

/// How images become inputs. The random parts apply to training only.
struct TransformOptions {
  int image_size = 0;                            ///< side of the square input; 0 keeps the set's size
  Fit fit = Fit::crop;                           ///< how an image becomes that square
  ResizeFilter filter = ResizeFilter::bilinear;  ///< of every resize
  /// JPEGs are decoded at 1/2, 1/4 or 1/8 of their size where at least so many times the pixels of the input are taken.
  bool scaled_decoding = true;
  /// Evaluation by Fit::crop, where training uses random_resized_crop: the centre image_size of a shorter side of
  /// image_size / eval_crop.
  double eval_crop = 0.875;
  bool random_resized_crop = false;  ///< training takes a random box instead
  RandomResizedCrop crop{};
  int padded_crop = 0;           ///< padding on each side before a random crop of the original size
  bool horizontal_flip = false;  ///< mirror every other image
  RandAugment rand_augment{};
  /// What lies outside an image, from black at 0 to white at 1; else black, and the mean for rand_augment.
  std::optional<double> fill{};
  ColorJitter color_jitter{};
  RandomErasing erasing{};
  std::vector<double> mean{};  ///< of each channel, pixels in 0..1; one value serves all channels; empty means 0
  std::vector<double> std{};   ///< as mean; empty means 1
};

/// A box for random_resized_crop within an image of height x width.
HEARTH_API Box draw_resized_crop(int height, int width, const RandomResizedCrop& options, Random& random);
/// Applies the jitter in place. Saturation and hue leave grey images alone. ShapeError unless 1 or 3 channels.
HEARTH_API void jitter_color(Image& image, const ColorJitter& options, Random& random);
/// The shorter side to which evaluation resizes an image by Fit::crop, in pixels: image_size / eval_crop, rounded,
/// where training takes random boxes. With the other fits, which make squares of image_size, that.
HEARTH_API int evaluated_side(const TransformOptions& options);
/// The shorter side becomes `side` (the longer one follows, rounded down), of which the centre `size` x `size` is
/// taken. Of an image more than four times as long as wide, only the middle is resized. ShapeError for an empty image,
/// unless 0 < size <= side, and for more than max_image_pixels.
HEARTH_API Sizing centre_of(int height, int width, int side, int size);
/// The longer side becomes `size` (the shorter one follows, rounded, at least 1). ShapeError for an empty image or a
/// `size` below 1.
HEARTH_API Sizing whole_within(int height, int width, int size);

/// (pixel / 255 - mean) / std for every 8-bit value, worked out once in double and rounded once to the element type.
class HEARTH_API Normalizer {
 public:
  /// `mean` and `std`: empty, one value, or one a channel. ConfigError otherwise or for a std that is not above 0.
  Normalizer(int channels, const std::vector<double>& mean, const std::vector<double>& std);
  /// Writes pixels in order. T is float, bf16 or f16.
  template <class T>
  void apply(const Image& image, T* target) const;
  int channels() const { return channels_; }
  /// [channels][256], what each pixel value of a channel becomes.
  std::span<const float> values() const { return table_; }

 private:
  int channels_;
  bool gives_table(const kernels::PixelScale& scale) const;

  std::vector<float> table_;  // [channels][256]
  std::vector<bf16> table_bf16_;
  std::vector<f16> table_f16_;
  std::shared_ptr<const kernels::PixelScale> scale_;  // where it gives the values of the table
};

/// The steps of one split, in order: size, padded crop, flip, RandAugment, colour, normalisation, erasing.
class HEARTH_API Transforms {
 public:
  /// `input` as the set reports it. ConfigError if the result's size is not fixed or an option is out of range.
  Transforms(ImageShape input, TransformOptions options, bool training);

  /// Shape of every result.
  ImageShape output_shape() const { return output_; }
  bool training() const { return training_; }
  const TransformOptions& options() const { return options_; }
  /// The first step, of an image of this size: what of it is resized, and how. Draws the random box, and whether the
  /// result is mirrored where nothing comes between.
  Sizing sizing(int height, int width, Random& random) const;
  /// The steps before normalisation. `image` is the input and afterwards the result; `scratch` is overwritten.
  void augment(Image& image, Image& scratch, Random& random) const;
  /// The same of a region that sizing() has chosen, into `image`; `random` goes on behind the draws for that. `decoded`
  /// has any content afterwards.
  void augment(Image& decoded, const Region& region, Image& image, Image& scratch, Random& random) const;
  /// All steps; writes output_shape() elements of `dtype` (f32, bf16 or f16) to `target`.
  void apply(Image& image, Image& scratch, Random random, DType dtype, std::byte* target) const;
  /// All steps behind augment().
  void finish(const Image& image, Random& random, DType dtype, std::byte* target) const;
  /// The steps before normalisation, for images that are normalised elsewhere; writes output_shape() pixels to
  /// `target`. Returns the box that erasing is to set to 0 after normalisation; an empty one where it leaves the image
  /// alone.
  Box apply_pixels(Image& image, Image& scratch, Random random, std::uint8_t* target) const;
  /// The same behind augment().
  Box finish_pixels(const Image& image, Random& random, std::uint8_t* target) const;
  const Normalizer& normalizer() const { return normalizer_; }
  /// Whether some images lose a box.
  bool erases() const { return training_ && options_.erasing.probability > 0; }

 private:
  bool mirrors_at_once() const;
  void change(Image& image, Image& scratch, Random& random) const;
  Box draw_erased(Random& random) const;

  TransformOptions options_;
  bool training_;
  ImageShape output_;
  Normalizer normalizer_;
  std::uint8_t margin_ = 0;         // outside of what is cropped and padded
  std::vector<std::uint8_t> fill_;  // what rand_augment moves in, a value a channel
};

/// For datasets whose samples are no images.
HEARTH_API const Transforms& no_transforms();

/// Counts of every pixel value of each channel: sums that are exact, whatever the order.
class HEARTH_API PixelHistogram {
 public:
  void add(const Image& image);
  /// Of everything added.
  ChannelStatistics statistics() const;

 private:
  std::vector<std::uint64_t> counts_;  // [channel][256]
};

/// Measured over `most` samples at equal distances, from the first on; over all where there are no more.
HEARTH_API ChannelStatistics channel_statistics(const ImageDataset& dataset, std::int64_t most,
                                                BadSamplePolicy policy = BadSamplePolicy::fail);

/// How a batch is mixed: within the box, sample i becomes share x_i + (1 - share) x_(n-1-i); outside of it, it stays.
struct PairMix {
  double lambda = 1;
  Box box{};
  double weight = 1;  ///< of the sample's own label, what is left of it in the mixture
};
/// Mixup has the share from Beta(alpha, alpha) and the whole image as box; CutMix has share 0 and a box of 1 -
/// Beta(alpha, alpha) of the area, anywhere, of which the part within the image counts, and weighs labels by the area
/// that is left. An alpha of 0 turns one off; of both, each is taken half of the time. Sources: Zhang et al., "mixup:
/// Beyond Empirical Risk Minimization" (2018); Yun et al., "CutMix" (2019); pairing by reversal.
HEARTH_API PairMix draw_pair_mix(double mixup_alpha, double cutmix_alpha, int height, int width, Random& random);
/// `images` [n, height, width, channels] of `dtype` (f32, bf16 or f16), mixed in place. ShapeError for a box that
/// leaves them.
HEARTH_API void mix_images(DType dtype, std::byte* images, std::int64_t n, ImageShape shape, const PairMix& mix);
/// Row i of `soft_labels` [n, classes] is weight onehot_i + (1 - weight) onehot_(n-1-i).
HEARTH_API void mix_labels(const std::int64_t* labels, std::int64_t n, std::int64_t classes, double weight,
                           float* soft_labels);
/// A draw from Beta(alpha, alpha), alpha > 0 (by two Gamma draws; Marsaglia and Tsang, 2000).
HEARTH_API double draw_symmetric_beta(double alpha, Random& random);

}  // namespace hearth::data
