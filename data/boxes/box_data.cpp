// SPDX-License-Identifier: Apache-2.0
#include "data/boxes/box_data.h"

#include <memory>
#include <utility>

#include "core/error.h"
#include "data/boxes/box_dataset.h"
#include "data/boxes/coco_json.h"
#include "data/boxes/voc_xml.h"
#include "data/boxes/yolo_folder.h"
#include "data/images/imagenet_statistics.h"

namespace hearth::data {
namespace {

template <class T>
void describe_boxes(Fields<T>& fields) {
  fields.object("augment", &BoxData::augment, "Size of the images and random changes in training.");
  fields.object("normalize", &BoxData::normalize, "Inputs are (pixel / 255 - mean) / std.");
  fields.integer("decode_mb", &BoxData::decode_mb, {.min = 1, .max = 4096},
                 "Memory that decoding one image may take, in MiB, in each thread that decodes; one that needs more is "
                 "broken.");
  fields.number(
      "valid_fraction", &DataOptions::valid_fraction, {.min = 0, .below = 1},
      "Share of the training images set aside as `valid`, each by its name, where the set has no such split.");
  fields.integer("split_seed", &DataOptions::split_seed, {.min = 0}, "Seed of that split.");
  describe_reading(fields);
}

OnFault on_fault_of(const BoxData& options) {
  return options.bad_samples.policy == BadSamplePolicy::skip ? OnFault::skip : OnFault::fail;
}

/// As the loader and a model's input take it.
OpenedData opened_boxes(Splits splits, const BoxData& options) {
  OpenedData opened{std::move(splits), options};
  ImageOptions images;
  images.augment.image_size = options.augment.image_size;
  images.augment.fit = options.augment.fit;
  images.augment.horizontal_flip = options.augment.flip;
  images.augment.fill = options.augment.fill;
  images.augment.filter = options.augment.filter;
  images.augment.scaled_decoding = options.augment.scaled_decoding;
  images.augment.color_jitter = options.augment.color_jitter;
  images.augment.boxes = options.augment;
  images.normalize = options.normalize;
  opened.image_options = images;
  return opened;
}

DatasetPointer box_dataset(AnnotatedImages annotated, const BoxData& options) {
  return std::make_shared<BoxDataset>(std::move(annotated), options.decode_mb << 20);
}

void warn_of_training_images(AnnotatedImages& annotated, const std::string& labels) {
  annotated.warnings.add(labels + ": evaluates on the images of the training split");
}

}  // namespace

void describe(Fields<RandomAffine>& fields) {
  fields.number("rotation", &RandomAffine::rotation, {.min = 0, .max = 180}, "Degrees, in -x to x.");
  fields.number("scale", &RandomAffine::scale, {.above = 0, .max = 16}, "Least and greatest factor.");
  fields.number("shear", &RandomAffine::shear, {.min = 0, .max = 40}, "Degrees along each axis, in -x to x.");
  fields.number("translation", &RandomAffine::translation, {.min = 0, .max = 1},
                "Shift along each axis in -x to x of image_size.");
  fields.rule([](const RandomAffine& o) { return o.scale[0] > o.scale[1] ? "scale is [least, greatest]" : ""; });
}

namespace {

/// Of the options that only images without mosaic take, whether some are there.
bool has_single_moves(const BoxAugment& o) {
  return o.iou_crop || o.expand > 1 || o.scale_jitter != std::array<double, 2>{1, 1};
}

void describe_mixing(Fields<BoxAugment>& fields) {
  fields.number(
      "mosaic", &BoxAugment::mosaic, {.min = 0, .max = 1},
      "Probability that an image and three others, around a random centre, become one. These four are fitted to "
      "image_size; iou_crop, expand and scale_jitter leave them alone.");
  fields.number("mixup", &BoxAugment::mixup, {.min = 0, .max = 1},
                "Probability that another image, at 0.5 to 1.5 of its fitted size, is blended in with its boxes.");
  fields.integer("close_mosaic", &BoxAugment::close_mosaic, {.min = 0},
                 "So many last epochs of a run are without mosaic and mixup; 15 of 300 are usual.");
  fields.rule([](const BoxAugment& o) {
    return o.close_mosaic > 0 && o.mosaic == 0 && o.mixup == 0
               ? "close_mosaic ends mosaic and mixup, and neither is on; set one, or leave close_mosaic out"
               : "";
  });
  fields.rule([](const BoxAugment& o) {
    return o.mosaic == 1 && o.close_mosaic == 0 && has_single_moves(o)
               ? "iou_crop, expand and scale_jitter are of images without mosaic, and a mosaic of 1 leaves none; lower "
                 "mosaic, set close_mosaic, or leave them out"
               : "";
  });
}

}  // namespace

void describe(Fields<BoxAugment>& fields) {
  fields.integer("image_size", &BoxAugment::image_size, {.min = 16, .max = 8192},
                 "Side of the square input, in training and evaluation.");
  fields.choice("fit", &BoxAugment::fit, {{"pad", Fit::pad}, {"stretch", Fit::stretch}},
                "How an image becomes that square: its longer side becomes image_size and margins fill the rest, or "
                "both sides become image_size.");
  fields.boolean("flip", &BoxAugment::flip, "Mirror every other image, left to right, and its boxes.");
  fields.number("fill", &BoxAugment::fill, {.min = 0, .max = 1},
                "What lies outside an image, from black at 0 to white at 1; expand has the mean of `normalize`.");
  fields.choice(
      "interpolation", &BoxAugment::filter,
      {{"bilinear", ResizeFilter::bilinear}, {"bicubic", ResizeFilter::bicubic}, {"area", ResizeFilter::area}},
      "How pixels are weighed where an image is resized, antialiased: as Pillow's bilinear or bicubic, or the mean of "
      "what a pixel covers.");
  fields.boolean(
      "scaled_decoding", &BoxAugment::scaled_decoding,
      "Decode a JPEG at 1/2, 1/4 or 1/8 of its size where it has at least so many times the rows and columns "
      "of the result.");
  fields.boolean("iou_crop", &BoxAugment::iou_crop,
                 "SSD's random crop: a part that overlaps a box by a random least IoU, or all of the image.");
  fields.number(
      "expand", &BoxAugment::expand, {.min = 1, .max = 16},
      "Greatest side of a canvas of the mean colour on which the image lies anywhere, in sides of the image; 1 "
      "turns it off, SSD has 4.");
  fields.number("expand_probability", &BoxAugment::expand_probability, {.min = 0, .max = 1}, "That it is expanded.");
  fields.number(
      "scale_jitter", &BoxAugment::scale_jitter, {.above = 0, .max = 16},
      "Least and greatest factor of the fitted size; the image lies anywhere, and is cut where it is larger.");
  fields.object("affine", &BoxAugment::affine, "Random rotation, scale, shear and translation about the centre.");
  fields.object("color_jitter", &BoxAugment::color_jitter, "Random changes of colour.");
  fields.number("min_visibility", &BoxAugment::min_visibility, {.min = 0, .max = 1},
                "Boxes of which a smaller share of the area is left are dropped.");
  fields.rule([](const BoxAugment& o) {
    return o.scale_jitter[0] > o.scale_jitter[1] ? "scale_jitter is [least, greatest]" : "";
  });
  describe_mixing(fields);
}

void describe(Fields<CocoSplit>& fields) {
  fields.text("images", &CocoSplit::images, "Folder of the images, from which on the labels name them.");
  fields.text("labels", &CocoSplit::labels,
              "JSON with images, annotations and categories, as instances_train2017.json.");
  fields.rule([](const CocoSplit& o) {
    return o.images.empty() != o.labels.empty() ? "images and labels are given together" : "";
  });
}

void describe(Fields<CocoData>& fields) {
  fields.object("train", &CocoData::train, "The training split.");
  fields.object("valid", &CocoData::valid, "The validation split; empty for none.");
  fields.object("test", &CocoData::test, "The test split; empty for none.");
  fields.rule([](const CocoData& o) { return o.train.images.empty() ? "train needs images and labels" : ""; });
  describe_boxes(fields);
}

OpenedData open_coco(const CocoData& options, Opening opening) {
  if (opening == Opening::options_only) return opened_boxes({}, options);
  const OnFault on_fault = on_fault_of(options);
  std::vector<std::string> classes;
  const auto open = [&](const CocoSplit& split) -> DatasetPointer {
    if (split.labels.empty()) return nullptr;
    AnnotatedImages annotated = read_coco(split.labels, split.images, on_fault);
    require_files(annotated, on_fault);
    if (classes.empty())
      classes = annotated.class_names;
    else
      match_classes(annotated, classes);
    if (&split != &options.train && split.labels == options.train.labels)
      warn_of_training_images(annotated, split.labels);
    return box_dataset(std::move(annotated), options);
  };
  Splits splits;
  splits.train = open(options.train);
  splits.valid = open(options.valid);
  splits.test = open(options.test);
  splits.statistics = imagenet_statistics();
  return opened_boxes(std::move(splits), options);
}

void describe(Fields<YoloData>& fields) {
  fields.text("path", &YoloData::path, "The data.yaml, with names, train, val and test.").required();
  describe_boxes(fields);
}

OpenedData open_yolo(const YoloData& options, Opening opening) {
  if (opening == Opening::options_only) return opened_boxes({}, options);
  const YoloDescription description = read_yolo_description(options.path);
  const auto open = [&](const std::vector<std::string>& entries) -> DatasetPointer {
    if (entries.empty()) return nullptr;
    AnnotatedImages annotated = read_yolo(description, entries, on_fault_of(options));
    if (&entries != &description.train && entries == description.train)
      warn_of_training_images(annotated, description.file);
    return box_dataset(std::move(annotated), options);
  };
  Splits splits;
  splits.train = open(description.train);
  splits.valid = open(description.valid);
  splits.test = open(description.test);
  splits.statistics = imagenet_statistics();
  return opened_boxes(std::move(splits), options);
}

void describe(Fields<VocData>& fields) {
  fields
      .text("path", &VocData::path,
            "Folder with Annotations and JPEGImages, or with XML files beside images, or with folders train, valid and "
            "test of such.")
      .required();
  fields.text("classes", &VocData::classes, {},
              "Names by label; [] for those that the training split has, in the order of their bytes.");
  fields.integer(
      "first_pixel", &VocData::first_pixel, {.min = 0, .max = 1},
      "Number of an image's first pixel: 1 as Pascal counts, where xmax is the last pixel of a box; 0 where a "
      "program writes edges counted from 0.");
  describe_boxes(fields);
}

OpenedData open_voc(const VocData& options, Opening opening) {
  if (opening == Opening::options_only) return opened_boxes({}, options);
  const VocFolder folder = find_voc(options.path);
  VocOptions reading{.first_pixel = options.first_pixel, .classes = options.classes, .on_fault = on_fault_of(options)};
  const auto open = [&](const VocSplit& split) -> DatasetPointer {
    if (split.names.empty()) return nullptr;
    AnnotatedImages annotated = read_voc(split, reading);
    HEARTH_CHECK(DataError, !annotated.class_names.empty(), split.source,
                 ": has no object, and so no class; name them "
                 "by \"classes\"");
    reading.classes = annotated.class_names;
    return box_dataset(std::move(annotated), options);
  };
  Splits splits;
  splits.train = open(folder.train);
  splits.valid = open(folder.valid);
  splits.test = open(folder.test);
  splits.statistics = imagenet_statistics();
  return opened_boxes(std::move(splits), options);
}

}  // namespace hearth::data
