// SPDX-License-Identifier: Apache-2.0
// A small tree of modules.
#pragma once

#include "models/nn/nn.h"

namespace hearth::test {

struct Leaf : nn::Module {
  Tensor weight = Tensor::zeros({2, 3});
  Tensor mean = Tensor::zeros({3});
  Leaf() {
    parameter("weight", weight, nn::init::normal(1.0));
    buffer("mean", mean);
  }
  Tensor forward(const Tensor& x) override { return x.clone(); }
};

struct Branch : nn::Module {
  Leaf left, right;
  Tensor scale = Tensor::zeros({1});
  Branch() {
    register_module("left", left);
    parameter("scale", scale, nn::init::ones());
    register_module("right", right);
  }
  Tensor forward(const Tensor& x) override { return right(left(x)); }
};

}  // namespace hearth::test
