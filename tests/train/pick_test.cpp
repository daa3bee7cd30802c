// SPDX-License-Identifier: Apache-2.0
// HEARTH_PICK in a run: an implementation that does not support all of an op leaves the rest to the others.
#include <gtest/gtest.h>

#include "core/io/file.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"
#include "tests/support/variable_scope.h"

namespace hearth::train::pick_test {
namespace {

test::ProgramResult train(const std::string& pick) {
  const test::TempDir folder;
  write_file_synced(folder / "run.json", R"({
    "model": {"type": "resnet", "blocks": [1], "stem": "small", "width": 8}, "data": {"type": "digits"}, "seed": 1,
    "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"batch_size": 8, "steps": 2}})");
  const test::VariableScope variable("HEARTH_PICK", pick);
  return test::run_program({test::hearth_program(), "train", "run.json", "--device", "cpu"}, folder.path());
}

TEST(PickedImplementation, LeavesWhatItDoesNotSupportToOthers) {
  // It takes 1x1 filters only, which this model has none of.
  const test::ProgramResult result = train("conv2d:matmul");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string words = "hearth: warning: conv2d: HEARTH_PICK's matmul does not support forward of f32, ";
  EXPECT_PRED2(test::contains, result.err, words);
  EXPECT_EQ(result.err.find(words), result.err.rfind("HEARTH_PICK") - words.find("HEARTH_PICK")) << "told once";
}

TEST(PickedImplementation, IsOneThatIsThere) {
  const test::ProgramResult result = train("conv2d:nothing");
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_PRED2(test::contains, result.err, "conv2d has no implementation \"nothing\"; it has: matmul, amx");
}

}  // namespace
}  // namespace hearth::train::pick_test
