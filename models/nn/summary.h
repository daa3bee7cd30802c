// SPDX-License-Identifier: Apache-2.0
// What each module of a model does with one input: shapes, parameters, arithmetic and time.
#pragma once

#include <string>
#include <vector>

#include "models/nn/module.h"

namespace hearth::nn {

struct ModuleReport {
  std::string path;  ///< "" for the model itself
  std::string type;
  int depth = 0;
  Shape output;
  std::int64_t parameters = 0;  ///< of the module and all below
  double flops = 0;             ///< forward; a multiply-add counts as two
  double milliseconds = 0;      ///< forward, this one call
};

/// One forward pass of the inputs in evaluation mode and without gradients: a row for each module call in the order the
/// calls began.
HEARTH_API std::vector<ModuleReport> summarize(Module& module, const Inputs& inputs);

}  // namespace hearth::nn
