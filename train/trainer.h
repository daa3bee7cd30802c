// SPDX-License-Identifier: Apache-2.0
// The training loop: steps, evaluations, checkpoints, metrics; stops cleanly on a signal and resumes bit for bit.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "train/checkpoint/run_folder.h"
#include "train/profile/communication.h"
#include "train/profile/device_use.h"
#include "train/profile/input_use.h"
#include "train/profile/process_use.h"
#include "train/profile/run_cost.h"
#include "train/profile/run_profile.h"
#include "train/report/progress.h"
#include "train/session.h"

namespace hearth::train {

class CapturedStep;
class LiveRun;
class LiveTrace;
class TracedSteps;

struct TrainResult {
  int stop_signal = 0;        ///< the signal that ended it early, or 0
  std::string stop_reason;    ///< why a hook ended it early; empty where none did
  bool already_done = false;  ///< the run was finished before, and nothing was done
  Json metrics;               ///< the last evaluation, and the best
};

class HEARTH_API Trainer {
 public:
  Trainer(Session& session, RunFolder& folder, Progress& progress);
  ~Trainer();

  /// Continues from the newest good checkpoint of the run in `directory`, if there is one; returns whether. ConfigError
  /// if that run was another one (see differences_that_matter); DataError if its data has changed, unless that is
  /// allowed. Damaged checkpoints are reported to progress and passed
  /// over. From a folder other than its own, the run may go on in another precision; what its own folder held is
  /// deleted, and which evaluation is the best is found anew.
  bool resume(const std::string& directory, bool changed_data = false);
  /// Runs to the end of the plan, or until a hook or a signal asks to stop. OutOfMemory says what batch size would fit;
  /// the session is of no use for training then.
  TrainResult run(const std::string& command_line);

 private:
  /// Links to the sets of this run's own folder, after a process was killed, or a set damaged: where that takes the
  /// best away, the set that was restored becomes the best, or the next evaluation does.
  void mend_checkpoints();
  TrainResult run_plan(const std::string& command_line);
  /// Compares the start of the ranks, and gathers where they run.
  void meet_ranks();
  /// Steps are recorded and replayed from here on, where the run asks for it and they can be.
  void capture_steps();
  /// Metrics and, of a run from another folder, the checkpoint that it goes on from.
  /// Tells of what no writer of checkpoints could remove.
  void remove_leftovers();
  void open_folder();
  /// Lets other processes attach to the run.
  void open_live_run();
  void publish_step();
  /// A line of metrics.
  void add_record(const Json& record);
  /// All steps to come, and what a signal asks for.
  void take_steps();
  /// The signal that asked for a stop, on this rank or another; 0 for none.
  int stop_signal() const;
  /// One step, and the evaluation, log line and checkpoint due after it.
  void advance(data::Loader& loader);
  /// Its first part: the batches, the step, and what is counted of it.
  StepResult take_step(data::Loader& loader);
  /// Says which samples were found bad, and takes in what the other ranks have found.
  void tell_bad_samples();
  /// Takes in how long the ranks took for the step before, and names those that keep the others waiting.
  void watch_ranks();
  /// The last step of all ranks, for the report.
  void write_step_trace();
  /// Its second part.
  void finish_step(const StepResult& step);
  /// Session::read_interval(), as a part of the steps.
  void read_interval();
  Progress::Step progress_step(const StepResult& last, data::Loader& loader);
  void log_interval(const StepResult& last, data::Loader& loader);
  /// Says what the steps wait for, once for each stage that they wait for.
  void tell_of_input();
  /// Says why the device is slow, or sick, or not read; on other ranks than 0 too.
  void tell_of_device();
  /// Once, after a step, which all connections are made by: takes what NCCL chose into the topology, and warns where it
  /// could do better.
  void tell_of_connections();
  /// Once, after the first steps: by which route and in which buckets the ranks sum from then on.
  void choose_sums();
  struct Evaluation {
    Meter meter;
    std::string text;  ///< of it, in a line
  };
  struct EvaluationRecord {
    std::int64_t weights_step = 0;  ///< the step that the weights are of
    bool samples = false;           ///< whether it shows samples
  };
  /// Adds its record to the metrics.
  Evaluation evaluate_part(const std::string& split, const data::DatasetPointer& part, EvaluationRecord what);
  bool computes_what_is_shown() const;
  /// What the model generates, for the report; null where that is nothing.
  Json samples(const data::DatasetPointer& part);
  /// Adds how what the model writes for some of the split compares with its references.
  void add_text_metrics(Json& record, const data::DatasetPointer& part);
  /// The last report, with what the finished model predicts.
  void report_model();
  /// Whether it was the best so far. At the end of the run the test split too.
  bool evaluate_and_log();
  /// Evaluates the best checkpoint's weights on a split that chooses nothing, at the end; `indent` is before its line.
  void evaluate_test(std::size_t indent);
  /// What the end of a run asks for where the run is there without a step: it was moved, or stopped here before this
  /// became its length.
  void evaluate_end();
  /// Whether the plan asks for an evaluation after this step, were it not the last one.
  bool is_evaluation_due() const;
  /// Says why a hook ends the run, if one does.
  void log_stop();
  /// Takes an evaluation of the valid split in; whether it is the best so far.
  bool keep_best(const Meter& meter);
  /// DivergedError unless the run's last evaluations gave numbers.
  void require_finite_end() const;
  void save_checkpoint();
  bool at_epoch_end(std::int64_t every) const;
  Json final_metrics() const;

  StepResult run_step(std::span<const data::Batch> batches);
  StepResult run_or_replay(std::span<const data::Batch> batches);

  Session& session_;
  std::unique_ptr<CapturedStep> captured_;  ///< null where steps run one by one
  RunFolder& folder_;
  Progress& progress_;
  std::int64_t saved_step_ = -1;
  bool moved_ = false;  ///< the run goes on from another folder
  std::int64_t bad_samples_told_ = 0;
  // Timing since the last line of training metrics; not part of the state.
  std::int64_t interval_step_ = 0;  ///< the last before
  std::int64_t interval_samples_ = 0;
  CommunicationMeter communication_;
  InputMeter input_;
  ProcessMeter process_;
  std::unique_ptr<EnergyMeters> energy_;        ///< while the run goes on
  data::Stage told_stage_ = data::Stage::room;  ///< what steps were last said to wait for
  StepWorkMeter work_;
  DevicePeak peak_;  ///< for products in the run's type
  StragglerWatch stragglers_;
  RunProfile profile_;
  Json topology_;  ///< of run.json
  bool told_connections_ = false;
  std::unique_ptr<TracedSteps> traced_;  ///< from the first step on
  std::unique_ptr<LiveRun> live_;        ///< where this rank writes
  std::unique_ptr<LiveTrace> live_trace_;
  std::optional<Marker> epoch_marker_;
};

}  // namespace hearth::train
