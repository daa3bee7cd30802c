// SPDX-License-Identifier: Apache-2.0
// The datasets "coco", "yolo" and "voc" of run configurations.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/images/codecs/decode.h"
#include "data/images/image_options.h"
#include "data/registry.h"

namespace hearth::data {

/// "augment" of images with boxes.
struct BoxAugment : BoxTransformOptions {
  int image_size = 640;
  Fit fit = Fit::pad;
  bool flip = false;
  double fill = 114.0 / 255;
  ColorJitter color_jitter{};
  ResizeFilter filter = ResizeFilter::bilinear;
  bool scaled_decoding = true;
};
HEARTH_API void describe(Fields<RandomAffine>& fields);
HEARTH_API void describe(Fields<BoxAugment>& fields);

/// The options of a dataset of images with boxes.
struct BoxData : DataOptions {
  BoxAugment augment{};
  ChannelStatistics normalize{};
  std::int64_t decode_mb = default_decode_bytes >> 20;
};

struct CocoSplit {
  std::string images;
  std::string labels;
};
HEARTH_API void describe(Fields<CocoSplit>& fields);
struct CocoData : BoxData {
  CocoSplit train, valid, test;
};
HEARTH_API void describe(Fields<CocoData>& fields);
HEARTH_API OpenedData open_coco(const CocoData& options, Opening opening);

struct YoloData : BoxData {
  std::string path;
};
HEARTH_API void describe(Fields<YoloData>& fields);
HEARTH_API OpenedData open_yolo(const YoloData& options, Opening opening);

struct VocData : BoxData {
  std::string path;
  std::vector<std::string> classes{};
  int first_pixel = 1;
};
HEARTH_API void describe(Fields<VocData>& fields);
HEARTH_API OpenedData open_voc(const VocData& options, Opening opening);

}  // namespace hearth::data
