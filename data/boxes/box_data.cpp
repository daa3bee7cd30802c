// SPDX-License-Identifier: Apache-2.0
#include "data/boxes/box_data.h"

#include <memory>
#include <utility>

#include "core/error.h"
#include "data/boxes/box_dataset.h"
#include "data/boxes/coco_json.h"
#include "data/boxes/voc_xml.h"
#include "data/boxes/yolo_folder.h"

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
  images.augment.fit = Fit::pad;
  images.augment.horizontal_flip = options.augment.flip;
  images.augment.fill = options.augment.fill;
  images.augment.filter = options.augment.filter;
  images.augment.scaled_decoding = options.augment.scaled_decoding;
  images.normalize = options.normalize;
  opened.image_options = images;
  return opened;
}

DatasetPointer box_dataset(AnnotatedImages annotated, const BoxData& options) {
  return std::make_shared<BoxDataset>(std::move(annotated), options.decode_mb << 20);
}

/// ImageNet's, which trunks are trained with.
ChannelStatistics usual_statistics() { return {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}}; }

}  // namespace

void describe(Fields<BoxAugment>& fields) {
  fields.integer("image_size", &BoxAugment::image_size, {.min = 16, .max = 8192},
                 "Side of the square input: the longer side of an image becomes it, margins fill the rest.");
  fields.boolean("flip", &BoxAugment::flip, "Mirror every other image, left to right, and its boxes.");
  fields.number("fill", &BoxAugment::fill, {.min = 0, .max = 1}, "The margins, from black at 0 to white at 1.");
  fields.choice(
      "interpolation", &BoxAugment::filter,
      {{"bilinear", ResizeFilter::bilinear}, {"bicubic", ResizeFilter::bicubic}, {"area", ResizeFilter::area}},
      "How pixels are weighed where an image is resized, antialiased: as Pillow's bilinear or bicubic, or the mean of "
      "what a pixel covers.");
  fields.boolean(
      "scaled_decoding", &BoxAugment::scaled_decoding,
      "Decode a JPEG at 1/2, 1/4 or 1/8 of its size where it has at least so many times the rows and columns "
      "of the result.");
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
    return box_dataset(std::move(annotated), options);
  };
  Splits splits;
  splits.train = open(options.train);
  splits.valid = open(options.valid);
  splits.test = open(options.test);
  splits.statistics = usual_statistics();
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
      annotated.warnings.add(description.file + ": evaluates on the images of the training split");
    return box_dataset(std::move(annotated), options);
  };
  Splits splits;
  splits.train = open(description.train);
  splits.valid = open(description.valid);
  splits.test = open(description.test);
  splits.statistics = usual_statistics();
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
  splits.statistics = usual_statistics();
  return opened_boxes(std::move(splits), options);
}

}  // namespace hearth::data
