// SPDX-License-Identifier: Apache-2.0
// The records of COCO's JSON, before they are brought together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/boxes/annotations.h"

namespace hearth::data {

/// An annotation as it is in the file.
struct CocoRecord {
  std::int64_t id = 0;
  std::int64_t image = 0;
  std::int64_t category = 0;
  std::array<double, 4> box{};  // x, y, width, height
  double area = 0;
  bool crowd = false;
  bool ignored = false;
};

struct CocoCategory {
  std::int64_t id = 0;
  std::string name;
};

/// What a file has, in its order.
struct CocoText {
  std::vector<AnnotatedImage> images;
  std::vector<CocoCategory> categories;
  std::vector<CocoRecord> annotations;
  std::map<std::size_t, std::string> mask_faults;  // by annotation
};

/// Reads the records of a file, through a window, and checks their form. DataError, with file and line.
CocoText read_coco_text(const std::string& path);

}  // namespace hearth::data
