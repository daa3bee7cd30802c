// SPDX-License-Identifier: Apache-2.0
// Which implementation runs each convolution, product and attention of a training step where both libraries are there,
// against lists in the tree (tests/golden/choices), so that a library that is no longer taken is seen. Sizes are real
// but for the images' sides, the sequence's length and the number of GPT-2's layers. The libraries compute nothing.
//
//   HEARTH_REWRITE_CHOICES=1 build/emulated/tests/hearth_test_reference_step     writes the lists anew
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/io/file.h"
#include "ops/candidates.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"
#include "train/session.h"
#include "train/step.h"

namespace hearth::train {
namespace {

// Before anything opens a library, and for all tests of this program.
[[maybe_unused]] const bool environment_is_set = [] {
  ::setenv("HEARTH_CUDA_LIBRARIES", HEARTH_REFERENCE_LIBRARIES, 1);
  ::setenv("HEARTH_REFERENCE_IDLE", "1", 1);
  ::setenv("HEARTH_PLAN_TIMING", "off", 1);
  return true;
}();

struct Run {
  const char *model, *level;
};
constexpr Run runs[] = {{"resnet50", "O0"}, {"resnet50", "O1"}, {"resnet50", "O2"}, {"gpt2", "O0"},  {"gpt2", "O1"},
                        {"gpt2", "O2"},     {"swin_t", "O0"},   {"swin_t", "O1"},   {"swin_t", "O2"}};

class CudaStepChoices : public testing::TestWithParam<Run> {
 protected:
  /// Images of 32x32 in the form of CIFAR-10.
  void write_images() {
    for (const char* name :
         {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
      std::ofstream file(folder_ / (std::string(name) + ".bin"), std::ios::binary);
      for (int i = 0; i < 2; ++i) file << std::string(3073, static_cast<char>(i));
    }
  }
  /// Text of so many characters as GPT-2's vocabulary has, less its five special pieces.
  void write_text() {
    std::ofstream file(folder_ / "text.txt", std::ios::binary);
    for (unsigned i = 0; i < 50257 - 5; ++i) {
      const unsigned point = i < 20000 ? 0x4e00 + i : 0x20000 + i;
      if (point >= 0x10000)
        file << static_cast<char>(0xf0 | point >> 18) << static_cast<char>(0x80 | (point >> 12 & 63));
      if (point < 0x10000) file << static_cast<char>(0xe0 | point >> 12);
      file << static_cast<char>(0x80 | (point >> 6 & 63)) << static_cast<char>(0x80 | (point & 63));
    }
  }

  std::string config() {
    const std::string model = GetParam().model, level = GetParam().level;
    std::string text = R"({"seed": 1, "device": "cuda", "precision": {"level": ")" + level + R"(", "dtype": ")" +
                       (level == "O0" ? "f32" : "bf16") + R"("}, "data": )";
    if (model == "gpt2") {
      write_text();
      text += R"({"type": "text", "train": [")" + (folder_ / "text.txt").string() +
              R"("], "length": 128, "tokenizer": {"type": "characters"}},
                 "model": {"type": "gpt", "layers": 2, "heads": 12, "width": 768, "dropout": 0.0})";
    } else {
      write_images();
      text += R"({"type": "cifar10", "path": ")" + folder_.path().string() + R"("}, "model": )" +
              (model == "swin_t" ? R"({"type": "swin", "size": "swin_t"})"
                                 : R"({"type": "resnet", "depth": 50, "stem": "imagenet"})");
    }
    return text + R"(, "optimizer": {"type": "sgd", "lr": 0.1, "momentum": 0.9},
                       "train": {"batch_size": 2, "steps": 1}})";
  }

  test::TempDir folder_;
};

TEST_P(CudaStepChoices, AreThoseOfTheList) {
  write_file_synced(folder_ / "run.json", config());
  Session session(load_config((folder_ / "run.json").string(), {}));
  const data::Batch batch = session.make_train_loader().next();
  const ChoiceLog log;
  (void)training_step(session, std::span(&batch, 1));

  std::string found = "# How often, by what, and what: one training step. Written by step_choices_test.cpp.\n";
  for (const auto& [run, count] : log.runs()) {
    found += join_text(count, '\t', run.first, '\t', run.second, '\n');
    const bool library =
        run.first.find(":cudnn") != std::string::npos || run.first.find(":cublaslt") != std::string::npos;
    EXPECT_TRUE(library || run.first.find("attention") != std::string::npos) << run.first << ' ' << run.second;
  }
  const std::string path =
      join_text(test::source_dir(), "/tests/golden/choices/", GetParam().model, '-', GetParam().level, ".txt");
  if (std::getenv("HEARTH_REWRITE_CHOICES") != nullptr) std::ofstream(path) << found;
  EXPECT_EQ(read_text(path), found);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaStepChoices, testing::ValuesIn(runs),
                         [](const auto& tested) { return join_text(tested.param.model, tested.param.level); });

}  // namespace
}  // namespace hearth::train
