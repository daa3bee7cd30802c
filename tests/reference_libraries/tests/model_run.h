// SPDX-License-Identifier: Apache-2.0
// Runs of the three models that the tests of whole steps have in common.
#pragma once

#include <string>

#include "tests/support/temp_dir.h"

namespace hearth::test {

struct ModelRun {
  std::string model;  ///< resnet50, gpt2 or swin_t
  std::string level;  ///< of the precision
  std::string dtype = "bf16";
  int layers = 2;    ///< of GPT-2
  int length = 128;  ///< of its sequences
};

/// The configuration of a run of one step and two samples on a CUDA device. Its data are written to the folder: images
/// of 32x32 in the form of CIFAR-10, or text of so many characters as GPT-2's vocabulary has, less its five special
/// pieces.
std::string config_of(const ModelRun& run, const TempDir& folder);

}  // namespace hearth::test
