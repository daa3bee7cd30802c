// SPDX-License-Identifier: Apache-2.0
// A convolution that tests try.
#pragma once

#include "ops/conv/conv2d.h"

namespace hearth::test {

struct ConvCase {
  const char* what;
  Shape x, w;
  Conv2dOptions options = {};
};

}  // namespace hearth::test
