// SPDX-License-Identifier: Apache-2.0
// The program `hearth` in a folder of its own, with a configuration that it takes.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/io/file.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"

namespace hearth::train {

using test::contains;
using test::ProgramResult;

inline const char* const good_config = R"({
  "name": "small",
  "model": {"type": "mlp", "hidden": [16]},
  "data": {"type": "digits", "workers": 1},
  "optimizer": {"type": "sgd", "lr": 0.1, "momentum": 0.9},
  "train": {"batch_size": 64, "epochs": 1}
})";

class Cli : public testing::Test {
 protected:
  ProgramResult hearth(std::vector<std::string> words) {
    words.insert(words.begin(), test::hearth_program());
    return test::run_program(std::move(words), folder_.path());
  }

  // The failure of `hearth config` with one part of the good config replaced.
  ProgramResult config_with(const std::string& part, const std::string& replacement) {
    std::string text = good_config;
    const std::size_t at = text.find(part);
    EXPECT_NE(at, std::string::npos) << part;
    write("run.json", text.replace(at, part.size(), replacement));
    return hearth({"config", "run.json"});
  }

  void write(const std::string& name, const std::string& text) { write_file_synced(folder_ / name, text); }
  std::filesystem::path path(const std::string& name) const { return folder_ / name; }

 private:
  test::TempDir folder_;
};

inline void expect_failure(const ProgramResult& result, int exit_code, const std::string& kind,
                           const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  const std::string line = result.last_error_line();
  EXPECT_EQ(line.find("hearth: error: " + kind + ": "), 0u) << result.err;
  for (const std::string& part : parts) EXPECT_PRED2(contains, line, part);
  EXPECT_EQ(result.out, "") << "nothing but results belongs on stdout";
}

}  // namespace hearth::train
