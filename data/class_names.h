// SPDX-License-Identifier: Apache-2.0
// Classes as a configuration names them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"

namespace hearth::data {

/// What `data.classes` gives, in the order of their numbers. ConfigError for a class that is there twice.
inline const std::vector<std::string>& distinct_classes(const std::vector<std::string>& given) {
  std::vector<std::string> sorted = given;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  HEARTH_CHECK(ConfigError, twice == sorted.end(), "/data/classes: \"", *twice,
               "\" is there twice; name each class once, in the order of their numbers");
  return given;
}

}  // namespace hearth::data
