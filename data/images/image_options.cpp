// SPDX-License-Identifier: Apache-2.0
#include "data/images/image_options.h"

namespace hearth::data {

TransformOptions transform_options(const ImageOptions& options) {
  const AugmentOptions& augment = options.augment;
  TransformOptions transforms = augment;
  transforms.crop = {augment.scale[0], augment.scale[1], augment.ratio[0], augment.ratio[1]};
  transforms.erasing.probability = augment.erasing_probability;
  transforms.mean = options.normalize.mean;
  transforms.std = options.normalize.std;
  return transforms;
}

void describe(Fields<ColorJitter>& fields) {
  fields.number("brightness", &ColorJitter::brightness, {.min = 0, .max = 100}, "Factor in 1 - x to 1 + x.");
  fields.number("contrast", &ColorJitter::contrast, {.min = 0, .max = 100}, "Factor in 1 - x to 1 + x.");
  fields.number("saturation", &ColorJitter::saturation, {.min = 0, .max = 100}, "Factor in 1 - x to 1 + x.");
  fields.number("hue", &ColorJitter::hue, {.min = 0, .max = 0.5}, "Shift in -x to x of a full turn.");
}

void describe(Fields<RandAugment>& fields) {
  fields.integer("ops", &RandAugment::ops, {.min = 0, .max = 100},
                 "Changes drawn for each image, one after another; 2 is usual, 0 turns it off.");
  fields.number("magnitude", &RandAugment::magnitude, {.min = 0, .max = 10}, "Mean strength.");
  fields.number("spread", &RandAugment::spread, {.min = 0, .max = 10}, "Standard deviation of the strength.");
  fields.number("probability", &RandAugment::probability, {.min = 0, .max = 1},
                "That a drawn change is applied; 1 as in the paper.");
  fields.boolean("increasing", &RandAugment::increasing,
                 "Whether all changes grow with the magnitude; else factors of colour run from 0.1 to 1.9, and fewer "
                 "values are inverted and more bits kept.");
}

void describe(Fields<AugmentOptions>& fields) {
  fields.integer("image_size", &AugmentOptions::image_size, {.min = 0, .max = 8192},
                 "Side of the square input, in training and evaluation; 0 keeps the set's size.");
  fields.choice("fit", &AugmentOptions::fit, {{"crop", Fit::crop}, {"pad", Fit::pad}, {"stretch", Fit::stretch}},
                "How an image becomes that square, where no random box of it is taken: the centre is cut out, margins "
                "are added, or its shape changes.");
  fields.choice(
      "interpolation", &AugmentOptions::filter,
      {{"bilinear", ResizeFilter::bilinear}, {"bicubic", ResizeFilter::bicubic}, {"area", ResizeFilter::area}},
      "How pixels are weighed where an image is resized, antialiased: as Pillow's bilinear or bicubic, or the "
      "mean of what a pixel covers.");
  fields.boolean("scaled_decoding", &AugmentOptions::scaled_decoding,
                 "Decode a JPEG at 1/2, 1/4 or 1/8 of its size where at least so many times the rows and columns of "
                 "the input are taken of it; false decodes all pixels that are taken.");
  fields.number("eval_crop", &AugmentOptions::eval_crop, {.above = 0, .max = 1},
                "With random_resized_crop and the fit crop, evaluation takes the centre of a shorter side of "
                "image_size / eval_crop.");
  fields.boolean("random_resized_crop", &AugmentOptions::random_resized_crop,
                 "A box of random area and shape, resized to image_size.");
  fields.number("scale", &AugmentOptions::scale, {.above = 0, .max = 1}, "Least and greatest area of that box.");
  fields.number("ratio", &AugmentOptions::ratio, {.above = 0}, "Least and greatest width / height of that box.");
  fields.integer("padded_crop", &AugmentOptions::padded_crop, {.min = 0, .max = 4096},
                 "Shift by up to so many pixels.");
  fields.boolean("flip", &AugmentOptions::horizontal_flip, "Mirror every other image, left to right.");
  fields.number("fill", &AugmentOptions::fill, {.min = 0, .max = 1},
                "What lies outside an image, from black at 0 to white at 1, for padded_crop, rand_augment and the fit "
                "pad. null: black, and the mean for rand_augment.");
  fields.object("rand_augment", &AugmentOptions::rand_augment,
                "RandAugment: a few changes of shape, colour and sharpness, drawn for each image.");
  fields.object("color_jitter", &AugmentOptions::color_jitter, "Random changes of colour.");
  fields.number("erasing", &AugmentOptions::erasing_probability, {.min = 0, .max = 1},
                "Probability of blanking a random box.");
  fields.number("mixup", &AugmentOptions::mixup, {.min = 0, .max = 1000},
                "Alpha of mixup: pairs of samples are mixed by a share from Beta(alpha, alpha); 0 turns it off.");
  fields.number("cutmix", &AugmentOptions::cutmix, {.min = 0, .max = 1000},
                "Alpha of CutMix: pairs of samples exchange a box, of an area from Beta(alpha, alpha); 0 turns it off. "
                "With mixup beside it, each batch takes one of the two, at even odds.");
  fields.rule([](const AugmentOptions& o) {
    return o.random_resized_crop && o.image_size == 0 ? "random_resized_crop needs image_size" : "";
  });
  fields.rule([](const AugmentOptions& o) {
    return o.fit != Fit::crop && o.image_size == 0 ? "fit needs image_size, the side of the square that it makes" : "";
  });
  fields.rule([](const AugmentOptions& o) {
    return o.scale[0] > o.scale[1] || o.ratio[0] > o.ratio[1] ? "scale and ratio are [least, greatest]" : "";
  });
}

void describe(Fields<ChannelStatistics>& fields) {
  fields.number("mean", &ChannelStatistics::mean, {.max_items = 64},
                "Of each channel, pixels in 0..1; one value serves all; [] for what is usual for the set.");
  fields.number("std", &ChannelStatistics::std, {.above = 0, .max_items = 64}, "As mean.");
}

}  // namespace hearth::data
