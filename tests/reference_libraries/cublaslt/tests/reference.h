// SPDX-License-Identifier: Apache-2.0
// What the tests of this program share: the reference cuBLASLt's controls, and a folder for the plans of one test.
#pragma once

#include <gtest/gtest.h>

#include "tests/reference_libraries/cublaslt/controls.h"
#include "tests/support/temp_dir.h"
#include "tests/support/variable_scope.h"

namespace hearth::test {

/// Of the library that Hearth opened.
reference_blas::Controls& controls();

/// Every test begins without plans, with a folder for choices that is empty, and with an idle reference.
class CudaReferenceBlas : public testing::Test {
 protected:
  CudaReferenceBlas();
  ~CudaReferenceBlas() override;

  TempDir folder_;
  VariableScope cache_{"HEARTH_CACHE_DIR", folder_.path().string()};
  VariableScope timing_{"HEARTH_PLAN_TIMING", "on"};
};

}  // namespace hearth::test
