// SPDX-License-Identifier: Apache-2.0
// Samples from outside of a run's data, and the inputs of a model that a task makes of them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>

#include "core/tensor.h"
#include "data/batch.h"
#include "data/images/codecs/image.h"
#include "models/nn/module.h"

namespace hearth::train {

/// Paths of image files.
struct ImageFiles {
  std::span<const std::string> paths;
};
/// Decoded images of any size.
struct DecodedImages {
  std::span<const data::Image> images;
};
/// [n, h, w, c]: u8 pixels, or f32 as the model takes them.
struct ImageTensor {
  Tensor images;
};
/// Text in UTF-8.
struct Sequences {
  std::span<const std::string> text;
};
/// A file with rows of a table.
struct RowsOfFile {
  std::string path;
};
/// f32 or f64 rows of numbers.
struct RowsOfTensor {
  Tensor rows;
};
/// A batch of a data::SampleDataset.
struct BatchSamples {
  const data::Batch& batch;
};
/// Spans and batches refer to what the caller keeps.
using OutsideSamples =
    std::variant<ImageFiles, DecodedImages, ImageTensor, Sequences, RowsOfFile, RowsOfTensor, BatchSamples>;

/// Samples that are computed at once: enough to keep all cores busy, few enough for the memory of large images.
inline constexpr std::int64_t samples_at_once = 32;

/// The inputs of a model for a batch.
using InputsOfBatch = std::function<nn::Inputs(const data::Batch&)>;

/// Inputs of a model, made some at a time.
struct InputPieces {
  std::int64_t total = 0;  ///< samples
  /// Inputs of samples [first, first + count).
  std::function<nn::Inputs(std::int64_t first, std::int64_t count)> make{};
  std::int64_t at_once = samples_at_once;
  bool classifies = true;  ///< the model has to give one score for each of the run's classes, if there are any
};

}  // namespace hearth::train
