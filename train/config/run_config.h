// SPDX-License-Identifier: Apache-2.0
// One run as its JSON file describes it. The fields, their ranges and their documentation are in run_config.cpp and
// precision_options.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/tf32.h"
#include "data/registry.h"
#include "dist/route.h"
#include "dist/strategy/registry.h"
#include "models/registry.h"
#include "models/weights/weights.h"
#include "optim/registry.h"
#include "train/hook.h"
#include "train/model/loss.h"
#include "train/task/registry.h"

namespace hearth::train {

/// `automatic` stands in configurations only: a session settles it (settle_precision).
enum class PrecisionLevel : std::uint8_t { O0, O1, O2, automatic };
/// What activations are held in, and how f32 is multiplied.
enum class ComputeType : std::uint8_t { f32, tf32, bf16, f16 };
/// "O0"; "f32".
HEARTH_API const char* name_of(PrecisionLevel level);
HEARTH_API const char* name_of(ComputeType type);

/// `automatic` stands in configurations only: a session settles it (settle_precision).
enum class Tf32Mode : std::uint8_t { off, on, automatic };
/// "off"
HEARTH_API const char* name_of(Tf32Mode mode);

/// Which operations of f32 may be multiplied as TF32.
struct Tf32Options {
  Tf32Mode all = Tf32Mode::off;
  // Instead of `all`.
  std::optional<Tf32Mode> matmul;
  std::optional<Tf32Mode> conv;

  /// What counts.
  Tf32Mode of_matmul() const { return matmul.value_or(all); }
  Tf32Mode of_conv() const { return conv.value_or(all); }
  bool has(Tf32Mode mode) const { return of_matmul() == mode || of_conv() == mode; }
  bool operator==(const Tf32Options&) const = default;
};

struct HEARTH_API PrecisionOptions {
  PrecisionLevel level = PrecisionLevel::O0;
  ComputeType dtype = ComputeType::f32;
  Tf32Options tf32;
  std::optional<double> loss_scale;  ///< 0: dynamic
  // Of a dynamic scale; none: as optim::GradScalerOptions.
  std::optional<std::int64_t> growth_steps;
  std::optional<double> growth_factor;
  std::optional<double> backoff_factor;
  std::optional<std::int64_t> hysteresis;

  /// Whether one of them is there.
  bool moves_scale() const { return growth_steps || growth_factor || backoff_factor || hysteresis; }

