// SPDX-License-Identifier: Apache-2.0
// The reference runs on real images, in a short form: half a minute on one core a training.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/io/json_text.h"
#include "ops/onednn/onednn.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace hearth::fashion_test {
namespace {

class SlowFashion : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "too slow under a sanitizer; the digits runs cover the same code there";
#endif
    if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist"))
      GTEST_SKIP() << "dataset-fashion-mnist is absent";
  }
  /// Of a run of examples/configs/`config` on the test images.
  static double test_accuracy(const std::string& config, const std::string& changes) {
    const hearth::test::TempDir folder;
    const std::string out = (folder / "run").string();
    const std::string command = "\"" + test::hearth_program() + "\" train \"" + test::source_dir() +
                                "/examples/configs/" + config + "\" --out \"" + out + "\" " + changes + " 2>/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return read_json(out + "/run.json").at("metrics").at("test_accuracy").as_number();
  }
};

// The mean of three seeds: by chance a single one has up to 0.4 points less or 0.2 more in O2.
TEST_F(SlowFashion, AShortRunReaches88PercentAndNoLessInO2) {
  const std::string config = "fashion_resnet.json",
                    small = "--set train.epochs=3 --set model.width=8 --set 'model.blocks=[1,1,1]'",
                    // bf16 that the processor does not multiply itself takes minutes; f16 goes through f32 anyway.
      dtype = cpu::dnn::has_hardware_bf16() ? "bf16" : "f16";
  double wide = 0, narrow = 0;
  for (const char* seed : {"1", "2", "3"}) {
    const std::string changes = small + " --set seed=" + seed;
    wide += test_accuracy(config, changes + R"( --set 'precision={"level": "O0"}')") / 3;
    narrow += test_accuracy(config, changes + R"( --set 'precision={"level": "O2", "dtype": ")" + dtype + "\"}'") / 3;
  }
  EXPECT_GE(wide, 0.88);
  EXPECT_GE(narrow, wide - 0.003) << dtype;
  RecordProperty("O2_" + dtype, std::to_string(narrow) + " beside " + std::to_string(wide));
}

// Larger patches and half as many channels: 85.7 %.
TEST_F(SlowFashion, AShortRunOfASwinReaches84Percent) {
  const std::string model = R"({"type": "swin", "depths": [2, 2], "heads": [2, 4], "width": 32, "patch": 4, "window": 4,
                                "mlp_ratio": 2})",
                    train = R"({"batch_size": 48, "epochs": 3, "clip_norm": 1})",
                    schedule = R"({"type": "cosine", "warmup_epochs": 0.2})";
  EXPECT_GE(test_accuracy("fashion_swin.json", "--set 'model=" + model + "' --set 'train=" + train +
                                                   "' --set 'schedule=" + schedule +
                                                   R"(' --set optimizer.lr=0.002 --set 'data.augment={"flip": true}')"),
            0.84);
}

}  // namespace
}  // namespace hearth::fashion_test
