// SPDX-License-Identifier: Apache-2.0
// module: models
// message: none
#include "hearth/autograd/record.h"
#include "hearth/core/tensor.h"
#include "hearth/models/nn/module.h"
#include "hearth/ops/activation.h"

struct Identity : hearth::nn::Module {
  hearth::Tensor forward(const hearth::Tensor& x) override { return x; }
};

Identity identity;
