// SPDX-License-Identifier: Apache-2.0
// module: models
// message: use of deleted function
#include "hearth/models/nn/module.h"

struct Identity : hearth::nn::Module {
  hearth::Tensor forward(const hearth::Tensor& x) override { return x; }
};

Identity first;
Identity second = first;
