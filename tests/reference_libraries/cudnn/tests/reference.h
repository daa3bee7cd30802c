// SPDX-License-Identifier: Apache-2.0
// What the tests of this program share: the reference cuDNN's controls.
#pragma once

#include <gtest/gtest.h>

#include "tests/reference_libraries/cudnn/controls.h"

namespace hearth::test {

/// Of the library that Hearth opened.
reference_dnn::Controls& controls();

/// Every test begins and ends with an idle reference.
class CudaReferenceDnn : public testing::Test {
 protected:
  CudaReferenceDnn() { controls() = {}; }
  ~CudaReferenceDnn() override { controls() = {}; }
};

}  // namespace hearth::test
