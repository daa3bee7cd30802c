// SPDX-License-Identifier: Apache-2.0
// Everything a run is made of, built from its config; or what computes with a model that is trained already.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/parameters.h"
#include "core/io/state.h"
#include "core/switches.h"
#include "data/splits.h"
#include "optim/ema.h"
#include "optim/grad_scaler.h"
#include "optim/registry.h"
#include "train/config/run_config.h"
#include "train/hook.h"
#include "train/model/meter.h"
#include "train/model/trained_model.h"
#include "train/profile/phase_meter.h"
#include "train/step/ranks.h"
#include "train/step/sum_choice.h"

namespace hearth::cuda {
class Feed;
}  // namespace hearth::cuda

namespace hearth::train {

/// How long a run is.
struct Plan {
  std::int64_t batches_per_epoch = 0;
  /// Updates, and no whole number where `train.accumulate` does not divide the batches: one update may then end an
  /// epoch and begin the next, or take in several. See optim::steps_of_epochs().
  double steps_per_epoch = 0;
  std::int64_t total_steps = 0;
  std::int64_t mixed_batches = std::numeric_limits<std::int64_t>::max();  ///< as data::LoaderOptions has it
};

/// What one step did.
struct StepResult {
  std::int64_t samples = 0;
  double lr = 0;
};

/// Where a run stands. All is registered state but metrics_bytes, which depends on timings, and stop_reason, a text:
/// these are kept in the manifest of a checkpoint.
struct Position {
  std::int64_t step = 0;
  Meter interval;                       ///< since the last line of training metrics, as of the last read_interval()
  std::int64_t interval_tokens = 0;     ///< of sequences in that time, without padding
  std::int64_t interval_positions = 0;  ///< with it
  std::int64_t best_step = -1;          ///< of the best evaluation; without a valid split that of the last checkpoint
  double best_accuracy = -1;
  double best_loss = 0;
  double best_value = 0;      ///< what it was chosen by (Session::comparable())
  double last_accuracy = -1;  ///< of the valid split, or of the test split where there is none; below 0: none so far
  double last_loss = 0;
  std::int64_t evaluated_step = -1;  ///< of that evaluation; -1: none so far, or not known of an older checkpoint
  double test_accuracy = -1;         ///< at the end, where there is a valid split too; below 0: none so far
  double test_loss = 0;
  std::int64_t test_step = -1;     ///< whose weights were evaluated there; -1 where an earlier version did not note it
  std::int64_t metrics_bytes = 0;  ///< of metrics.jsonl at the last checkpoint
  std::string stop_reason{};       ///< why a hook ended the run; empty where none did
};

/// What is said of weights that a run starts from.
struct LoadedWeights {
  std::vector<std::string> left_out;  ///< what was not loaded, and why
  std::vector<std::string> notes;     ///< what was assumed
};

/// A hook and the name under which its state is registered.
struct NamedHook {
  std::string name;
  std::unique_ptr<Hook> hook;
};

class HEARTH_API Session : public TrainedModel {
 public:
  /// Opens the data and builds the model with its initial values, the optimizer and the schedule. With a group, which
  /// must outlive the session, it is a rank of a data parallel run.
  explicit Session(LoadedConfig loaded, Collective* group = nullptr);
  /// For a model that is trained already and stays as it is: builds the model, and no optimizer, schedule, loss scale
  /// or plan. `given` may be without samples (data::described_data()).
  Session(LoadedConfig loaded, data::DataSplits given);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const RunConfig& config() const { return loaded_.config; }
  const Json& resolved() const { return loaded_.resolved; }
  /// Why the level of precision is what it is where the configuration says "auto"; else empty.
  const std::string& precision_reason() const { return precision_reason_; }
  /// Deterministic mode, repeatability, TF32 and, of a training, threads as this run's configuration has them: every
  /// step and evaluation has a SwitchScope of them.
  Switches switches() const;
  /// Takes the weights of config().weights, where it names a file, as a new run starts from them. FileError with
  /// everything that does not fit; ConfigError with the options of the model in which it differs from the model of
  /// the weights.
  LoadedWeights load_start_weights();
  /// Makes all but the data and the hooks anew, as the constructor did: forgets what steps have changed.
  void restart();
  /// The same as a rank of another group, which must outlive the session, or of none.
  void restart(Collective* group);
  /// After the weights or the state were loaded.
  void after_load();
  /// The learning rate that the schedule multiplies: the optimizer's, scaled by `train.lr_scaling`.
  double base_lr() const { return base_lr_; }
  /// The learning rate of a step: the schedule's, passed through the hooks as they stand.
  double lr(std::int64_t step) const;
  /// Adds a hook after those of the configuration and those added before; its state is registered under
  /// "hooks.<name>.". Comes before Trainer::resume(). UsageError for a null pointer, and a name that is empty or taken.
  void add_hook(const std::string& name, std::unique_ptr<Hook> hook);
  /// The hooks in the order in which they are called.
  const std::vector<NamedHook>& hooks() const { return hooks_; }
  /// Asks the run to end after this step as it would at the end of its plan: with its last evaluations, a checkpoint
  /// and the report. `reason` is what the console, metrics.jsonl and run.json say. Changes nothing where the run
  /// is at its end anyway. UsageError for an empty reason.
  void request_stop(const std::string& reason);
  /// Whether there is no step left: the plan is done, or a hook ended the run.
  bool at_end() const { return position.step >= plan.total_steps || !position.stop_reason.empty(); }
  /// Shuffled training batches, from this one on, counted through all epochs.
  data::Loader make_train_loader(std::int64_t first_batch = 0) const;
  /// The named part of the data; for "" the test split, or the valid split if there is none. Null if there is no such
  /// part. UsageError for a name other than train, valid and test.
  std::pair<std::string, data::DatasetPointer> evaluation_part(const std::string& name = "") const;
  /// The split that a training evaluates as it goes on, and its name: valid, by which it chooses its best checkpoint,
  /// or test if there is no such split; null if there is neither.
  std::pair<std::string, data::DatasetPointer> validation_part() const;
  /// The number that evaluations are compared by: eval.monitor, else "loss" or "accuracy", as the task says.
  std::string monitored() const;
  struct Comparable {
    double value;
    bool lower_is_better;
  };
  /// That number of an evaluation in which labels counted.
  Comparable comparable(const Meter& meter) const;
  /// Of what the best checkpoint is the best: "valid accuracy", "valid loss", "valid f1", or "last checkpoint", which
  /// is what `best` means without a valid split. A choice by the test split would flatter the run.
  std::string best_by() const;
  /// What its throughput counts, as Task::unit() says: "images/s".
  std::string throughput_unit() const;
  /// Steps from one line of training metrics to the next: log.every_steps, or else 50, and fewer where a run would have
  /// fewer than 20 lines or an epoch none.
  std::int64_t steps_between_logs() const;
  /// Has the model behave as in a step: in training mode, but for the parts that train.freeze names.
  void train_mode();
  /// From here on the model computes with the averaged weights, if the run has them.
  void use_averaged_weights();
  /// Brings position.interval, grad_norm on a CUDA device, and loss_scale_now up to date. DivergedError, naming the
  /// first parameter whose gradient is not finite, if the loss or the norm of the gradients became not finite or the
  /// loss scale cannot be lowered any more.
  void read_interval();
  /// As data::fingerprint(); made at the first call.
  const Json& data_fingerprint();
  /// Starts a new interval.
  void clear_interval();
  /// After position.interval was loaded.
  void write_interval() { sums.write(ranks->writes() ? position.interval : Meter{}); }

