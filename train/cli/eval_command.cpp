// SPDX-License-Identifier: Apache-2.0
// eval: loss, accuracy and the metrics of a trained run.
#include <iomanip>
#include <iostream>

#include "models/weights/weights.h"
#include "train/checkpoint/bad_samples.h"
#include "train/checkpoint/checkpoint.h"
#include "train/cli/beam.h"
#include "train/cli/commands.h"
#include "train/step/step.h"
#include "train/step/visit_batches.h"
#include "train/task/written_text.h"

namespace hearth::train {
namespace {

void warn_of_non_finite(nn::Module& model) {
  std::vector<NamedTensor> weights = model.parameters();
  for (const NamedTensor& buffer : model.buffers()) weights.push_back(buffer);
  for (const std::string& found : models::non_finite_tensors(weights))
    std::cerr << "warning: the checkpoint is not finite: " << found << "\n";
}

/// What was evaluated: samples, and what counts in the loss where a sample has more than one.
void set_counts(Json& record, const Session& session, const data::Dataset& part, const Meter& meter) {
  const std::string unit = session.task->unit();
  const bool several = unit == "tokens" || unit == "pixels";
  record.set("samples", several ? part.size() : meter.samples);
  if (several) record.set(unit, meter.samples);
}

int eval_command(const Arguments& arguments) {
  const std::string path = arguments.value("--data").value_or("");
  HEARTH_CHECK(UsageError, !path.empty() || !arguments.has("--data"), "eval: --data names nothing");
  const auto session = open_for_evaluation(arguments.positional()[0], arguments.values("--set"), path);
  const std::string wanted = arguments.value("--split").value_or("");
  const auto [split, part] = session->evaluation_part(wanted);
  HEARTH_CHECK(DataError, part != nullptr && part->size() > 0, "eval: ", path.empty() ? "the data of this run" : path,
               " has no ", wanted.empty() ? "test or valid" : wanted, " split; choose another with --split");
  const bool translates =
      session->task->writes_comparable_text() && session->config().eval.metric != TranslationMetric::none;
  for (const char* option : {"--beam", "--length-penalty", "--limit"})
    HEARTH_CHECK(UsageError, translates || !arguments.has(option), "eval: ", option,
                 " is for runs on pairs of lines, with an eval.metric");
  const TextMetricOptions compared{.search = beam_options(arguments),
                                   .limit = arguments.whole("--limit", 0, 1),
                                   .by_edits = session->config().eval.metric == TranslationMetric::error_rate};
  warn_of_non_finite(*session->model);
  const Meter meter = evaluate(*session, part);
  for (const std::string& line : take_new_bad_samples(session->data, session->ranks->group()))
    std::cerr << "warning: " << line << "\n";
  HEARTH_CHECK(DataError, meter.samples > 0, "eval: no label of the split \"", split,
               "\" counts, so that there is no loss; all are masked, or ignored: choose another with --split, or other "
               "data with --data");
  Json record = Json::object();
  record.set("split", split).set("step", session->position.step);
  set_counts(record, *session, *part, meter);
  record.set("loss", meter.loss());
  if (session->task->has_accuracy()) record.set("accuracy", meter.accuracy());
  session->task->add_metrics(record, session->loss, meter, part.get());
  if (meter.metrics) meter.metrics->report(record);
  if (translates) {
    const EvaluationScope as_in_evaluations(*session);
    session->task->add_text_metrics(record, *session, part, compared);
  }
  if (arguments.has("--json")) {
    std::cout << to_text(record) << "\n";
    return 0;
  }
  std::cerr << split << ": " << meter.samples << ' ' << session->task->unit() << ", step " << session->position.step
            << ", loss " << std::setprecision(9) << meter.loss() << std::fixed;
  if (session->task->has_accuracy())
    std::cerr << ", accuracy " << std::setprecision(2) << 100 * meter.accuracy() << " %";
  for (const char* key : {"perplexity", "bits_per_character"})
    if (const Json* value = record.find(key))
      std::cerr << ", " << key << ' ' << std::setprecision(4) << value->as_number();
  for (const auto& [key, value] : headline_metrics(record))
    std::cerr << ", " << key << ' ' << std::setprecision(4) << value;
  std::cerr << text_metrics(record, ", ") << "\n";
  return 0;
}

}  // namespace

CommandSpec eval_spec() {
  return {"eval",
          "RUN_OR_CHECKPOINT",
          1,
          1,
          "Evaluates a run (its best checkpoint) or one checkpoint on the test data.",
          {set_option(),
           {"--data", "PATH",
            "other data than the config names: a folder of class folders, a file of sequences, or a folder with such "
            "files"},
           {"--split", "train|valid|test", "which split of the data (default: test, or valid if there is none)"},
           {"--beam", "N", "pairs of lines: open sequences of each search for a translation (default: 4; 1: greedy)"},
           {"--length-penalty", "A", "pairs of lines: above 0 favours longer translations (default: 0.6)"},
           {"--limit", "N", "pairs of lines: translate the first N only"},
           {"--json", "", "print the result as JSON on stdout"}},
          eval_command};
}

}  // namespace hearth::train
