// SPDX-License-Identifier: Apache-2.0
// Audits of training steps of the three models on a device that has all libraries, against lists in the tree
// (tests/golden/audits): a new copy, fill, cast, wait, portable kernel or launch is seen. The device is idle
// (HEARTH_EMULATE_IDLE) and the libraries compute nothing, so that only the host works.
//
//   HEARTH_REWRITE_AUDITS=1 build/emulated/tests/hearth_test_reference_step     writes the lists anew
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/io/file.h"
#include "core/io/json_text.h"
#include "tests/emulated_gpu/runtime.h"
#include "tests/reference_libraries/tests/model_run.h"
#include "tests/support/places.h"
#include "train/plan/audit.h"

namespace hearth::train {
namespace {

class CudaAuditOf : public testing::TestWithParam<std::string> {
 protected:
  CudaAuditOf() {
    cuda::emulate::Settings idle = before_;
    idle.idle = true;
    cuda::emulate::apply(idle);
  }
  ~CudaAuditOf() override { cuda::emulate::apply(before_); }

  const cuda::emulate::Settings before_ = cuda::emulate::settings();
  test::TempDir folder_;
};

TEST_P(CudaAuditOf, AStepIsThatOfTheList) {
  write_file_synced(folder_ / "run.json", test::config_of({GetParam(), "O2"}, folder_));
  Session session(load_config((folder_ / "run.json").string(), {}));
  const std::vector<AuditFinding> found = audit_of(session, session.device());
  const std::string path = join_text(test::source_dir(), "/tests/golden/audits/cuda-", GetParam(), ".json");
  if (std::getenv("HEARTH_REWRITE_AUDITS") != nullptr) std::ofstream(path) << to_text(to_json(found), 2) << '\n';
  const std::vector<AuditFinding> expected = findings_of(read_json(path));
  EXPECT_EQ(to_text(unexpected(found, expected)), "nothing found\n");
  EXPECT_EQ(to_text(unexpected(expected, found)), "nothing found\n") << "in the list only";
  for (const AuditFinding& finding : found) {
    EXPECT_NE(finding.kind, "wait") << finding.layer << ' ' << finding.op;
    EXPECT_NE(finding.kind, "transpose") << finding.layer << ' ' << finding.op << ": " << finding.what;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaAuditOf, testing::Values("resnet50", "gpt2", "swin_t"),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace hearth::train
