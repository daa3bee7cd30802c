// SPDX-License-Identifier: Apache-2.0
// The reference run on real images, in a short form: half a minute on one core.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "hearth/core/json_text.h"
#include "support/temp_dir.h"

namespace hearth {
namespace {

TEST(SlowFashion, AShortRunReaches88Percent) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "too slow under a sanitizer; the digits runs cover the same code there";
#endif
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) GTEST_SKIP() << "dataset-fashion-mnist is absent";
  const hearth::test::TempDir folder;
  const std::string out = (folder / "run").string();
  const std::string command = std::string("\"") + HEARTH_PROGRAM + "\" train \"" + HEARTH_SOURCE_DIR +
                              "/examples/configs/fashion_resnet.json\" --out \"" + out +
                              "\" --set train.epochs=3 --set model.width=8 --set 'model.blocks=[1,1,1]' 2>/dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_GE(read_json(out + "/run.json").at("metrics").at("best_accuracy").as_number(), 0.88);
}

}  // namespace
}  // namespace hearth
