// SPDX-License-Identifier: Apache-2.0
#include "data/sample_dataset.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "core/error.h"
#include "data/loading/batch_maker.h"
#include "data/loading/order.h"

namespace hearth::data {
namespace {

class SampleBatches : public OrderedBatches {
 public:
  SampleBatches(const SampleDataset& dataset, const LoaderOptions& options)
      : OrderedBatches(dataset.size(), options, dataset.source(), "samples"), dataset_(dataset) {}

  bool fill(Batch& batch, Workspace& space, const std::function<bool()>& cancelled) const override {
    std::vector<TensorSample>& samples = space.samples;
    samples.resize(static_cast<std::size_t>(space.kept.value_or(0)));
    for (const std::int64_t sample : std::span(batch.samples).subspan(samples.size())) {
      if (cancelled()) return false;
      space.clock.at(Stage::read, sample);
      Random random = random_of(options().seed, Purpose::augment, static_cast<std::uint64_t>(batch.epoch),
                                static_cast<std::uint32_t>(sample));
      samples.push_back(dataset_.read(sample, random));
    }
    space.clock.at(Stage::assemble);
    Batch made = dataset_.collate(samples);
    samples.clear();
    made.samples = std::move(batch.samples);
    made.epoch = batch.epoch, made.index = batch.index;
    batch = std::move(made);
    return true;
  }

 private:
  const SampleDataset& dataset_;
};

/// One tensor of all samples, stacked.
Tensor stacked(const std::vector<TensorSample>& samples, std::size_t which) {
  const auto& [name, first] = samples[0][which];
  HEARTH_CHECK(DataError, first.defined(), "dataset: \"", name, "\" of a sample is undefined");
  std::vector<std::int64_t> extents{static_cast<std::int64_t>(samples.size())};
  for (int axis = 0; axis < first.rank(); ++axis) extents.push_back(first.dim(axis));
  const Tensor all = Tensor::empty(Shape(extents), first.dtype());
  std::byte* to = all.bytes();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto& [own, tensor] = samples[i][which];
    HEARTH_CHECK(DataError, own == name, "dataset: tensor ", which, " of the batch's first sample is \"", name,
                 "\", of sample ", i, " \"", own, "\"");
    HEARTH_CHECK(ShapeError, tensor.defined() && tensor.shape() == first.shape(), "dataset: \"", name,
                 "\" of the batch's samples 0 and ", i, " are ", describe(first), " and ", describe(tensor),
                 "; give them one shape, or override collate()");
    HEARTH_CHECK(DTypeError, tensor.dtype() == first.dtype(), "dataset: \"", name, "\" of the batch's samples 0 and ",
                 i, " are ", first.dtype(), " and ", tensor.dtype());
    HEARTH_CHECK(DeviceError, tensor.device().is_cpu(), "dataset: \"", name, "\" is on ", tensor.device(),
                 "; samples are on the host");
    std::memcpy(to, tensor.contiguous().bytes(), tensor.byte_size());
    to += tensor.byte_size();
  }
  return all;
}

}  // namespace

TensorSample SampleDataset::example() const {
  Random random(0, 0);
  return size() > 0 ? read(0, random) : TensorSample();
}

Batch SampleDataset::collate(const std::vector<TensorSample>& samples) const {
  HEARTH_CHECK(UsageError, !samples.empty(), "dataset: a batch of no samples");
  for (std::size_t i = 0; i < samples.size(); ++i)
    HEARTH_CHECK(DataError, samples[i].size() == samples[0].size(), "dataset: the batch's first sample has ",
                 samples[0].size(), " tensors, sample ", i, " has ", samples[i].size());
  Batch batch;
  for (std::size_t which = 0; which < samples[0].size(); ++which)
    batch.set(samples[0][which].first, stacked(samples, which));
  const Tensor labels = batch.find("labels");
  if (labels.defined() && labels.dtype() == DType::i64) {
    const std::span all(labels.data<const std::int64_t>(), static_cast<std::size_t>(labels.size()));
    const std::int64_t ignored = std::count(all.begin(), all.end(), ignored_label);
    if (labels.rank() > 1 || ignored > 0) batch.counted = labels.size() - ignored;
  }
  return batch;
}

const std::string& SampleDataset::source() const {
  static const std::string name = "the program's samples";
  return name;
}

std::unique_ptr<BatchMaker> SampleDataset::batches(const Transforms&, const LoaderOptions& options) const {
  return std::make_unique<SampleBatches>(*this, options);
}

}  // namespace hearth::data
