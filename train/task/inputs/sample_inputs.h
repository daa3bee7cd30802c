// SPDX-License-Identifier: Apache-2.0
// Which tensors of a data::SampleDataset a model takes, and which it is compared with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/sample_dataset.h"
#include "train/task/task.h"

namespace hearth::data {
class TableDataset;
}

namespace hearth::train {

class HEARTH_API SampleInputs {
 public:
  /// `inputs`: the names of what the model takes, in order; empty: all tensors of a sample but `target`, in the order
  /// of the sample. `target` may be empty: none. ConfigError, naming the task, unless the data is a
  /// data::SampleDataset that is not empty, with tensors of these names.
  SampleInputs(const char* task, const data::DataSplits& data, std::vector<std::string> inputs,
               const std::string& target);

  nn::Inputs of(const data::Batch& batch) const;
  const std::vector<std::string>& names() const { return names_; }
  /// The batch of the first training sample.
  const data::Batch& first() const { return first_; }
  /// What a model is told of its first input: [C], [T, C] or [H, W, C] a sample.
  models::InputInfo info() const;
  /// Takes note of the configured dataset. ConfigError for a model of images where the first input is none.
  void prepare(const ChosenComponents& chosen);
  /// Inputs of the model for the rows of a table where the data are one, else for batches; nothing for other samples.
  std::optional<InputPieces> outside(const InputsOfBatch& inputs, const OutsideSamples& samples) const;
  /// Whether the data are a table.
  bool is_table() const { return table_ != nullptr; }
  /// "x [2], y [3]": inputs of a sample; of a table with what each column was taken for.
  std::string describe() const;

 private:
  std::vector<std::string> names_;
  std::string columns_;  ///< of a table, in words
  data::Batch first_;
  const data::TableDataset* table_ = nullptr;
  const data::Datasets::Component* dataset_ = nullptr;  ///< as configured
};

}  // namespace hearth::train
