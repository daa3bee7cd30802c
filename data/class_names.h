// SPDX-License-Identifier: Apache-2.0
// Classes as a configuration or the data name them.
#pragma once

#include <string>
#include <vector>

namespace hearth::data {

/// What `data.classes` gives, in the order of their numbers. ConfigError for a class that is there twice.
const std::vector<std::string>& distinct_classes(const std::vector<std::string>& names);

/// DataError for two classes of `source` that differ in blanks around them or in case only; `remedy` is what else helps
/// than to write them alike.
void refuse_alike_classes(const std::string& source, const std::vector<std::string>& names, const std::string& remedy);

}  // namespace hearth::data
