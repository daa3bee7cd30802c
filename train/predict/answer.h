// SPDX-License-Identifier: Apache-2.0
// How `hearth predict` answers: what the user asks for, and the forms of answers that tasks choose from.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "core/export.h"
#include "core/io/json_text.h"
#include "models/text/beam_search.h"
#include "models/text/generate.h"
#include "train/predict/outside_samples.h"
#include "train/predict/prediction.h"

namespace hearth::train {

class Task;
class TrainedModel;

/// The options of `hearth predict`.
struct PredictOptions {
  std::int64_t top = 3;  ///< classes that are listed
  bool logits = false;
  bool embedding = false;
  bool json = false;  ///< written text as JSON lines
  std::vector<std::string> text{};
  std::vector<std::string> prompts{};
  models::GenerateOptions generate{};
  models::BeamOptions search{};  ///< limits.most is 0: as many ids as a row of the training has
  std::string folder = ".";      ///< where files go that are predicted
};

/// A call of `hearth predict`. The model is in evaluation mode.
struct PredictCall {
  const Task& task;
  const TrainedModel& trained;
  PredictOptions options;
  std::vector<std::string> inputs;          ///< what the user names beside the run
  const std::vector<std::string>& classes;  ///< names by label
  /// Computes with the model, as a Predictor does.
  std::function<Prediction(const OutsideSamples& samples, bool embedding)> compute;
  std::function<Tensor(const std::string& path)> prepare;  ///< what the model gets of an image file
  std::function<Json(const std::string& path)> of_file;    ///< Task::predict()
  std::ostream& out;
  std::ostream& warnings;
};

/// How `hearth predict` and a Predictor are used with a run.
struct PredictForm {
  const char* trained_on;                 ///< "images"
  const char* usage;                      ///< "hearth predict RUN IMAGE..."
  std::vector<std::string_view> options;  ///< of the command that belong to such runs
  /// Writes the lines of a call. UsageError where nothing is named.
  void (*answer)(const PredictCall& call);
  const char* predictor_function = nullptr;  ///< that takes the samples; null where a Predictor cannot serve the run
};

/// A JSON line with the most probable classes of each image; passes over files that cannot be read, and fails at last.
HEARTH_API const PredictForm& images_form();
/// The same of each sequence.
HEARTH_API const PredictForm& sequences_form();
/// A JSON line with the classes or numbers of each row.
HEARTH_API const PredictForm& rows_form();
/// A line for each image, by Task::predict(), and all their boxes as COCO's results in detections.json. Images as
/// images_form() takes them. UsageError for two of the same name.
HEARTH_API const PredictForm& boxes_form();
/// A line for each file, by Task::predict().
HEARTH_API const PredictForm& files_form();

/// Calls `use` with all lines of a file, or with some at a time of the standard input ("-"), as they come.
HEARTH_API void each_lines(const std::string& input, const std::function<void(const std::vector<std::string>&)>& use);

}  // namespace hearth::train
