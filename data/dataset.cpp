// SPDX-License-Identifier: Apache-2.0
#include "data/dataset.h"

#include "core/error.h"

namespace hearth::data {

const std::vector<std::string>& Dataset::class_names() const {
  static const std::vector<std::string> none;
  return none;
}

void Dataset::check_index(std::int64_t index) const {
  HEARTH_CHECK(IndexError, index >= 0 && index < size(), source(), ": sample ", index, " of ", size());
}

std::vector<std::string> numbered_classes(std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace hearth::data
