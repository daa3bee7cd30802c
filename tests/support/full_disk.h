// SPDX-License-Identifier: Apache-2.0
// A file system of one MiB, to see what running out of space does. Mounting needs privileges: tests ask mounted() and
// skip where it says no.
#pragma once

#include <sys/mount.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace hearth::test {

class FullDisk {
 public:
  FullDisk() : mounted_(::mount("tmpfs", directory_.path().c_str(), "tmpfs", 0, "size=1m") == 0) {}
  ~FullDisk() {
    if (mounted_) ::umount2(directory_.path().c_str(), MNT_DETACH);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

  bool mounted() const { return mounted_; }
  const std::filesystem::path& path() const { return directory_.path(); }

 private:
  TempDir directory_;
  bool mounted_;
};

}  // namespace hearth::test
