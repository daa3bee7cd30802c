// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/io/json_text.h"

namespace hearth::test {

/// The row of a list of objects that has this "name".
inline const Json& named_row(const Json& rows, std::string_view name) {
  const auto& list = rows.items();
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const Json& row) { return row.at("name").as_string() == name; });
  if (found == list.end()) throw std::runtime_error("no row " + std::string(name) + " in " + to_text(rows));
  return *found;
}

}  // namespace hearth::test
