// SPDX-License-Identifier: Apache-2.0
// Files of weights, in a folder of the test.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/io/file.h"
#include "tests/support/temp_dir.h"

namespace hearth::test {

/// what() of the E that `action` throws; "" if it throws nothing.
template <class E, class F>
std::string message_of(const F& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

class WeightsFiles : public testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    write_file_synced(folder_.path() / name, text);
    return (folder_.path() / name).string();
  }

  TempDir folder_;
};

}  // namespace hearth::test
