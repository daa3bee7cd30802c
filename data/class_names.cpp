// SPDX-License-Identifier: Apache-2.0
#include "data/class_names.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "core/error.h"
#include "core/io/printable.h"

namespace hearth::data {

const std::vector<std::string>& distinct_classes(const std::vector<std::string>& names) {
  std::vector<std::string> sorted = names;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  HEARTH_CHECK(ConfigError, twice == sorted.end(), "/data/classes: \"", *twice,
               "\" is there twice; name each class once, in the order of their numbers");
  return names;
}

void refuse_alike_classes(const std::string& source, const std::vector<std::string>& names, const std::string& remedy) {
  std::map<std::string, std::string> seen;
  for (const std::string& name : names) {
    constexpr const char* blanks = " \t\r\n";
    const std::size_t first = std::min(name.find_first_not_of(blanks), name.size());
    std::string plain = name.substr(first, name.find_last_not_of(blanks) + 1 - first);
    for (char& c : plain) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const auto [other, is_new] = seen.emplace(std::move(plain), name);
    HEARTH_CHECK(DataError, is_new, source, ": the classes \"", printable(other->second), "\" and \"", printable(name),
                 "\" differ in blanks or case only; write them alike, or ", remedy);
  }
}

}  // namespace hearth::data
