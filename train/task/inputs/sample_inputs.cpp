// SPDX-License-Identifier: Apache-2.0
#include "train/task/inputs/sample_inputs.h"

#include <utility>

#include "data/table/table.h"
#include "train/predict/outside_inputs.h"
#include "train/task/fitting_model.h"

namespace hearth::train {
namespace {

std::string shape_of_sample(const Tensor& batch) {
  std::string text = "[";
  for (int axis = 1; axis < batch.rank(); ++axis) text += join_text(axis > 1 ? ", " : "", batch.dim(axis));
  return text + "]";
}

}  // namespace

SampleInputs::SampleInputs(const char* task, const data::DataSplits& data, std::vector<std::string> inputs,
                           const std::string& target)
    : names_(std::move(inputs)) {
  const auto* const samples = dynamic_cast<const data::SampleDataset*>(data.train.get());
  HEARTH_CHECK(ConfigError, samples != nullptr, "/task/type: ", task,
               " is of a data::SampleDataset, which the data are not; name another task");
  table_ = dynamic_cast<const data::TableDataset*>(samples);
  if (table_ != nullptr) columns_ = data::named_columns(table_->facts());
  const data::TensorSample example = samples->example();
  HEARTH_CHECK(ConfigError, !example.empty(), "/task/type: ", task, ": the training data has no samples");
  first_ = samples->collate({example});
  std::string known;
  for (const data::Batch::Named& one : first_.tensors())
    known += join_text(known.empty() ? "" : ", ", "\"", one.name, "\" ", shape_of_sample(one.tensor));
  if (names_.empty())
    for (const data::Batch::Named& one : first_.tensors())
      if (one.name != target) names_.push_back(one.name);
  HEARTH_CHECK(ConfigError, !names_.empty(), "/task: samples have no tensor but the target \"", target,
               "\"; the model needs an input");
  for (const std::string& name : names_)
    HEARTH_CHECK(ConfigError, first_.has(name), "/task/inputs: samples have no \"", name, "\"; they have ", known);
  HEARTH_CHECK(ConfigError, target.empty() || first_.has(target), "/task/target: samples have no \"", target,
               "\"; they have ", known);
}

nn::Inputs SampleInputs::of(const data::Batch& batch) const {
  nn::Inputs inputs;
  for (const std::string& name : names_) inputs.push_back(batch[name]);
  return inputs;
}

models::InputInfo SampleInputs::info() const {
  const Tensor& input = first_[names_.front()];
  HEARTH_CHECK(ConfigError, input.rank() <= 4, "/task/inputs: \"", names_.front(), "\" of a sample is ",
               shape_of_sample(input), "; 3 axes or fewer are possible");
  models::InputInfo info{.height = 1, .width = 1, .channels = 1};
  if (input.rank() > 1) info.channels = input.dim(-1);
  if (input.rank() > 2) info.height = input.dim(1);
  if (input.rank() > 3) info.width = input.dim(2);
  return info;
}

void SampleInputs::prepare(const ChosenComponents& chosen) {
  constexpr int axes_of_images = 4;
  dataset_ = &chosen.data;
  const Tensor& input = first_[names_.front()];
  if (input.rank() != axes_of_images) refuse_image_model(chosen, shape_of_sample(input));
}

std::optional<InputPieces> SampleInputs::outside(const InputsOfBatch& inputs, const OutsideSamples& samples) const {
  if (table_ != nullptr && dataset_ != nullptr) return row_inputs(inputs, *table_, *dataset_, samples);
  return batch_inputs(inputs, samples);
}

std::string SampleInputs::describe() const {
  std::string text;
  for (const std::string& name : names_)
    text += join_text(text.empty() ? "" : ", ", name, " ", shape_of_sample(first_[name]));
  return columns_.empty() ? text : join_text(text, ": ", columns_);
}

}  // namespace hearth::train
