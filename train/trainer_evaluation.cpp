// SPDX-License-Identifier: Apache-2.0
// What a trainer does with the model as it stands: evaluations, what is shown of it, and the choice of the best.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iomanip>
#include <optional>

#include "core/text_stream.h"
#include "train/attach/live_run.h"
#include "train/checkpoint/best_weights.h"
#include "train/evaluation_hooks.h"
#include "train/report/report.h"
#include "train/step/step.h"
#include "train/step/visit_batches.h"
#include "train/task/report_sections.h"
#include "train/trainer.h"

namespace hearth::train {
namespace {

using Clock = std::chrono::steady_clock;

/// "epoch 3" after the step that ends it, "epoch 2.41" within the third.
std::string epoch_text(std::int64_t step, double steps_per_epoch) {
  const std::int64_t over = optim::epochs_over(step, steps_per_epoch);
  TextStream text;
  text << "epoch ";
  if (optim::steps_of_epochs(static_cast<double>(over), steps_per_epoch) == step)
    text << over;
  else
    text << std::fixed << std::setprecision(2) << static_cast<double>(step) / steps_per_epoch;
  return text.str();
}

/// Whether this hook is one of the configuration's that count evaluations.
bool counts_evaluations(const TrainOptions& options, const std::string& hook) {
  return (options.reduce_lr_on_plateau.patience && hook == reduce_lr_hook) ||
         (options.early_stopping.patience && hook == early_stopping_hook);
}

/// Uses the averages where each rank has a part of them, which all ranks have to do together, around what one does
/// alone.
struct ShardedAverageScope {
  explicit ShardedAverageScope(Session& session) {
    if (session.ema && session.parameters->shards() != nullptr) averaged.emplace(*session.ema);
  }
  std::optional<optim::EmaScope> averaged{};
};

}  // namespace

void Trainer::report_model() {
  try {
    const BestWeightsScope best(session_, folder_.checkpoints());
    const ShardedAverageScope for_one_rank(session_);
    if (!computes_what_is_shown()) return;
    ModelReport options;
    options.weights_step = best.step();
    const auto sections = model_sections(session_, options);
    if (folder_.writes()) write_report(folder_.path(), folder_.file("report.html"), sections);
  } catch (const Error& error) {
    // The training is done; `hearth report` can try again.
    progress_.line(join_text("warning: the report does not show the model: ", error.what()));
  }
}

// One rank shows for all; where all gather values while they compute, all compute what it shows.
bool Trainer::computes_what_is_shown() const { return folder_.writes() || session_.parameters->divides_values(); }

Json Trainer::samples(const data::DatasetPointer& part) {
  Json list = Json::array();
  const EvaluationScope as_in_evaluations(session_);
  try {
    for (const Figure& figure : session_.task->samples(session_, part)) list.push_back(to_json(figure));
  } catch (const Error& error) {
    // What is shown of a model is no reason to stop its training.
    progress_.line(join_text("warning: no samples for the report: ", error.what()));
  }
  return list.size() > 0 ? list : Json();
}

// One rank translates for all, as it draws samples: the others have nothing to choose by it.
void Trainer::add_text_metrics(Json& record, const data::DatasetPointer& part) {
  const EvalOptions& options = session_.config().eval;
  if (!computes_what_is_shown() || options.translate == 0 || options.metric == TranslationMetric::none ||
      !session_.task->writes_comparable_text())
    return;
  const EvaluationScope as_in_evaluations(session_);
  try {
    session_.task->add_text_metrics(record, session_, part,
                                    {.search = {.beam = 1},
                                     .limit = options.translate,
                                     .by_edits = options.metric == TranslationMetric::error_rate});
  } catch (const Error& error) {
    progress_.line(join_text("warning: no translations to measure (eval.translate 0 asks for none): ", error.what()));
  }
}

Trainer::Evaluation Trainer::evaluate_part(const std::string& split, const data::DatasetPointer& part,
                                           EvaluationRecord what) {
  const Position& position = session_.position;
  const auto started = Clock::now();
  const Marker marker("evaluation");
  const LiveRun::Doing doing(live_.get(), "evaluation");
  const ShardedAverageScope with_samples_of_one_rank(session_);
  const Meter meter = evaluate(session_, part);
  const double seconds = std::chrono::duration<double>(Clock::now() - started).count();
  const double rate = static_cast<double>(meter.samples) / std::max(1e-9, seconds);
  Json record = Json::object();
  record.set("step", position.step)
      .set("epoch", static_cast<double>(position.step) / session_.plan.steps_per_epoch)
      .set("split", split);
  if (what.weights_step != position.step) record.set("weights_step", what.weights_step);
  const bool has_counted = meter.samples > 0;
  if (has_counted) record.set("loss", meter.loss());
  if (has_counted && session_.task->has_accuracy()) record.set("accuracy", meter.accuracy());
  record.set("throughput", rate).set("unit", session_.throughput_unit());
  if (has_counted) session_.task->add_metrics(record, session_.loss, meter, part.get());
  if (has_counted && meter.metrics) meter.metrics->report(record);
  add_text_metrics(record, part);
  if (Json figures = what.samples && computes_what_is_shown() ? samples(part) : Json(); !figures.is_null())
    record.set("figures", std::move(figures));
  profile_.add_evaluation(started);
  add_record(record);
  if (!has_counted) return {meter, join_text("  ", split, ": no label counts, so that there is no loss")};
  TextStream text;
  text << "  " << split << " loss " << std::setprecision(9) << meter.loss() << std::fixed;
  if (session_.task->has_accuracy()) text << "  accuracy " << std::setprecision(2) << 100 * meter.accuracy() << " %";
  for (const auto& [key, value] : headline_metrics(record)) text << "  " << key << ' ' << std::setprecision(4) << value;
  if (const Json* bits = record.find("bits_per_character"))
    text << std::setprecision(4) << "  " << bits->as_number() << " bits a character";
  text << text_metrics(record, "  ");
  return {meter, text.str()};
}

bool Trainer::keep_best(const Meter& meter) {
  if (meter.samples == 0) return false;
  Position& position = session_.position;
  const auto [value, lower_is_better] = session_.comparable(meter);
  const bool is_better = lower_is_better ? value < position.best_value : value > position.best_value;
  const bool is_as_good = value == position.best_value && meter.loss() < position.best_loss;
  if (position.best_step >= 0 && !is_better && !is_as_good) return false;
  if (!std::isfinite(meter.loss()) || !std::isfinite(value)) return false;
  position.best_step = position.step;
  position.best_value = value;
  position.best_accuracy = meter.accuracy();
  position.best_loss = meter.loss();
  return true;
}

bool Trainer::evaluate_and_log() {
  Position& position = session_.position;
  const auto [split, part] = session_.validation_part();
  if (!part) return false;
  dist::set_status(session_.ranks->group(), join_text("the evaluation after step ", position.step));
  const auto [meter, text] = evaluate_part(split, part, {position.step, session_.config().log.report});
  // What only the end asks for would not be there in a longer run, which this one may become.
  const bool counts = is_evaluation_due() && position.evaluated_step != position.step;
  const bool best = session_.data.valid && keep_best(meter);
  position.last_accuracy = meter.samples > 0 ? meter.accuracy() : -1;
  position.last_loss = meter.loss();
  for (const NamedHook& one : session_.hooks())
    if (counts || !counts_evaluations(session_.config().train, one.name))
      one.hook->after_evaluation(session_, split, meter);
  const std::string epoch = epoch_text(position.step, session_.plan.steps_per_epoch);
  progress_.line(epoch + text + (best ? "  (best)" : ""));
  position.evaluated_step = position.step;
  if (session_.at_end()) evaluate_test(epoch.size());
  return best;
}

// What no choice was made by tells how good the run is: of the weights that the choice led to, as `hearth eval` has it.
void Trainer::evaluate_test(std::size_t indent) {
  Position& position = session_.position;
  if (!session_.data.test || session_.data.test == session_.validation_part().second) return;
  const BestWeightsScope best(session_, folder_.checkpoints());
  if (const std::string& reason = best.unavailable_reason(); !reason.empty())
    progress_.line("warning: the test split is evaluated with the last weights, as the best are not there: " + reason);
  const Evaluation test = evaluate_part("test", session_.data.test, {best.step()});
  position.test_step = best.step();
  position.test_accuracy = test.meter.samples > 0 ? test.meter.accuracy() : -1;
  position.test_loss = test.meter.loss();
  for (const NamedHook& one : session_.hooks()) one.hook->after_evaluation(session_, "test", test.meter);
  const std::string which =
      best.step() == position.step ? "" : join_text("  (of the best, that of step ", best.step(), ")");
  progress_.line(std::string(indent, ' ') + test.text + which);
}

void Trainer::evaluate_end() {
  const Position& position = session_.position;
  const data::DatasetPointer part = session_.validation_part().second;
  const bool is_evaluated = position.evaluated_step == position.step && !moved_;
  const bool lacks_test = session_.data.test && session_.data.test != part && position.test_accuracy < 0;
  if (!part || (is_evaluated && !lacks_test)) return;
  if (is_evaluated)
    evaluate_test(0);
  else
    (void)evaluate_and_log();
  save_checkpoint();
}

void Trainer::require_finite_end() const {
  const Position& position = session_.position;
  if (!session_.at_end()) return;
  for (const double loss : {position.last_loss, position.test_loss})
    HEARTH_CHECK(DivergedError, std::isfinite(loss), "the loss of the last evaluation is ", loss, " at step ",
                 position.step, "; lower the learning rate, warm up longer, or clip the gradients",
                 !session_.data.valid      ? ""
                 : position.best_step >= 0 ? join_text("; the best evaluation was that of step ", position.best_step)
                                           : "; no evaluation was finite");
}

}  // namespace hearth::train
