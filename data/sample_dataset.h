// SPDX-License-Identifier: Apache-2.0
// Datasets of one's own: samples of any tensors.
//
//   struct Pets : data::SampleDataset {
//     std::vector<Tensor> images, masks;
//     std::int64_t size() const override { return static_cast<std::int64_t>(images.size()); }
//     data::TensorSample read(std::int64_t i, Random&) const override { return {{"images", images[i]}, {"masks",
//     masks[i]}}; }
//   };
#pragma once

#include <string>
#include <vector>

#include "core/random.h"
#include "data/batch.h"
#include "data/dataset.h"

namespace hearth::data {

class HEARTH_API SampleDataset : public Dataset {
 public:
  /// The sample, whose random changes are drawn from `random`: a function of the loader's seed, the epoch and the
  /// index. Called by several threads at once.
  virtual TensorSample read(std::int64_t index, Random& random) const = 0;
  /// A sample with the names, shapes and types that all have. Here: the first; empty where there is none.
  virtual TensorSample example() const;
  /// The batch of samples. Here: each tensor stacked along a new first axis; of "labels" with more than one i64 a
  /// sample, as of pixels, those that are not ignored_label count. ShapeError, DTypeError and DataError, naming the
  /// sample, where it differs from the first in names, shapes or types.
  virtual Batch collate(const std::vector<TensorSample>& samples) const;
  const std::string& source() const override;

  std::unique_ptr<BatchMaker> batches(const Transforms& transforms, const LoaderOptions& options) const final;
};

}  // namespace hearth::data
