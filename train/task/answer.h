// SPDX-License-Identifier: Apache-2.0
// How `hearth predict` answers for the tasks of the library.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json_text.h"
#include "train/task/outside_samples.h"
#include "train/task/prediction.h"

namespace hearth::train {

class Arguments;
class Task;
class TrainedModel;

/// A call of `hearth predict`. The model is in evaluation mode.
struct PredictCall {
  const Task& task;
  const TrainedModel& trained;
  const Arguments& arguments;
  std::vector<std::string> inputs;          ///< what the user names beside the run
  const std::vector<std::string>& classes;  ///< names by label
  /// Computes with the model, as a Predictor does.
  std::function<Prediction(const OutsideSamples& samples, bool embedding)> compute;
  std::ostream& out;
  std::ostream& warnings;
};

/// How `hearth predict` and a Predictor are used with a run.
struct PredictForm {
  const char* trained_on;                 ///< "images"
  const char* usage;                      ///< "hearth predict RUN IMAGE..."
  std::vector<std::string_view> options;  ///< of the command that belong to such runs alone
  /// Writes the lines of a call. UsageError where nothing is named.
  void (*answer)(const PredictCall& call);
  const char* predictor_function =
      nullptr;  ///< of a Predictor, which takes the samples; null where none serves the run
};

/// A JSON line with the most probable classes of each image; passes over files that cannot be read, and fails at last.
const PredictForm& images_form();
/// The same of each sequence.
const PredictForm& sequences_form();
/// A JSON line with the classes or numbers of each row.
const PredictForm& rows_form();
/// A line for each file, by Task::predict().
const PredictForm& files_form();
/// Texts that go on from prompts, of a LanguageModelTask.
const PredictForm& prompts_form();
/// A translation of each line, of a TranslationTask.
const PredictForm& lines_form();

/// Adds the most probable class, and all of `top`, to a line.
void set_classes(Json& line, const std::vector<ScoredClass>& top);
/// A JSON line for each of `inputs`, which `prediction` is of, with what --top, --logits and --embedding ask for.
void write_classes(const PredictCall& call, const std::vector<std::string>& inputs, const Prediction& prediction);
/// Calls `use` with all lines of a file, or with some at a time of the standard input ("-"), as they come.
void each_lines(const std::string& input, const std::function<void(const std::vector<std::string>&)>& use);

}  // namespace hearth::train
