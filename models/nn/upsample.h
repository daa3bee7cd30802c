// SPDX-License-Identifier: Apache-2.0
// The layer that makes images larger or smaller.
#pragma once

#include "models/nn/module.h"
#include "ops/interpolate/interpolate.h"

namespace hearth::nn {

/// Images of another size: x [N, H, W, C], y [N, P, Q, C], by `interpolate`, which checks the options in the call.
class HEARTH_API Upsample : public Module {
 public:
  explicit Upsample(const InterpolateOptions& options) : options_(options) {}
  Tensor forward(const Tensor& x) override;

 private:
  InterpolateOptions options_;
};

}  // namespace hearth::nn
