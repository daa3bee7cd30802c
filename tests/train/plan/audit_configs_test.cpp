// SPDX-License-Identifier: Apache-2.0
// Audits of six example configurations for an H200, against lists in the tree (tests/golden/audits): a new cast, wait
// or odd size is seen. Sizes are those of the files, but for vocabularies, which come from stand-ins for the data.
//
//   HEARTH_REWRITE_AUDITS=1 build/ci/tests/hearth_test_train --gtest_filter='*AuditOfExample*'     writes the lists
//   anew
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/build.h"
#include "core/io/json_text.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"
#include "tests/support/stand_in_data.h"
#include "train/plan/audit.h"

namespace hearth::train::audit_configs_test {
namespace {

class AuditOfExample : public testing::TestWithParam<std::string> {};

TEST_P(AuditOfExample, IsThatOfTheList) {
  if (GetParam().starts_with("imagenet") && !HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  const test::TempDir folder;
  test::write_stand_in_data(folder / "data-sets");
  const test::ProgramResult result = test::run_program(
      // Without the emulated GPU, so that it is the CPU's steps everywhere.
      {"/usr/bin/env", "HEARTH_EMULATE_DRIVER=0", test::hearth_program(), "plan",
       test::source_dir() + "/examples/configs/" + GetParam() + ".json", "--audit", "--on", "H200", "--set",
       "train.batch_size=4", "--set", "precision.level=O2", "--set", "precision.dtype=bf16", "--json"},
      folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string path = test::source_dir() + "/tests/golden/audits/" + GetParam() + ".json";
  if (std::getenv("HEARTH_REWRITE_AUDITS") != nullptr) std::ofstream(path) << result.out;
  const std::vector<AuditFinding> expected = findings_of(read_json(path));
  const std::vector<AuditFinding> found = findings_of(parse_json(result.out, "stdout"));
  EXPECT_EQ(to_text(unexpected(found, expected)), "nothing found\n");
  EXPECT_EQ(to_text(unexpected(expected, found)), "nothing found\n") << "in the list only";
}

INSTANTIATE_TEST_SUITE_P(All, AuditOfExample,
                         testing::Values("imagenet_resnet50", "imagenet_swin_t", "austen_gpt_bpe", "bert_mlm",
                                         "g2p_transformer", "digits_mlp"),
                         [](const auto& config) { return config.param; });

}  // namespace
}  // namespace hearth::train::audit_configs_test
