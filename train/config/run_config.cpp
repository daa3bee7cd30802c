// SPDX-License-Identifier: Apache-2.0
#include "train/config/run_config.h"

#include <algorithm>
#include <filesystem>

#include "core/cuda/emulation.h"
#include "core/io/printable.h"
#include "core/run_on.h"
#include "models/weights/weights_import.h"

namespace hearth::train {

void describe(Fields<LrScalingOptions>& f) {
  using optim::LrScaling;
  f.choice("rule", &LrScalingOptions::rule,
           {{"none", LrScaling::none}, {"linear", LrScaling::linear}, {"sqrt", LrScaling::sqrt}},
           "How the rate follows the samples of an update, `batch_size` x `accumulate`, over `reference_batch`.");
  f.integer("reference_batch", &LrScalingOptions::reference_batch, {.min = 1, .max = std::int64_t{1} << 36},
            "Samples of an update for which the optimizer's `lr` was chosen.");
  f.rule([](const LrScalingOptions& o) {
    if (o.rule == LrScaling::none)
      return o.reference_batch ? "reference_batch is of a rule; use rule linear or sqrt, or leave it out" : "";
    return o.reference_batch ? "" : "the rule needs reference_batch, the samples of an update that lr was chosen for";
  });
}

void describe(Fields<WeightsOptions>& f) {
  f.text(
      "path", &WeightsOptions::path,
      "A .safetensors file, the index of several, or their folder, that a new run's weights come from; or the folder "
      "of a run or a checkpoint, with its averaged weights if it has them; empty: all are drawn.");
  f.choice("from", &WeightsOptions::from, models::weight_formats,
           "Names and layout of that file: of this library, the same with PyTorch's filters, as transformers saves "
           "GPT-2, BERT, RoBERTa and DistilBERT, or as timm or its authors name Swin.");
  f.text("config", &WeightsOptions::config,
         "The configuration that the weights were trained with, which the model is compared with; empty: "
         "config.json beside them.");
  f.text(
      "into", &WeightsOptions::into,
      "The part of the model that the file has the weights of, as backbone.body, the trunk of a detector; names below "
      "are those within it, and the rest keeps its initial values. Empty: the whole model.");
  f.text("reinitialize", &WeightsOptions::reinitialize, {},
         "Beginnings of names of the model that keep their initial values, as that of a classifier of other classes.")
      .formerly("fresh");
  f.text("unused", &WeightsOptions::unused, {},
         "Beginnings of names of the file, or of those that its tensors have here, that the model has no use for, as "
         "those "
         "of another head; a prefix such as bert. may be left out.");
  f.rule([](const WeightsOptions& o) {
    const bool is_plain = o.into.empty() && o.reinitialize.empty() && o.unused.empty() && o.config.empty();
    return o.path.empty() && !is_plain ? "into, reinitialize, unused and config are of a file; give its path" : "";
  });
}

void describe(Fields<AverageOptions>& f) {
  f.number("decay", &AverageOptions::decay, {.above = 0, .below = 1},
           "What the average keeps of itself in each update: average = decay * average + (1 - decay) * weights.");
  f.boolean("warmup", &AverageOptions::warmup,
            "Keeps less in the first updates: min(decay, (1 + t) / (10 + t)) in update t = 0, 1, ...");
  f.rule([](const AverageOptions& o) { return o.warmup && !o.decay ? "warmup needs a decay" : ""; });
}

void describe(Fields<EarlyStoppingOptions>& f) {
  f.integer("patience", &EarlyStoppingOptions::patience, {.min = 1},
            "Evaluations in a row without improvement after which the run ends.");
  f.number("min_delta", &EarlyStoppingOptions::min_delta, {.min = 0},
           "An improvement is more than this: of the accuracy, a fraction of 1, or of the loss.");
  f.rule(
      [](const EarlyStoppingOptions& o) { return o.min_delta > 0 && !o.patience ? "min_delta needs a patience" : ""; });
}

void describe(Fields<ReduceLrOptions>& f) {
  f.integer("patience", &ReduceLrOptions::patience, {.min = 0},
            "Evaluations in a row without improvement that are borne; the next one lowers the rate.");
  f.number("factor", &ReduceLrOptions::factor, {.above = 0, .below = 1}, "On the rate, each time.");
  f.number("threshold", &ReduceLrOptions::threshold, {.min = 0},
           "An improvement is more than this fraction of the best accuracy or loss.");
  f.integer("cooldown", &ReduceLrOptions::cooldown, {.min = 0}, "Evaluations after a reduction that do not count.");
  f.number("min_lr", &ReduceLrOptions::min_lr, {.min = 0}, "The rate is lowered no further than to this.");
  f.rule([](const ReduceLrOptions& o) {
    const ReduceLrOptions none;
    const bool set = o.factor != none.factor || o.threshold != none.threshold || o.cooldown > 0 || o.min_lr > 0;
    return set && !o.patience ? "factor, threshold, cooldown and min_lr need a patience" : "";
  });
}

void describe(Fields<TrainOptions>& f) {
  f.integer("batch_size", &TrainOptions::batch_size, {.min = 1, .max = 1 << 20}, "Samples in one batch.");
  f.integer("epochs", &TrainOptions::epochs, {.min = 1}, "Passes over the training data.");
  f.integer("steps", &TrainOptions::steps, {.min = 1}, "Updates of the weights, instead of epochs.");
  f.integer("accumulate", &TrainOptions::accumulate, {.min = 1, .max = 1 << 16},
            "Batches whose gradients are averaged into one update. They go on from one epoch into the next; what comes "
            "with an epoch's end comes with the update that reaches it.");
  f.object("lr_scaling", &TrainOptions::lr_scaling, "The learning rate of another batch than it was chosen for.");
  f.number("clip_norm", &TrainOptions::clip_norm, {.above = 0},
           "Largest norm of all gradients together; larger ones are scaled down. null: no limit.");
  f.boolean("deterministic", &TrainOptions::deterministic,
            "Deterministic mode: the same bits for any number of threads. Costs some speed.");
  f.boolean(
      "repeatable", &TrainOptions::repeatable,
      "On a CUDA device: take only such algorithms of cuDNN and cuBLASLt as give the same bits each time. Without, "
      "they may be faster, long sums of 16-bit results may be added in 16 bits, and a resumed run differs from one "
      "that never stopped.");
  f.boolean(
      "graph", &TrainOptions::graph,
      "On a CUDA device: record a whole step once and replay it by a single launch. The same bits as without. null: "
      "where the step can be recorded; the log says why where it is not.");
  f.boolean(
      "pinned", &TrainOptions::pinned,
      "On a CUDA device: bring batches from pinned memory, on a stream of their own, in trainings, evaluations and "
      "predictions. The same bits as without, which saves two batches of locked memory.");
  f.integer("threads", &TrainOptions::threads, {.min = 1, .max = 4096},
            "Threads of the CPU that compute, beside those of data.workers: at most so many of the process's, which "
            "HEARTH_THREADS or the cores limit. null: all of these.");
  f.object("ema", &TrainOptions::ema,
           "An exponential moving average of the weights, used for evaluation. A number is its decay; null: none.")
      .shorthand("decay");
  f.boolean("chunked_head", &TrainOptions::chunked_head,
            "Take a cross entropy over a vocabulary by chunks of rows, so that the model's outputs, the largest tensor "
            "of the step, never exist at once. null: for vocabularies of 16384 pieces or more.");
  f.text("freeze", &TrainOptions::freeze, {},
         "Parts of the model that stay as they are, by their names, such as layer1 or blocks.0.attention: no "
         "gradient, no update, statistics of norms fixed, no dropout. A learning rate of 0 fixes no statistics.");
  f.object("early_stopping", &TrainOptions::early_stopping,
           "Ends the run when its evaluations of the valid split no longer get better, by what `best` means: accuracy, "
           "or loss. A number is the patience; null: it goes on to the end.")
      .shorthand("patience");
  f.object("reduce_lr_on_plateau", &TrainOptions::reduce_lr_on_plateau,
           "Lowers the learning rate that the schedule gives when the evaluations of the valid split no longer get "
           "better, as PyTorch's ReduceLROnPlateau. A number is the patience; null: never.")
      .shorthand("patience");
  f.rule([](const TrainOptions& o) -> std::string {
    if (o.epochs && o.steps) return "give epochs or steps, not both; null takes one back, as in --set steps=null";
    if (!o.epochs && !o.steps) return "give epochs or steps";
    if (o.deterministic && !o.repeatable)
      return "deterministic needs repeatable algorithms; leave repeatable out, or set deterministic to false";
    return "";
  });
}

void describe(Fields<EvalOptions>& f) {
  f.integer(
      "every_epochs", &EvalOptions::every_epochs, {.min = 1},
      "Epochs between evaluations of the valid split, or the test split where there is no such part; one comes at "
      "the end too, then also of the test split.");
  f.integer("batch_size", &EvalOptions::batch_size, {.min = 1, .max = 1 << 20}, "null: as in training.");
  f.choice("metric", &EvalOptions::metric,
           {{"none", TranslationMetric::none},
            {"bleu", TranslationMetric::bleu},
            {"error_rate", TranslationMetric::error_rate}},
           "Of translations, what evaluations count in those that the model writes: BLEU and chrF, edits by the words "
           "(of pronunciations, phonemes) of the nearest reference, or nothing.");
  f.integer(
      "translate", &EvalOptions::translate, {.min = 0, .max = 10000},
      "Of translations, how many pairs an evaluation of the training translates for `metric`, from the first on "
      "and by greedy search; 0: none. Rank 0 translates while the others wait. `hearth eval` translates all, by a "
      "beam.");
  f.text("monitor", &EvalOptions::monitor, {},
         "What the best checkpoint, early stopping and plateaus go by: loss, accuracy, or another number of the task's "
         "evaluations, such as f1, map, mean_iou or mae. Empty: accuracy, or loss where there is none.");
}

void describe(Fields<CheckpointOptions>& f) {
  f.integer("every_epochs", &CheckpointOptions::every_epochs, {.min = 1},
            "Epochs between checkpoints; one comes at the end too.");
  f.integer("every_steps", &CheckpointOptions::every_steps, {.min = 1},
            "Steps between checkpoints, instead of epochs.");
  f.integer("keep", &CheckpointOptions::keep, {.min = 1},
            "How many of the newest checkpoints are kept, beside the best.");
  f.boolean(
      "best", &CheckpointOptions::best,
      "Keeps the checkpoint with the best evaluation of the valid split as `checkpoints/best`; without such a split "
      "the last one.");
}

void describe(Fields<LogOptions>& f) {
  f.integer("every_steps", &LogOptions::every_steps, {.min = 1},
            "Steps between lines of training metrics; null: 50, or as few as give 20 lines in a run and one an epoch.");
  f.boolean("tensorboard", &LogOptions::tensorboard, "Writes TensorBoard event files.");
  f.boolean("report", &LogOptions::report, "Writes report.html at the end and after evaluations.");
  f.boolean("profile", &LogOptions::profile,
            "On a CUDA device the report shows the device's own time of each kernel of a step, by NVIDIA's CUPTI; the "
            "first six steps wait for the device.");
  f.number(
      "price_per_hour", &LogOptions::price_per_hour, {.min = 0},
      "What an hour of all of the run's machines costs, in any currency; run.json and the report then have the price "
      "of the run.");
}

/// Which options do not go together; "" if all do.
const char* conflict_in(const DistOptions& o) {
  if (o.compress && o.wire != DType::f32)
    return "compress decides what travels, and so does wire; leave wire out, or set compress to null";
  if (o.zero > 1 && o.wire != DType::f32)
    return "gradients that zero 2 and 3 divide travel in f32; leave wire out, or use zero 1";
  return o.compress && o.zero != 0 ? "compress does not go with zero; leave zero out, or set compress to null" : "";
}

void describe(Fields<DistOptions>& f) {
  f.choice(
      "backend", &DistOptions::backend,
      {{"auto", DistBackend::automatic},
       {"none", DistBackend::none},
       {"tcp", DistBackend::tcp},
       {"nccl", DistBackend::nccl},
       {"gloo", DistBackend::tcp}},
      "What connects the ranks of a data parallel run. auto: none unless `hearth launch`, torchrun's variables, Open "
      "MPI, Slurm or Kubernetes say that this process is a rank; nccl where every rank has a GPU of its own and the "
      "library, else shared memory where all ranks are processes of one machine, else tcp, of which gloo is another "
      "name.");
  f.choice(
      "route", &DistOptions::route,
      {{"auto", dist::Route::automatic},
       {"direct", dist::Route::direct},
       {"ring", dist::Route::ring},
       {"tree", dist::Route::tree},
       {"hierarchical", dist::Route::hierarchical}},
      "How sums on the host go from rank to rank. direct: every rank receives its piece of all others, and sends its "
      "sum to them. ring: round all ranks, which add in an order of their own, so not with train.deterministic. tree: "
      "halves between 2^k ranks. hierarchical: within each host, then between hosts, on hosts of as many ranks each. "
      "auto: hierarchical where the ranks can, else direct; on several hosts, after some steps, what is measured to be "
      "fastest. NCCL chooses for itself.");
  f.text("address", &DistOptions::address,
         "HOST or HOST:PORT where rank 0 listens and the ranks meet; as the launcher says if not given.");
  f.number("bucket_mb", &DistOptions::bucket_mb, {.above = 0, .max = 65536, .words = {{"auto", 0}}},
           "MiB of gradients that ranks sum at once. auto: by what the first steps measure; 10 with compress, NCCL.");
  f.number("first_bucket_mb", &DistOptions::first_bucket_mb, {.above = 0, .max = 65536},
           "The same of the first sum of a step, so that communication begins early.");
  f.boolean("overlap", &DistOptions::overlap,
            "Sums gradients while the backward pass goes on; in deterministic mode they are summed after it.");
  f.choice("wire", &DistOptions::wire, {{"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}},
           "The type in which gradients travel. Sums are formed in f32; bf16 and f16 halve the bytes and round. "
           "f16 holds no gradient beyond 65504. Not with train.deterministic, as the bits would depend on the ranks.");
  f.component(
      "compress", &DistOptions::compress, dist::compressions(),
      "How gradients are compressed on their way between ranks, on the CPU; null: not at all. One process alone "
      "compresses nothing.");
  f.integer(
      "shards", &DistOptions::shards, {.min = 1, .max = 1 << 16},
      "Pieces that each batch is cut into. With train.deterministic runs of the same number give the same bits on "
      "any number of ranks; null: 8 then, else as few as serve all ranks.");
  f.boolean(
      "sync_batch_norm", &DistOptions::sync_batch_norm,
      "Batch normalisation takes its statistics of the whole batch, of all ranks, as one process does; each layer "
      "then waits for all ranks. Without it each rank normalises its own rows.");
  f.integer("zero", &DistOptions::zero, {.min = 0, .max = 3},
            "1: each rank keeps the optimizer's state and the averaged weights of a part of the weights, and updates "
            "that part (ZeRO stage 1). 2: it keeps the gradients of that part only, too (stage 2), on the CPU. 3: it "
            "keeps the weights of that part only, too, and ranks gather what ops use (stage 3). The results are the "
            "same.");
  f.number("timeout", &DistOptions::timeout, {.above = 0, .max = 86400},
           "Seconds without a sign of life from a rank after which the run ends.");
  f.number("join_timeout", &DistOptions::join_timeout, {.above = 0, .max = 86400},
           "Seconds that a rank waits at the start for all others to join.");
  f.rule(conflict_in);
}

void describe(Fields<RunConfig>& f) {
  f.text("name", &RunConfig::name, "Name of the run and of its folder below runs/; the file's name if not given.");
  f.integer("seed", &RunConfig::seed, {.min = 0}, "All randomness follows from this number.");
  f.text("device", &RunConfig::device,
         "auto, cpu, cuda or cuda:N. auto takes the first GPU if there is one, else cpu.");
  f.component("model", &RunConfig::model, models::registry(), "The model.").required();
  f.component("data", &RunConfig::data, data::datasets(), "The dataset and how samples are changed.").required();
  f.component("task", &RunConfig::task, tasks(),
              "What a batch means: inputs of the model, loss and metrics; auto, as the data tells, if not given.");
  f.component("loss", &RunConfig::loss, losses(), "What is minimised; cross_entropy if not given.");
  f.component("optimizer", &RunConfig::optimizer, optim::optimizers(), "How weights are updated.").required();
  f.component("schedule", &RunConfig::schedule, optim::schedules(),
              "Learning rate over the run; constant if not given.");
  f.object("weights", &RunConfig::weights, "What a new run starts from.");
  f.object("precision", &RunConfig::precision, "Number formats.");
  f.object("train", &RunConfig::train, "The training loop.");
  f.object("eval", &RunConfig::eval, "Evaluation during training.");
  f.object("checkpoint", &RunConfig::checkpoint, "What is kept on disk.");
  f.object("log", &RunConfig::log, "What is reported.");
  f.object("dist", &RunConfig::dist, "Several processes.");
  f.component("hooks", &RunConfig::hooks, hooks(), "What the program does between the steps, in this order.");
}

double lr_factor(const TrainOptions& options) {
  const std::int64_t samples = checked_mul(options.batch_size, options.accumulate, "train: samples of an update");
  return optim::lr_scaling_factor(options.lr_scaling.rule, samples,
                                  options.lr_scaling.reference_batch.value_or(samples));
}

namespace {

/// Far more than any run says of itself.
constexpr std::uint64_t config_limit = std::uint64_t{1} << 20;

/// The keys that --set takes without their section, as options of `hearth train` give them.
std::string with_section(const std::string& assignment) {
  constexpr std::pair<std::string_view, const char*> sections[] = {
      {"batch_size", "train."}, {"epochs", "train."}, {"lr", "optimizer."}, {"steps", "train."}};
  for (const auto& [key, section] : sections)
    if (assignment.substr(0, assignment.find('=')) == key) return section + assignment;
  return assignment;
}

/// The task that a document names; "" where it names none.
std::string task_type(const Json& root) {
  const Json* const task = root.find("task");
  const Json* const type = task != nullptr && task->is_object() ? task->find("type") : nullptr;
  return type != nullptr && type->is_string() ? type->as_string() : "";
}

/// Why a run cannot have this name, or "".
std::string fault_of_name(const std::string& name) {
  constexpr std::size_t longest = 200;
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
    return "cannot name a folder of its own; use a name without \"/\", other than \".\" and \"..\"";
  if (name.front() == '-') return "would be taken for an option by other programs; begin it otherwise";
  if (has_control_characters(name)) return "has control characters; use letters, digits and \"-\", \"_\", \".\"";
  if (name.size() > longest) return join_text("has ", name.size(), " bytes; use ", longest, " or fewer");
  return "";
}

std::string string_in(const Json& section, const char* key) {
  const Json* const text = section.find(key);
  return text != nullptr && text->is_string() ? text->as_string() : "";
}

/// Gives the model the options that the document leaves out and a configuration beside the weights says: what was
/// taken, and from where. What the document has, the weights are compared with when they are loaded.
std::string take_model_of_weights(Json& root) {
  Json* const model = root.is_object() ? root.find("model") : nullptr;
  const Json* const weights = root.is_object() ? root.find("weights") : nullptr;
  if (model == nullptr || !model->is_object() || weights == nullptr || !weights->is_object()) return "";
  const std::string path = string_in(*weights, "path"), from = string_in(*weights, "from");
  const auto* const format = std::find_if(models::weight_formats.begin(), models::weight_formats.end(),
                                          [&](const auto& one) { return one.first == from; });
  if (path.empty() || format == models::weight_formats.end()) return "";
  const std::string config = string_in(*weights, "config");
  const Json theirs = models::model_of_configuration(path, format->second, config);
  if (theirs.is_null() || theirs.at("type").as_string() != string_in(*model, "type")) return "";
  std::string taken;
  for (const JsonMember& member : theirs.members()) {
    if (model->find(member.key) != nullptr) continue;
    model->set(member.key, member.value);
    taken += join_text(taken.empty() ? "" : ", ", member.key, " ", to_text(member.value));
  }
  return taken.empty() ? "" : join_text(taken, ", by ", config.empty() ? models::default_config_of(path) : config);
}

}  // namespace

LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides) {
  // That of a run has all keys, and is larger than the one that was given.
  const bool is_resolved = std::filesystem::path(path).filename() == "config.json";
  Json root = read_json(path, {is_resolved ? 16 * config_limit : config_limit, "configurations"});
  for (const std::string& assignment : overrides) apply_override(root, with_section(assignment));
  if (root.is_object()) {
    if (!root.find("name")) root.set("name", std::filesystem::path(path).stem().string());
    const auto lacks = [&](const char* key) { return !root.find(key) || root.find(key)->is_null(); };
    if (lacks("task")) root.set("task", Json::object().set("type", "auto"));
    if (lacks("loss")) root.set("loss", Json::object().set("type", default_loss(task_type(root))));
    if (lacks("schedule")) root.set("schedule", Json::object().set("type", "constant"));
    // An absent "train" would hide its rule (epochs or steps).
    if (!root.find("train")) root.set("train", Json::object());
  }
  std::string of_weights = is_resolved ? "" : take_model_of_weights(root);
  Json resolved;
  RunConfig config = parse_fields<RunConfig>(root, "", &resolved);
  try {
    if (config.device != "auto") (void)Device(config.device);
  } catch (const ConfigError&) {
    throw ConfigError(
        join_text(path, ": /device: \"", config.device, "\" is not known; use auto, cpu, cuda or cuda:N"));
  }
  const std::string fault = fault_of_name(config.name);
  HEARTH_CHECK(ConfigError, fault.empty(), path, ": /name: \"", printable(config.name), "\" ", fault);
  return {std::move(config), std::move(resolved), renamed_keys(*schema_of<RunConfig>(), root), std::move(of_weights)};
}

Device device_of_run(const std::string& name) {
  const int gpus = device_count(DeviceType::cuda);
  if (name == "auto") return gpus > 0 && !cuda::is_emulated() ? Device{DeviceType::cuda, 0} : Device{};
  const Device device = Device(name);
  // Throws, with the reason and the remedy, for a device that is not there.
  run_on(device, [](auto&) {});
  return device;
}

Device device_of_rank(const std::string& name, int local_rank) {
  const Device device = device_of_run(name);
  if (!device.is_cuda() || (name != "auto" && name != "cuda")) return device;
  return {DeviceType::cuda, local_rank % device_count(DeviceType::cuda)};
}

namespace {

void collect_differences(const Json& a, const Json& b, const std::string& pointer, std::vector<std::string>& out) {
  if (a == b) return;
  if (!a.is_object() || !b.is_object()) {
    out.push_back(pointer + " (" + to_text(a) + " against " + to_text(b) + ")");
    return;
  }
  for (const JsonMember& member : a.members()) {
    const Json* other = b.find(member.key);
    collect_differences(member.value, other ? *other : Json(), child_pointer(pointer, member.key), out);
  }
  for (const JsonMember& member : b.members())
    if (!a.find(member.key)) out.push_back(child_pointer(pointer, member.key));
}

}  // namespace

std::vector<std::string> differences_that_matter(const Json& resolved, const Json& other) {
  std::vector<std::string> all, result;
  collect_differences(resolved, other, "", all);
  // It counts evaluations.
  const bool waits_for_plateaus = !resolved.at("train").at("reduce_lr_on_plateau").at("patience").is_null();
  for (const std::string& difference : all) {
    // What the best is the best of.
    const bool compares = difference.starts_with("/eval/monitor");
    if (compares || (waits_for_plateaus && difference.starts_with("/eval/every_epochs"))) {
      result.push_back(difference);
      continue;
    }
    bool free = false;
    for (const char* prefix : {"/name",          "/device",       "/eval",          "/checkpoint",
                               "/log",           "/train/epochs", "/train/steps",   "/train/early_stopping",
                               "/train/graph",   "/train/pinned", "/train/threads", "/data/workers",
                               "/dist/backend",  "/dist/address", "/dist/timeout",  "/dist/join_timeout",
                               "/dist/overlap",  "/dist/zero",    "/data/prefetch", "/data/bad_samples",
                               "/data/on_error", "/data/cache",   "/data/stuck_",   "/comment",
                               "/$schema"})
      free = free || difference.starts_with(prefix);
    if (!free) result.push_back(difference);
  }
  return result;
}

}  // namespace hearth::train
