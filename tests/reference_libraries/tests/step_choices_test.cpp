// SPDX-License-Identifier: Apache-2.0
// Which implementation runs each convolution, product and attention of a training step where both libraries are there,
// against lists in the tree (tests/golden/choices), so that a library that is no longer taken is seen. Sizes are real
// but for the images' sides, the sequence's length and the number of GPT-2's layers. The libraries compute nothing.
//
//   HEARTH_REWRITE_CHOICES=1 build/emulated/tests/hearth_test_reference_step     writes the lists anew
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/cuda/counters.h"
#include "core/io/file.h"
#include "ops/dispatch/candidates.h"
#include "tests/reference_libraries/tests/model_run.h"
#include "tests/support/places.h"
#include "train/session.h"
#include "train/step/step.h"

namespace hearth::train {
namespace {

const test::ModelRun runs[] = {{"resnet50", "O0"}, {"resnet50", "O1"}, {"resnet50", "O2"}, {"resnet50", "O2", "f16"},
                               {"gpt2", "O0"},     {"gpt2", "O1"},     {"gpt2", "O2"},     {"gpt2", "O2", "f16"},
                               {"swin_t", "O0"},   {"swin_t", "O1"},   {"swin_t", "O2"},   {"swin_t", "O2", "f16"}};

/// "O2", "O2-f16".
std::string level_of(const test::ModelRun& run, char separator) {
  return run.dtype == "bf16" ? run.level : join_text(run.level, separator, run.dtype);
}

class CudaStepChoices : public testing::TestWithParam<test::ModelRun> {
 protected:
  test::TempDir folder_;
};

TEST_P(CudaStepChoices, AreThoseOfTheList) {
  write_file_synced(folder_ / "run.json", test::config_of(GetParam(), folder_));
  Session session(load_config((folder_ / "run.json").string(), {}));
  const data::Batch batch = session.make_train_loader().next();
  const ChoiceLog log;
  const cuda::Counters before = cuda::counters();
  (void)training_step(session, std::span(&batch, 1));
  EXPECT_EQ((cuda::counters() - before).launches_without_bytes, 0);

  std::string found = "# How often, by what, and what: one training step. Written by step_choices_test.cpp.\n";
  for (const auto& [run, count] : log.runs()) {
    found += join_text(count, '\t', run.first, '\t', run.second, '\n');
    const bool library =
        run.first.find(":cudnn") != std::string::npos || run.first.find(":cublaslt") != std::string::npos;
    const bool own = run.first == "conv2d:stem" || run.first.find("attention") != std::string::npos;
    EXPECT_TRUE(library || own) << run.first << ' ' << run.second;
  }
  const std::string path =
      join_text(test::source_dir(), "/tests/golden/choices/", GetParam().model, '-', level_of(GetParam(), '-'), ".txt");
  if (std::getenv("HEARTH_REWRITE_CHOICES") != nullptr) std::ofstream(path) << found;
  EXPECT_EQ(read_text(path), found);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaStepChoices, testing::ValuesIn(runs),
                         [](const auto& tested) { return tested.param.model + level_of(tested.param, '_'); });

}  // namespace
}  // namespace hearth::train
