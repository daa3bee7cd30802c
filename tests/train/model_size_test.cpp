// SPDX-License-Identifier: Apache-2.0
// Models that do not fit memory are refused by their number of parameters, before any of it is touched.
#include "train/memory/model_size.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/memory/memory.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "train/session.h"

namespace hearth::train::model_size_test {
namespace {

constexpr std::int64_t gigabyte = std::int64_t{1} << 30;

LoadedConfig config_of(const test::TempDir& folder, const std::string& model, const std::string& optimizer) {
  const std::string path = folder / "run.json";
  std::ofstream(path) << R"({"model": )" << model << R"(, "data": {"type": "digits"}, "optimizer": )" << optimizer
                      << R"(, "train": {"batch_size": 8, "steps": 1}})";
  return load_config(path, {});
}

const models::InputInfo images{.height = 32, .width = 32, .channels = 3, .classes = 10};
const models::InputInfo sequences{.classes = 65, .length = 16, .vocabulary = 65};

TEST(ModelSize, RefusesWhatNoMachineHolds) {
  const test::TempDir folder;
  const char* const sgd = R"({"type": "sgd", "lr": 0.1})";
  for (const char* model :
       {R"({"type": "gpt", "width": 1000000, "heads": 1})", R"({"type": "gpt", "layers": 1000, "width": 768})",
        R"({"type": "resnet", "width": 65536})", R"({"type": "resnet", "blocks": [1000, 1000], "width": 256})",
        R"({"type": "mlp", "hidden": [1000000, 1000000]})"}) {
    const LoadedConfig loaded = config_of(folder, model, sgd);
    const bool text = std::string(model).find("gpt") != std::string::npos;
    const std::int64_t before = memory_of({}).statistics().allocations;
    const std::string message = test::error_message<OutOfMemory>(
        [&] { require_model_fits(loaded.config, text ? sequences : images, true, 1, 4 * gigabyte); });
    EXPECT_PRED2(test::contains, message, " parameters, which with gradients") << model;
    EXPECT_PRED2(test::contains, message, "4294967296 are available; make the model smaller") << model;
    EXPECT_EQ(memory_of({}).statistics().allocations, before) << model;
  }
}

TEST(ModelSize, CountsWhatARunHoldsOfEachWeight) {
  const test::TempDir folder;
  // 1000 x 3072 and 10 x 1000 weights with their biases.
  const std::int64_t parameters = 1000 * 3072 + 1000 + 10 * 1000 + 10;
  const auto refused = [&](const char* optimizer, std::int64_t copies, std::int64_t less, int zero = 0, int ranks = 1) {
    LoadedConfig loaded = config_of(folder, R"({"type": "mlp", "hidden": [1000]})", optimizer);
    loaded.config.dist.zero = zero;
    try {
      require_model_fits(loaded.config, images, true, ranks, parameters * 4 * copies / ranks - less);
      return false;
    } catch (const OutOfMemory&) {
      return true;
    }
  };
  for (const auto& [optimizer, copies] :
       {std::pair{R"({"type": "sgd", "lr": 0.1})", 3}, std::pair{R"({"type": "sgd", "lr": 0.1, "momentum": 0.9})", 3},
        std::pair{R"({"type": "lars", "lr": 0.1, "momentum": 0.9})", 3},
        std::pair{R"({"type": "adamw", "lr": 0.1})", 4}, std::pair{R"({"type": "lamb", "lr": 0.1})", 4}}) {
    EXPECT_FALSE(refused(optimizer, copies, 0)) << optimizer;
    EXPECT_TRUE(refused(optimizer, copies, 4 * copies)) << optimizer;
  }
  // Of values and gradients, and of the moments or of the weights as they were made, in quarters.
  for (const auto& [zero, quarters] :
       {std::pair{0, 4 + 4 + 8}, std::pair{1, 4 + 4 + 4}, std::pair{2, 4 + 1 + 4}, std::pair{3, 1 + 1 + 4}}) {
    const char* const adamw = R"({"type": "adamw", "lr": 0.1})";
    EXPECT_FALSE(refused(adamw, quarters, -4, zero, 4)) << zero;
    EXPECT_TRUE(refused(adamw, quarters, 4 * quarters, zero, 4)) << zero;
  }
}

TEST(ModelSize, IsLookedAtBeforeASessionIsBuilt) {
  const test::TempDir folder;
  memory_of({}).reset_peak();
  const std::int64_t before = memory_of({}).statistics().peak;
  const std::string message = test::error_message<OutOfMemory>([&] {
    Session session(
        config_of(folder, R"({"type": "mlp", "hidden": [1000000, 1000000]})", R"({"type": "sgd", "lr": 1})"));
  });
  EXPECT_PRED2(test::contains, message, "make the model smaller");
  EXPECT_LT(memory_of({}).statistics().peak - before, 64 << 20);
}

}  // namespace
}  // namespace hearth::train::model_size_test
