// SPDX-License-Identifier: Apache-2.0
#include "ops/onednn/onednn.h"

#include <gtest/gtest.h>

namespace hearth::cpu {
namespace {

TEST(DnnFacade, NamesTheLibrary) {
  if (dnn::available()) {
    EXPECT_NE(dnn::library().find("oneDNN"), std::string::npos);
    return;
  }
  EXPECT_EQ(dnn::library(), "none");
  EXPECT_TRUE(dnn::plans().empty());
}

}  // namespace
}  // namespace hearth::cpu
