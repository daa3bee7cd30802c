// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace hearth {

/// While it lives, Tensor::zeros, Tensor::full and fill_() of the calling thread write nothing to the CPU's memory: for
/// a model that is built to be measured and then dropped, whose weights would take gigabytes if they were touched.
class BlankTensorScope {
 public:
  BlankTensorScope();
  ~BlankTensorScope();
  BlankTensorScope(const BlankTensorScope&) = delete;
  BlankTensorScope& operator=(const BlankTensorScope&) = delete;

 private:
  bool previous_;
};

}  // namespace hearth
