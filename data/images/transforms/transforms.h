// SPDX-License-Identifier: Apache-2.0
// From a decoded image to the model's input: sizing, augmentation, normalisation. Everything random is drawn from the
// stream it is given, which the loader keys by (seed, epoch, sample), so results never depend on who does the work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "core/random.h"
#include "data/images/codecs/image.h"
#include "data/images/transforms/transform_options.h"

namespace hearth {
namespace kernels {
struct PixelScale;
}
}  // namespace hearth

namespace hearth::data {

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
  /// Where augment() moves what was resized.
  struct Moves {
    int top = 0, left = 0;  ///< of the padded crop, in pixels of the input
    bool mirrored = false;
  };
  /// The next draws of augment(), of a region that sizing() has chosen.
  Moves draw_moves(Random& random) const;
  /// Fits the resized image, or what else has its size, into the input's square and moves it; `fill` is what lies
  /// outside. `scratch` is overwritten.
  void move(Image& image, Image& scratch, const Moves& moves, std::uint8_t fill) const;
  /// All steps; writes output_shape() elements of `dtype` (f32, bf16 or f16) to `target`.
  void apply(Image& image, Image& scratch, Random random, DType dtype, std::byte* target) const;
  /// All steps behind augment().
  void finish(const Image& image, Random& random, DType dtype, std::byte* target) const;
  /// The same for images that are normalised elsewhere; writes output_shape() pixels to `target`. Returns the box that
  /// erasing is to set to 0 after normalisation; an empty one where it leaves the image alone.
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