  data::DataSplits data;
  std::unique_ptr<Task> task;  ///< what a batch means
  std::unique_ptr<FlatParameters> parameters;
  std::unique_ptr<Ranks> ranks;                   ///< never null
  std::unique_ptr<SumChoice> sum_choice;          ///< of the ranks' sums; null in a run of one process
  std::unique_ptr<optim::Optimizer> optimizer;    ///< null where nothing is trained
  std::unique_ptr<optim::Schedule> schedule;      ///< likewise
  std::unique_ptr<optim::Ema> ema;                ///< null without averaging
  std::unique_ptr<optim::GradScaler> loss_scale;  ///< null without loss scaling
  optim::GradScaler::Reading loss_scale_now;      ///< as of the last read_interval()
  Plan plan;
  Position position;
  Sums sums{Device{}};       ///< of the interval
  Sums step_sums{Device{}};  ///< of one step, with loss scaling: it counts if the step is not skipped
  double grad_norm = -1;     ///< of the last step, before clipping; -1 when nothing asked for it
  Tensor device_grad_norm;   ///< the same where the step does not wait for it, f64 [1]
  PhaseMeter phases;         ///< of the steps since the last line of training metrics
  /// Brings batches to a CUDA device; null until the first.
  std::shared_ptr<cuda::Feed> feed{};
  /// Parameters and buffers under the module tree's names: model.safetensors.
  State model_state;
  /// All the rest that affects the next step.
  State training_state;

 private:
  /// Finds the device, and with it what the configuration leaves open.
  void settle();
  void build_or_explain();
  void build();
  void check_monitor() const;
  void freeze_parts();
  void prepare_training();
  std::unique_ptr<optim::Optimizer> make_optimizer();
  void add_configured_hooks();
  void register_state();
  void read_loss_scale();

  LoadedConfig loaded_;
  std::string precision_reason_;
  Collective* group_ = nullptr;
  bool trains_ = true;
  std::optional<Json> data_fingerprint_;
  double base_lr_ = 0;
  std::vector<NamedHook> hooks_;
  std::vector<NamedTensor> buffers_;
  std::vector<nn::Module*> frozen_;
};

/// Throws DivergedError: `what`, and the first parameter whose gradient is not finite.
[[noreturn]] HEARTH_API void throw_diverged(const Session& session, const std::string& what);

}  // namespace hearth::train
