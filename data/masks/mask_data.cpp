// SPDX-License-Identifier: Apache-2.0
#include "data/masks/mask_data.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/error.h"
#include "data/images/codecs/image_codecs.h"
#include "data/images/contact_sheet.h"
#include "data/images/imagenet_statistics.h"
#include "data/masks/mask_dataset.h"

namespace hearth::data {
namespace {

/// Masks of black and white objects mean something else than 255 does here.
void refuse_black_and_white(const MaskDataset& train, std::int64_t decode_bytes) {
  const MaskClasses& classes = train.mask_classes();
  if (!classes.uses_ids() || classes.label_of_id(255) != ignored_pixel) return;
  constexpr std::int64_t looked_at = 8;
  bool has_white = false, has_other = false;
  for (const std::int64_t sample : spread_samples(train.size(), looked_at)) {
    try {
      const std::string name = train.sample_name(sample);
      const PngSamples stored = decode_png_samples({train.mask_file(sample), name, decode_bytes});
      for (const std::uint8_t value : stored.image.pixels)
        has_white = has_white || value == 255, has_other = has_other || (value != 0 && value != 255);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error&) {
      // It is met again where it is read, and told there.
    }
  }
  HEARTH_CHECK(DataError, !has_white || has_other, train.source(),
               ": the masks looked at have the values 0 and 255 alone, and 255 is ignored; if it is a class, set "
               "\"ids\" to [0, 255] and \"ignored\" to []; if not, only one class is left to learn");
}

}  // namespace

void describe(Fields<MaskAugment>& fields) {
  fields.integer("image_size", &MaskAugment::image_size, {.min = 16, .max = 8192},
                 "Side of the square input, in training and evaluation.");
  fields.choice("fit", &MaskAugment::fit, {{"pad", Fit::pad}, {"stretch", Fit::stretch}},
                "How an image becomes that square, where no random box of it is taken: margins are added, which do not "
                "count, or its shape changes.");
  fields.choice(
      "interpolation", &MaskAugment::filter,
      {{"bilinear", ResizeFilter::bilinear}, {"bicubic", ResizeFilter::bicubic}, {"area", ResizeFilter::area}},
      "How pixels of an image are weighed where it is resized, antialiased: as Pillow's bilinear or bicubic, or the "
      "mean of what a pixel covers. Masks take the nearest pixel.");
  fields.boolean("scaled_decoding", &MaskAugment::scaled_decoding,
                 "Decode a JPEG at 1/2, 1/4 or 1/8 of its size where at least so many times the rows and columns of "
                 "the input are taken of it.");
  fields.boolean("random_resized_crop", &MaskAugment::random_resized_crop,
                 "Train on a box of random area and shape, resized to image_size.");
  fields.number("scale", &MaskAugment::scale, {.above = 0, .max = 1}, "Least and greatest area of that box.");
  fields.number("ratio", &MaskAugment::ratio, {.above = 0}, "Least and greatest width / height of that box.");
  fields.integer("padded_crop", &MaskAugment::padded_crop, {.min = 0, .max = 4096},
                 "Shift by up to so many pixels; what moves in does not count.");
  fields.boolean("flip", &MaskAugment::flip, "Mirror every other image and its mask, left to right.");
  fields.number("fill", &MaskAugment::fill, {.min = 0, .max = 1},
                "What lies outside an image, from black at 0 to white at 1.");
  fields.object("color_jitter", &MaskAugment::color_jitter, "Random changes of colour.");
  fields.rule([](const MaskAugment& o) {
    return o.scale[0] > o.scale[1] || o.ratio[0] > o.ratio[1] ? "scale and ratio are [least, greatest]" : "";
  });
}

void describe(Fields<MaskData>& fields) {
  fields
      .text("path", &MaskData::path,
            "Folder with the folders images and masks, each perhaps with folders train, valid and test; or with such "
            "folders of splits, each with images and masks.")
      .required();
  fields.text("images", &MaskNames::images, "Name of the folder of images.");
  fields.text("masks", &MaskNames::masks, "Name of the folder of masks: PNG files.");
  fields.text("mask_suffix", &MaskNames::suffix,
              "What the name of a mask has behind its image's, as \"_mask\" for a.jpg and a_mask.png.");
  fields.text("classes", &MaskCode::classes, {}, "Names by number; the background is one of them.").required();
  fields.integer("ids", &MaskCode::ids, {.min = 0, .max = 255},
                 "The pixel value of each class, or its number in the palette; [] for 0, 1, 2 ...");
  fields.text("colors", &MaskCode::colors, {},
              "The colour of each class, as \"#804080\", where masks have colours; [] where they have ids.");
  fields.integer("ignored", &MaskCode::ignored, {.min = 0, .max = 255},
                 "Pixel values that do not count in the loss and in metrics.");
  fields.text("ignored_colors", &MaskCode::ignored_colors, {}, "Colours that do not count, where masks have colours.");
  fields.object("augment", &MaskData::augment, "Size of the images and random changes in training.");
  fields.object("normalize", &MaskData::normalize, "Inputs are (pixel / 255 - mean) / std.");
  fields.integer("decode_mb", &MaskData::decode_mb, {.min = 1, .max = 4096},
                 "Memory that decoding one file may take, in MiB, in each thread that decodes; one that needs more is "
                 "broken.");
  fields.number(
      "valid_fraction", &DataOptions::valid_fraction, {.min = 0, .below = 1},
      "Share of the training images set aside as `valid`, each by its name, where the set has no such split.");
  fields.integer("split_seed", &DataOptions::split_seed, {.min = 0}, "Seed of that split.");
  describe_reading(fields);
}

MaskSplits masks_at(const MaskData& options, const std::string& path) {
  const auto classes = std::make_shared<const MaskClasses>(options);
  const MaskParts parts = find_mask_folders(path, options);
  const OnFault on_fault = options.bad_samples.policy == BadSamplePolicy::skip ? OnFault::skip : OnFault::fail;
  const auto open = [&](const MaskPart& part) -> std::shared_ptr<const MaskDataset> {
    if (part.images.empty()) return nullptr;
    return std::make_shared<MaskDataset>(pair_masks(part, options, on_fault), classes, options.decode_mb << 20);
  };
  return {open(parts.train), open(parts.valid), open(parts.test)};
}

OpenedData open_masks(const MaskData& options, Opening opening) {
  Splits splits;
  if (opening == Opening::all) {
    const MaskSplits masks = masks_at(options, options.path);
    refuse_black_and_white(*masks.train, options.decode_mb << 20);
    splits = {masks.train, masks.valid, masks.test};
    splits.statistics = imagenet_statistics();
  }
  OpenedData opened{std::move(splits), options};
  ImageOptions images;
  images.augment.image_size = options.augment.image_size;
  images.augment.fit = options.augment.fit;
  images.augment.filter = options.augment.filter;
  images.augment.scaled_decoding = options.augment.scaled_decoding;
  images.augment.random_resized_crop = options.augment.random_resized_crop;
  images.augment.scale = options.augment.scale;
  images.augment.ratio = options.augment.ratio;
  images.augment.padded_crop = options.augment.padded_crop;
  images.augment.horizontal_flip = options.augment.flip;
  images.augment.fill = options.augment.fill;
  images.augment.color_jitter = options.augment.color_jitter;
  images.normalize = options.normalize;
  opened.image_options = images;
  return opened;
}

}  // namespace hearth::data
