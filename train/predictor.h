// SPDX-License-Identifier: Apache-2.0
// What a trained model says of images, sequences, rows of tables and other samples, inside of a program:
//
//   const hearth::Predictor predictor("runs/digits");
//   const hearth::Prediction result = predictor.predict_files({"a.png", "b.png"});
//   for (const auto& found : predictor.top(result, 0, 3)) std::cout << found.name << " " << found.probability << "\n";
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/images/codecs/image.h"
#include "train/predict/outside_samples.h"
#include "train/predict/prediction.h"

namespace hearth {

namespace train {
class Session;
}

/// Computes with the model of a checkpoint, which holds all that this needs. Several threads may call it, or several
/// of its kind, at once: they compute side by side and share the threads of the process; on a CUDA device one after the
/// other. It computes in the deterministic mode and TF32 of its run. After it was moved from, each call is a
/// UsageError.
///
/// Rows do not depend on each other but for rounding. Larger batches are computed in pieces of 32.
class HEARTH_API Predictor {
 public:
  using Class = ScoredClass;

  /// Opens the best checkpoint of a run's folder, or one checkpoint's folder; `overrides` as of --set, as in
  /// "device=cpu". FileError if there is none; UsageError for a run that continues or translates text.
  explicit Predictor(const std::string& run_or_checkpoint, const std::vector<std::string>& overrides = {});
  /// From train::open_trained().
  explicit Predictor(std::unique_ptr<train::Session> session);
  ~Predictor();
  Predictor(Predictor&&) noexcept;
  Predictor& operator=(Predictor&&) noexcept;

  /// Names by label; none where the run predicts numbers.
  const std::vector<std::string>& classes() const;
  /// Whether inputs are sequences.
  bool takes_text() const;
  /// Of the model's input, for images.
  data::ImageShape input_shape() const;

  /// Of JPEG and PNG files. FileError or DataError, naming the file, for one that cannot be read. UsageError for a
  /// model of other inputs, here and below.
  Prediction predict_files(const std::vector<std::string>& paths, bool embedding = false) const;
  /// Of decoded images of any size, grey or RGB, prepared as in evaluation.
  Prediction predict_images(std::span<const data::Image> images, bool embedding = false) const;
  /// Of a tensor: u8 [n, h, w, c] is pixels, as above; f32 [n, H, W, C] in input_shape() is prepared already.
  /// ShapeError or DTypeError for others.
  Prediction predict_tensor(const Tensor& images, bool embedding = false) const;
  /// Of sequences in UTF-8; what is longer than a row of the training is cut off. DataError, naming the text's number,
  /// for what the tokenizer does not know.
  Prediction predict_text(const std::vector<std::string>& sequences, bool embedding = false) const;
  /// Of the rows of a file as the run's table or arrays: .csv with the names of the columns, .npz with an array x, or
  /// .npy. A target in it is not read. FileError or DataError, naming file, line and column.
  Prediction predict_rows(const std::string& path, bool embedding = false) const;
  /// Of rows of numbers in memory, f32 or f64, before they are standardized; NaN is a missing value: [n, columns], or
  /// [n, ...] as the run's arrays, such as series [n, time, channels]. UsageError for a table with categories.
  Prediction predict_rows(const Tensor& rows, bool embedding = false) const;
  /// Of samples of a data::SampleDataset: the batch's tensors without the target, as collate() gives them. A
  /// segmentation's mask is argmax(logits, -1).
  Prediction predict_batch(const data::Batch& batch) const;

  /// Of samples of any kind; the functions above are of one each.
  Prediction predict(const train::OutsideSamples& samples, bool embedding = false) const;

  /// f32 [1, H, W, C]: what the model gets of a file, for predict_tensor(). Errors as of predict_files().
  Tensor prepared(const std::string& path) const;

  /// The `count` most probable classes of a row, the most probable first. IndexError for a row that is not there, or
  /// probabilities that are not [n, classes].
  std::vector<Class> top(const Prediction& prediction, std::int64_t row, std::int64_t count) const;

 private:
  struct Body;
  const Body& body() const;
  std::unique_ptr<Body> body_;
};

}  // namespace hearth
