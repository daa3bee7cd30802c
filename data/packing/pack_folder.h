// SPDX-License-Identifier: Apache-2.0
// The folder of a pack that was interrupted.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>

#include "core/io/file.h"

namespace hearth::data {

/// Removes what an interrupted write_file_synced() left of these files.
inline void remove_leftovers(const std::filesystem::path& folder, std::initializer_list<const char*> names) {
  for (const std::string& there : list_directory(folder))
    for (const char* name : names)
      if (there.starts_with(std::string(".") + name + ".tmp-")) remove_tree(folder / there);
}

}  // namespace hearth::data
