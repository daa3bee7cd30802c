// SPDX-License-Identifier: Apache-2.0
// Files as a system has them that tells a process of its limits.
#pragma once

#include <string>

#include "tests/support/temp_dir.h"

namespace hearth::test {

/// A system whose process is in the group that `membership` tells.
class SystemFiles {
 public:
  explicit SystemFiles(const std::string& membership) { file("proc/self/cgroup", membership); }
  SystemFiles& file(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text << "\n";
    return *this;
  }
  const std::filesystem::path& root() const { return root_.path(); }

 private:
  TempDir root_;
};

}  // namespace hearth::test
