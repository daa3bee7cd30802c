// SPDX-License-Identifier: Apache-2.0
// Labels of boxes as YOLO's programs have them: a data.yaml, images, and a text file of boxes for each image.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/boxes/annotations.h"

namespace hearth::data {

/// A data.yaml.
struct YoloDescription {
  std::string file;
  std::vector<std::string> class_names;
  std::vector<std::string> train{};  ///< folders of images and lists of images, as paths
  std::vector<std::string> valid{};
  std::vector<std::string> test{};
};

/// Reads `names` (a list, or a map from 0 on), `nc`, `path`, `train`, `val` and `test`. Entries are a folder, a file
/// .txt that lists images, or a list of those, from `path` on; that is from the folder of the file on.
/// "../train/images" is taken for "train/images" where only that is there. DataError, naming file and line, for what is
/// missing or of another form: names with holes, `nc` that is not their number, keypoints, entries that are not there.
YoloDescription read_yolo_description(const std::string& yaml);

/// Reads the labels of a split. An image .../images/a.jpg has its boxes in .../labels/a.txt, one outside of a folder
/// "images" beside itself: lines of "class x y w h", centre and sides as shares of the image's, or of a class and the
/// points of a polygon, of which the box is taken. An image without such a file, or with an empty one, is background.
/// DataError, naming file and line, for lines of another form and shares above 1, as a fault of the image; for labels
/// of no image at all; for images that are listed twice. Label files without an image are a warning.
AnnotatedImages read_yolo(const YoloDescription& description, const std::vector<std::string>& entries,
                          OnFault on_fault);

}  // namespace hearth::data