  /// Of the activations.
  DType type() const;
  /// What may be rounded to TF32, by the field or by the dtype.
  Tf32 allowed_tf32() const;
  bool operator==(const PrecisionOptions&) const = default;
};

struct LrScalingOptions {
  optim::LrScaling rule = optim::LrScaling::none;
  std::optional<std::int64_t> reference_batch;
};

/// Of the moving average of the weights.
struct AverageOptions {
  std::optional<double> decay;  ///< none without it
  bool warmup = false;
};

/// Of the end of a run whose evaluations of the valid split no longer get better.
struct EarlyStoppingOptions {
  std::optional<std::int64_t> patience;  ///< evaluations; it is off without a number
  double min_delta = 0;
};

/// Of learning rates that fall where the evaluations of the valid split no longer get better.
struct ReduceLrOptions {
  std::optional<std::int64_t> patience;  ///< evaluations; it is off without a number
  double factor = 0.1;
  double threshold = 1e-4;
  std::int64_t cooldown = 0;
  double min_lr = 0;
};

struct TrainOptions {
  std::int64_t batch_size = 64;
  std::optional<std::int64_t> epochs;
  std::optional<std::int64_t> steps;
  std::int64_t accumulate = 1;
  LrScalingOptions lr_scaling;
  std::optional<double> clip_norm;
  bool deterministic = false;
  bool repeatable = true;
  std::optional<bool> graph;  ///< nothing: where a step can be recorded
  bool pinned = true;
  std::optional<std::int64_t> threads;  ///< of the pool, at most; nothing: all
  AverageOptions ema;
  std::optional<bool> chunked_head;
  std::vector<std::string> freeze;
  EarlyStoppingOptions early_stopping;
  ReduceLrOptions reduce_lr_on_plateau;
};

/// Where a run's weights come from that are not drawn.
struct WeightsOptions {
  std::string path;  ///< empty: from nowhere
  models::WeightFormat from = models::WeightFormat::hearth;
  std::string config;  ///< of the model they belong to; empty: the one beside them
  std::string into;    ///< the part of the model that they are for; empty: all of it
  std::vector<std::string> reinitialize;
  std::vector<std::string> unused;
};

/// What evaluations count in translations.
enum class TranslationMetric : std::uint8_t { none, bleu, error_rate };

struct EvalOptions {
  std::int64_t every_epochs = 1;
  std::optional<std::int64_t> batch_size;
  TranslationMetric metric = TranslationMetric::bleu;
  std::int64_t translate = 100;
  std::string monitor;  ///< empty: accuracy, or loss (Task::best_by_loss)
};

struct CheckpointOptions {
  std::int64_t every_epochs = 1;
  std::optional<std::int64_t> every_steps;
  std::int64_t keep = 2;
  bool best = true;
};

struct LogOptions {
  std::optional<std::int64_t> every_steps;  ///< none: see Session::steps_between_logs()
  bool tensorboard = true;
  bool report = true;
  bool profile = false;
  std::optional<double> price_per_hour;  ///< of the run, in any currency
};

enum class DistBackend : std::uint8_t { automatic, none, tcp, nccl };

struct DistOptions {
  DistBackend backend = DistBackend::automatic;
  dist::Route route = dist::Route::automatic;
  std::string address;
  double bucket_mb = 10;  ///< 0: chosen after the first steps (train/step/sum_choice.h)
  double first_bucket_mb = 1;
  bool overlap = true;
  DType wire = DType::f32;
  dist::Compressions::Component compress;
  std::optional<std::int64_t> shards;
  std::int64_t zero = 0;
  bool sync_batch_norm = false;
  double timeout = 60;
  double join_timeout = 120;
};

/// The size of buckets that a run begins with, in MiB.
inline double initial_bucket_mb(const DistOptions& dist) {
  return dist.bucket_mb > 0 ? dist.bucket_mb : DistOptions().bucket_mb;
}

struct RunConfig {
  std::string name;
  std::uint64_t seed = 0;
  std::string device = "auto";
  models::Models::Component model;
  data::Datasets::Component data;
  TaskRegistry::Component task;
  LossRegistry::Component loss;
  optim::Optimizers::Component optimizer;
  optim::Schedules::Component schedule;
  WeightsOptions weights;
  PrecisionOptions precision;
  TrainOptions train;
  EvalOptions eval;
  CheckpointOptions checkpoint;
  LogOptions log;
  DistOptions dist;
  std::vector<HookRegistry::Component> hooks;
};

HEARTH_API void describe(Fields<PrecisionOptions>&);
HEARTH_API void describe(Fields<LrScalingOptions>&);
HEARTH_API void describe(Fields<WeightsOptions>&);
HEARTH_API void describe(Fields<TrainOptions>&);
HEARTH_API void describe(Fields<EvalOptions>&);
HEARTH_API void describe(Fields<CheckpointOptions>&);
HEARTH_API void describe(Fields<LogOptions>&);
HEARTH_API void describe(Fields<DistOptions>&);
HEARTH_API void describe(Fields<RunConfig>&);

/// What `train.lr_scaling` makes of the optimizer's learning rate: a factor for batch_size x accumulate samples.
HEARTH_API double lr_factor(const TrainOptions& options);

/// A parsed run and the document with every key filled in, as it is written into the run's folder.
struct LoadedConfig {
  RunConfig config;
  Json resolved;
  std::vector<std::string> hints{};  ///< a line for each key that was given by its former name
  std::string of_weights{};          ///< options of the model that are those of weights.path, and which file says so
};

/// Reads, overrides (`--set PATH=VALUE`) and checks a run. The run's name defaults to the file's name without ".json",
/// and options of the model to those that a configuration of transformers beside weights.path says.
/// ConfigError with every fault, one a line; FileError if the file cannot be read.
HEARTH_API LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides);

/// The device that "auto", "cpu", "cuda" or "cuda:N" stands for here. "auto" is the first GPU if there is one, else the
/// CPU; an emulated GPU, which is for tests, has to be named. DeviceError if there is no such device.
HEARTH_API Device device_of_run(const std::string& name);
/// The same for a rank: with "auto" and "cuda" the GPU of its number among the ranks of this machine, round and round.
HEARTH_API Device device_of_rank(const std::string& name, int local_rank);

/// Paths at which two resolved runs differ in what changes the numbers of the training, so that one cannot continue
/// the other. The length of the run, early stopping, logging, checkpoints, evaluation, name and device do not count.
HEARTH_API std::vector<std::string> differences_that_matter(const Json& resolved, const Json& other);

}  // namespace hearth::train
