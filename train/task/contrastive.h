// SPDX-License-Identifier: Apache-2.0
// Contrastive pairs: two inputs a sample, whose embeddings belong together.
#pragma once

#include <string>
#include <vector>

#include "train/task/inputs/sample_inputs.h"

namespace hearth::train {

struct ContrastiveOptions {
  std::vector<std::string> inputs{};
  double temperature = 0.1;
  bool shared_encoder = true;
};
HEARTH_API void describe(Fields<ContrastiveOptions>& fields);

/// Of a data::SampleDataset with two inputs a sample. With a shared encoder the model takes both, one after the other
/// along the rows, [2N, ...], and gives embeddings [2N, D]; else it takes two inputs (nn::Module::forward_inputs) and
/// gives the embeddings of the first, then those of the second, [2N, D]. Scores are cosines over the temperature; the
/// loss is that of the run, mostly cross_entropy, over the scores of each input against all partners in the batch, the
/// mean of both directions. Source: CLIP (Radford et al. 2021, arXiv:2103.00020); InfoNCE (van den Oord et al. 2018,
/// arXiv:1807.03748). Accuracy is how often the partner has the highest score in the batch; evaluations measure the
/// same among all samples of the split, `recall_at_1`.
class HEARTH_API ContrastiveTask : public Task {
 public:
  ContrastiveTask(const data::DataSplits& data, const ContrastiveOptions& options);
  models::InputInfo input_info() const override { return inputs_.info(); }
  nn::Inputs inputs(const TrainedModel&, const data::Batch& batch) const override;
  Tensor loss(const TrainedModel& trained, const data::Batch& batch, const Measured& measured) const override;
  /// Partners in the same part alone would be told apart.
  bool rows_are_independent() const override { return false; }
  /// The rows of a batch are its classes, none of which may be ignored.
  void check(const Loss& loss) const override;
  const char* unit() const override { return "pairs"; }
  bool best_by_loss() const override { return true; }
  std::unique_ptr<Metrics> metrics() const override;
  std::string describe() const override;

 private:
  ContrastiveOptions options_;
  SampleInputs inputs_;
};

/// Share of the rows of `first` whose own row of `second` has the largest scalar product with it, of equals the first.
/// Both [N, D], of one floating type, on the CPU; N >= 1. ShapeError.
HEARTH_API double recall_at_1(const Tensor& first, const Tensor& second);

}  // namespace hearth::train
