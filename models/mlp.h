// SPDX-License-Identifier: Apache-2.0
// The multilayer perceptron.
#pragma once

#include <cstdint>
#include <vector>

#include "models/embedding_model.h"
#include "models/nn/nn.h"

namespace hearth::models {

struct MlpOptions {
  std::int64_t in_features = 0;  ///< of one sample, all axes together
  std::vector<std::int64_t> hidden = {128};
  std::int64_t classes = 0;
  Activation activation = Activation::relu;
  double dropout = 0.0;  ///< after each hidden layer
};

/// Linear layers "layers.0", "layers.1", ... with an activation between them. x [N, ...] is flattened to
/// [N, in_features]; y [N, classes].
class HEARTH_API Mlp : public nn::Module, public EmbeddingModel {
 public:
  /// ShapeError unless all sizes are at least 1.
  explicit Mlp(const MlpOptions& options);
  Tensor forward(const Tensor& x) override;
  Tensor embedding(const Tensor& x) override;
  Tensor outputs_of(const Tensor& embedding) override;

 private:
  std::int64_t in_features_;
  nn::ModuleList layers_;
  nn::Dropout dropout_;
};

}  // namespace hearth::models
