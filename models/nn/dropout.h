// SPDX-License-Identifier: Apache-2.0
// Layers that drop: single elements, or whole samples.
#pragma once

#include "models/nn/module.h"
#include "ops/pointwise/dropout.h"

namespace hearth::nn {

/// In training each element becomes zero with probability p and the others grow by 1 / (1 - p); in evaluation x itself.
/// Source: Srivastava et al. 2014.
class HEARTH_API Dropout : public Module {
 public:
  /// UsageError unless p is in [0, 1). The options say whether x has rows for each sample.
  explicit Dropout(double p, const DropoutOptions& options = {});
  Tensor forward(const Tensor& x) override;
  /// For ops that drop on their way: p in training, else 0.
  double rate() const { return is_training() ? p_ : 0; }

 private:
  double p_;
  DropoutOptions options_;
};

/// Stochastic depth: in training each sample of a branch becomes zero with probability p and the others grow by 1 / (1
/// - p); in evaluation x itself. Models let p rise linearly with depth. Source: Huang et al. 2016.
class HEARTH_API DropPath : public Module {
 public:
  /// UsageError unless p is in [0, 1).
  explicit DropPath(double p);
  Tensor forward(const Tensor& x) override;
  /// residual + forward(x) in one pass.
  Tensor add_to(const Tensor& residual, const Tensor& x);
  /// For ops that drop on their way: p in training, else 0.
  double rate() const { return is_training() ? p_ : 0; }

 private:
  double p_;
};

}  // namespace hearth::nn
