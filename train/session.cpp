// SPDX-License-Identifier: Apache-2.0
#include "train/session.h"

#include <algorithm>
#include <cmath>

#include "autograd/grad_state.h"
#include "core/nearest.h"
#include "core/origin.h"
#include "data/fingerprint.h"
#include "models/nn/norm.h"
#include "models/registry.h"
#include "train/checkpoint/bad_samples.h"
#include "train/config/auto_precision.h"
#include "train/evaluation_hooks.h"
#include "train/memory/memory_budget.h"
#include "train/memory/model_size.h"
#include "train/model/metrics.h"
#include "train/step/agreement.h"

namespace hearth::train {
namespace {

Plan make_plan(const TrainOptions& options, const data::DataSplits& data) {
  HEARTH_CHECK(ConfigError, options.lr_scaling.rule == optim::LrScaling::none || data.rows_by_tokens() == 0,
               "/train/lr_scaling: batches are filled by /data/tokens_per_batch, so that an update has no fixed number "
               "of samples; leave the rule out and give the rate");
  Plan plan;
  plan.batches_per_epoch = data.train_batches(options.batch_size);
  HEARTH_CHECK(ConfigError, plan.batches_per_epoch >= 1, "/train/batch_size: ", options.batch_size,
               " is more than the ", data.train->size(), " training samples; use a smaller batch");
  plan.steps_per_epoch = static_cast<double>(plan.batches_per_epoch) / static_cast<double>(options.accumulate);
  if (options.epochs) {
    const double batches = static_cast<double>(*options.epochs) * static_cast<double>(plan.batches_per_epoch);
    HEARTH_CHECK(ConfigError, static_cast<double>(options.accumulate) <= batches, "/train/accumulate: an update of ",
                 options.accumulate, " batches, but /train/epochs: ", *options.epochs, " have ", batches,
                 "; accumulate fewer, or train for more epochs");
  }
  plan.total_steps = options.steps ? *options.steps
                                   : optim::steps_of_epochs(static_cast<double>(*options.epochs), plan.steps_per_epoch);
  if (const std::int64_t closed = data.image_options.augment.boxes.close_mosaic; closed > 0) {
    plan.mixed_batches = plan.total_steps * options.accumulate - closed * plan.batches_per_epoch;
    const bool leaves_some = plan.mixed_batches > 0 && (!options.epochs || closed < *options.epochs);
    HEARTH_CHECK(ConfigError, leaves_some, "/data/augment/close_mosaic: the last ", closed,
                 " epochs, without mosaic and mixup, are all of the run's; lower it, or leave out mosaic and mixup");
  }
  return plan;
}

/// O2 has low-precision weights. O1 keeps low-precision copies of them, so that none is converted at each use; not for
/// f16 on the CPU, whose products are made in f32.
std::optional<LowPrecisionCopy> low_precision_copy(const PrecisionOptions& options, Device device, Collective* shards) {
  if (options.dtype == ComputeType::tf32) return std::nullopt;
  if (options.level == PrecisionLevel::O2)
    return LowPrecisionCopy{options.type(), LowPrecisionCopy::Use::instead, shards};
  if (options.level == PrecisionLevel::O1 && (device.is_cuda() || options.dtype == ComputeType::bf16))
    return LowPrecisionCopy{options.type()};
  return std::nullopt;
}

optim::GradScalerOptions loss_scale_options(const PrecisionOptions& options) {
  optim::GradScalerOptions result;
  const double fixed = options.loss_scale.value_or(0);
  if (fixed > 0) {
    result.dynamic = false, result.start = result.floor = result.ceiling = fixed;
    return result;
  }
  result.growth_steps = options.growth_steps.value_or(result.growth_steps);
  result.growth = options.growth_factor.value_or(result.growth);
  result.backoff = options.backoff_factor.value_or(result.backoff);
  result.hysteresis = options.hysteresis.value_or(result.hysteresis);
  return result;
}

// Chunks cost some time for the memory that they save, which is little where the vocabulary is small.
constexpr std::int64_t fewest_chunked_pieces = 16384;

/// Has loaders give ignored labels one number.
void leave_out_ignored(Loss& loss, data::DataSplits& data) {
  if (!loss.ignored_label || *loss.ignored_label == data::ignored_label) return;
  const data::AugmentOptions& augment = data.image_options.augment;
  HEARTH_CHECK(ConfigError, augment.mixup == 0 && augment.cutmix == 0, "/loss/ignore_index: ", *loss.ignored_label,
               " beside data.augment.mixup or cutmix, which mix labels; leave out the one or the other");
  data.ignored = std::exchange(loss.ignored_label, data::ignored_label);
}

/// What the factory of a type that a program has added gives. UsageError where it is nothing.
template <class Made>
Made made_by(const AnyComponent& component, const char* key, Made made) {
  HEARTH_CHECK(UsageError, static_cast<bool>(made), "/", key, ": the factory of \"", component.type(),
               "\" has made none; it has to return one, or to throw");
  return made;
}

/// The model as one whose loss is taken of its features; null where it is taken of its outputs.
models::VocabularyModel* chunked_model(nn::Module& model, const Loss& loss, std::optional<bool> asked) {
  auto* const network = dynamic_cast<models::VocabularyModel*>(&model);
  const Tensor weight = network != nullptr ? network->head().weight : Tensor();
  const bool possible = weight.defined() && loss.of_head != nullptr;
  HEARTH_CHECK(ConfigError, possible || !asked.value_or(false), "/train/chunked_head: ",
               weight.defined() ? "the loss needs all outputs; it is for cross_entropy"
                                : "the model has no head over a vocabulary",
               "; leave it out");
  return possible && asked.value_or(weight.dim(0) >= fewest_chunked_pieces) ? network : nullptr;
}

/// Rates are f32 in the update; a schedule is largest at the base rate or at one of its ends.
void require_finite_rates(double base, const optim::Schedule& schedule, std::int64_t steps) {
  const auto require = [](double rate, const std::string& when) {
    HEARTH_CHECK(ConfigError, std::isfinite(static_cast<float>(rate)) && rate >= 0, "/schedule: the learning rate ",
                 when, " is ", rate, ", which is no positive f32; lower /optimizer/lr or the factors of the schedule");
  };
  require(base, "that the schedule multiplies");
  for (const std::int64_t step : {std::int64_t{0}, steps / 2, steps - 1})
    require(base * schedule.factor(step), join_text("of step ", step + 1));
}

/// For what `key` of "train" names, which follows the evaluations of a run.
void require_valid_split(const data::DataSplits& data, const char* key) {
  HEARTH_CHECK(ConfigError, data.valid != nullptr, "/train/", key,
               ": there is no valid split to watch, and the test split decides nothing of a run; set samples aside by "
               "/data/valid_fraction, or leave ",
               key, " out");
}

}  // namespace

Session::Session(LoadedConfig loaded, Collective* group)
    : data(data::make_data(loaded.config.data)), loaded_(std::move(loaded)), group_(group) {
  settle();
  build_or_explain();
  add_configured_hooks();
}

Session::Session(LoadedConfig loaded, data::DataSplits given)
    : data(std::move(given)), loaded_(std::move(loaded)), trains_(false) {
  settle();
  build_or_explain();
}

void Session::restart() {
  ema.reset();
  loss_scale.reset();
  optimizer.reset();
  ranks.reset();
  parameters.reset();
  model.reset();
  model_state = {};
  training_state = {};
  clear_bad_samples(data);
  position = {};
  loss_scale_now = {};
  grad_norm = -1;
  build_or_explain();
}

void Session::restart(Collective* group) {
  group_ = group;
  restart();
}

void Session::settle() {
  device_ = device_of_run(loaded_.config.device);
  precision_reason_ = settle_precision(loaded_, device_);
  const PrecisionOptions& precision = config().precision;
  if (precision.level != PrecisionLevel::O0 && precision.dtype != ComputeType::tf32) autocast_ = precision.type();
}

void Session::build_or_explain() {
  try {
    build();
  } catch (const OutOfMemory& error) {
    // Further lines list what holds the memory.
    const std::string text = error.what();
    const std::size_t line = text.find('\n');
    throw OutOfMemory(join_text(text.substr(0, line), "; what the model itself needs does not fit at any batch size",
                                line == std::string::npos ? "" : text.substr(line)));
  }
}

void Session::build() {
  const RunConfig& config = loaded_.config;
  const OriginScope of_parameters = OriginScope::of_op("parameters");
  const SwitchScope switches(this->switches());
  if (trains_) plan = make_plan(config.train, data);
  task = made_by(config.task, "task", config.task.make(data));
  const models::InputInfo input = task->input_info();
  if (group_ != nullptr && trains_) require_same_run(*group_, config, loaded_.resolved, device_);
  require_model_fits(config, input, trains_, trains_ && group_ != nullptr ? group_->size() : 1,
                     memory_budget(device_).bytes());
  model = made_by(config.model, "model", config.model.make(input));
  // Initial values are drawn on the host, so they are the same on every device.
  nn::initialize(*model, config.seed);
  freeze_parts();
  HEARTH_CHECK(ConfigError, !trains_ || group_ == nullptr || config.dist.zero < 2 || device_.is_cpu(),
               "/dist/zero: ", config.dist.zero, " divides gradients on the CPU, and this run is on ", device_,
               "; use zero 1, or device cpu");
  model->to(device_);
  task->prepare(*this, {config.model, config.data});
  sums = Sums(device_);
  if (trains_) phases.use(device_);
  Collective* const group = trains_ ? group_ : nullptr;
  parameters = std::make_unique<FlatParameters>(
      model->parameters(), low_precision_copy(config.precision, device_, config.dist.zero == 1 ? group : nullptr),
      group != nullptr && config.dist.zero > 1
          ? std::optional(Division{group, block_elements(config.dist), config.dist.zero > 2})
          : std::nullopt);
  ranks = std::make_unique<Ranks>(config.train.accumulate);
  loss = made_by(config.loss, "loss", config.loss.make());
  task->check(loss);
  if (loss.place) loss.place(device_, input.classes);
  leave_out_ignored(loss, data);
  chunked = chunked_model(*model, loss, config.train.chunked_head);
  if (trains_) check_monitor(), prepare_training();
  const OriginScope of_average = OriginScope::of_op("average");
  if (const AverageOptions& average = config.train.ema; average.decay)
    ema = std::make_unique<optim::Ema>(*parameters, model->buffers(),
                                       optim::EmaOptions{.decay = *average.decay, .warmup = average.warmup});
  register_state();
}

void Session::freeze_parts() {
  frozen_.clear();
  for (const std::string& name : loaded_.config.train.freeze) {
    nn::Module* part = nullptr;
    std::string others;
    model->for_each_module([&](nn::Module& module) {
      const std::string path = module.path();
      if (part == nullptr && !path.empty() && path == name) part = &module;
      if (module.depth() == 1 && !module.name().empty()) others += (others.empty() ? "" : ", ") + path;
    });
    HEARTH_CHECK(ConfigError, part != nullptr, "/train/freeze: the model \"", config().model.type(),
                 "\" has no part \"", name, "\"; its parts are ", others,
                 ", and theirs are named as in layer1.0 (`hearth summary` lists all)");
    part->freeze();
    frozen_.push_back(part);
  }
}

void Session::train_mode() {
  model->train(true);
  for (nn::Module* const part : frozen_) part->train(false);
}

void Session::prepare_training() {
  const RunConfig& config = loaded_.config;
  if (group_ != nullptr) {
    ranks = std::make_unique<Ranks>(*group_, config, task->rows_are_independent(), *parameters, model->buffers(),
                                    plan.steps_per_epoch);
    sum_choice = std::make_unique<SumChoice>(ranks->parallel(), sum_choice_options(config));
    if (config.dist.sync_batch_norm) nn::sync_batch_norm(*model, group_);
  }
  if (config.train.clip_norm && (device_.is_cuda() || config.precision.dtype == ComputeType::f16))
    device_grad_norm = Tensor::zeros({1}, DType::f64, device_);
  if (config.precision.dtype == ComputeType::f16) {
    step_sums = Sums(device_);
    loss_scale =
        std::make_unique<optim::GradScaler>(*parameters, model->buffers(), loss_scale_options(config.precision));
  }
  const OriginScope of_optimizer = OriginScope::of_op("optimizer");
  optimizer = made_by(config.optimizer, "optimizer", make_optimizer());
  HEARTH_CHECK(ConfigError, config.dist.zero == 0 || optimizer->can_shard(), "/dist/zero: the optimizer \"",
               config.optimizer.type(),
               "\" does not say that ranks may update a part of the weights each; leave zero "
               "out, or override Optimizer::can_shard()");
  base_lr_ = optimizer->base_lr() * lr_factor(config.train);
  schedule = made_by(config.schedule, "schedule", config.schedule.make({plan.total_steps, plan.steps_per_epoch}));
  require_finite_rates(base_lr_, *schedule, plan.total_steps);
}

std::unique_ptr<optim::Optimizer> Session::make_optimizer() {
  if (ranks->alone() || !ranks->parallel().strategy().has_momentum()) return config().optimizer.make(*parameters);
  optim::SgdOptions options = *optim::sgd_options(config().optimizer);
  options.momentum_in_gradients = true;
  return std::make_unique<optim::Sgd>(*parameters, options);
}

void Session::add_configured_hooks() {
  if (const ReduceLrOptions& options = config().train.reduce_lr_on_plateau; options.patience) {
    require_valid_split(data, "reduce_lr_on_plateau");
    add_hook(reduce_lr_hook, make_reduce_lr_on_plateau(options));
  }
  if (const EarlyStoppingOptions& options = config().train.early_stopping; options.patience) {
    require_valid_split(data, "early_stopping");
    add_hook(early_stopping_hook, make_early_stopping(options));
  }
  const auto is_taken = [this](const std::string& name) {
    return std::any_of(hooks_.begin(), hooks_.end(), [&](const NamedHook& hook) { return hook.name == name; });
  };
  for (const HookRegistry::Component& component : config().hooks) {
    std::string name = component.type();
    for (int i = 2; is_taken(name); ++i) name = join_text(component.type(), "_", i);
    add_hook(name, component.make());
  }
}

void Session::add_hook(const std::string& name, std::unique_ptr<Hook> hook) {
  HEARTH_CHECK(UsageError, hook != nullptr, "hook \"", name, "\": there is none; give an object");
  HEARTH_CHECK(UsageError, !name.empty(), "hook: its name is empty; its state is registered under it");
  for (const NamedHook& known : hooks_)
    HEARTH_CHECK(UsageError, known.name != name, "hook \"", name, "\": the name is taken; give another");
  hook->register_state(training_state, "hooks." + name + ".");
  hooks_.push_back({name, std::move(hook)});
}

double Session::lr(std::int64_t step) const {
  double lr = base_lr_ * schedule->factor(step);
  for (const NamedHook& one : hooks_) lr = one.hook->lr(*this, step, lr);
  return lr;
}

void Session::request_stop(const std::string& reason) {
  HEARTH_CHECK(UsageError, !reason.empty(), "request_stop: the reason is empty; say why the run ends");
  if (!at_end()) position.stop_reason = reason;
}

void Session::register_state() {
  parameters->register_masters(model_state);
  // Those that are not trained are no less the model's.
  const std::vector<NamedTensor> all = model->parameters();
  const std::vector<std::size_t> tied = tied_to(all);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].frozen && tied[i] == i) model_state.add(all[i].name, all[i].tensor);
  for (const NamedTensor& buffer : model->buffers()) model_state.add(buffer.name, buffer.tensor);
  if (optimizer) optimizer->register_state(training_state);
  if (ema) ema->register_state(training_state);
  if (loss_scale) loss_scale->register_state(training_state);
  ranks->register_state(training_state);
  training_state.add("position.step", &position.step);
  training_state.add("position.interval.loss_sum", &position.interval.loss_sum);
  training_state.add("position.interval.correct", &position.interval.correct);
  training_state.add("position.interval.samples", &position.interval.samples);
  training_state.add("position.interval.tokens", &position.interval_tokens);
  training_state.add("position.interval.places", &position.interval_positions);
  training_state.add("position.best_step", &position.best_step);
  training_state.add("position.best_accuracy", &position.best_accuracy);
  training_state.add("position.best_loss", &position.best_loss);
  training_state.add("position.best_value", &position.best_value);
  training_state.add("position.last_accuracy", &position.last_accuracy);
  training_state.add("position.last_loss", &position.last_loss);
  training_state.add("position.evaluated_step", &position.evaluated_step);
  training_state.add("position.test_accuracy", &position.test_accuracy);
  training_state.add("position.test_loss", &position.test_loss);
  training_state.add("position.test_step", &position.test_step);
  register_quarantines(data, training_state);
  for (const NamedHook& one : hooks_) one.hook->register_state(training_state, "hooks." + one.name + ".");
}

namespace {

/// ", on rank 1 (...)" where the losses of some ranks are no numbers, and those of others are.
std::string ranks_without_number(const Ranks& ranks) {
  std::string text;
  bool others = false;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (std::isfinite(ranks.loss_sums()[static_cast<std::size_t>(rank)]))
      others = true;
    else
      text += join_text(text.empty() ? ", on " : " and ", dist::who(ranks.group(), rank));
  }
  return others ? text : "";
}

}  // namespace

void Session::read_interval() {
  ranks->read_sums(sums, position.interval);
  if (device_grad_norm.defined()) grad_norm = device_grad_norm.item();
  if (loss_scale) read_loss_scale();
  if (!std::isfinite(position.interval.loss_sum))
    throw_diverged(*this, join_text("the loss became ", position.interval.loss_sum, " at or before step ",
                                    position.step, ranks_without_number(*ranks)));
  // With a loss scale such an update is skipped, and has no norm.
  if (!std::isfinite(grad_norm))
    throw_diverged(*this,
                   join_text("the norm of the gradients became ", grad_norm, " at or before step ", position.step));
}

void Session::read_loss_scale() {
  loss_scale_now = loss_scale->read(*optimizer, ema.get());
  position.interval.samples -= loss_scale_now.uncounted;
  if (loss_scale_now.stuck < loss_scale->options().give_up_after) return;
  throw_diverged(*this, join_text("at step ", position.step, " the gradients overflowed ", loss_scale_now.stuck,
                                  " times in a row while the loss scale is ", loss_scale_now.scale,
                                  loss_scale->options().dynamic ? ", its floor" : "; a dynamic one would give way"));
}

void Session::after_load() {
  parameters->refresh_low_precision();
  if (loss_scale) loss_scale->after_load();
}

void Session::clear_interval() {
  position.interval.clear();
  position.interval_tokens = position.interval_positions = 0;
  write_interval();
}

const Json& Session::data_fingerprint() {
  if (!data_fingerprint_) data_fingerprint_ = data::fingerprint(data);
  return *data_fingerprint_;
}

namespace {

/// The number of the first parameter whose gradient is not finite; that of parameters where all are. All ranks call it.
std::size_t first_not_finite(const Session& session) {
  const FlatParameters& parameters = *session.parameters;
  const bool divided = parameters.divides_grads();
  const std::vector<double> own = divided ? parameters.grads().to_doubles() : std::vector<double>();
  const std::vector<FlatParameters::Entry>& entries = parameters.entries();
  const auto is_finite = [](double value) { return std::isfinite(value); };
  std::size_t first = 0;
  for (; first < entries.size(); ++first) {
    // Parts of the gradients lie where those of the values do.
    const Tensor& master = entries[first].master;
    const auto begin = own.begin() + (divided ? master.offset() : 0), end = begin + (divided ? master.size() : 0);
    const std::vector<double> whole = divided ? std::vector<double>() : grad_of(entries[first].value).to_doubles();
    if (!std::all_of(begin, end, is_finite) || !std::all_of(whole.begin(), whole.end(), is_finite)) break;
  }
  return divided ? static_cast<std::size_t>(session.ranks->least(static_cast<std::int64_t>(first))) : first;
}

}  // namespace

void throw_diverged(const Session& session, const std::string& what) {
  const bool travels_as_f16 = !session.ranks->alone() && session.config().dist.wire == DType::f16;
  const std::vector<FlatParameters::Entry>& entries = session.parameters->entries();
  const std::size_t first = first_not_finite(session);
  HEARTH_CHECK(DivergedError, first == entries.size(), what, "; the first gradient that is not finite is that of \"",
               entries[std::min(first, entries.size() - 1)].name,
               "\"; lower the learning rate, warm up longer, or clip the gradients",
               travels_as_f16 ? "; dist.wire f16 holds none beyond 65504, bf16 does" : "");
  throw DivergedError(join_text(what, "; all gradients are finite; lower the learning rate, or look at the data"));
}

Switches Session::switches() const {
  return {.deterministic = config().train.deterministic,
          .repeatable = config().train.repeatable,
          .tf32 = config().precision.allowed_tf32(),
          .threads = trains_ ? static_cast<int>(config().train.threads.value_or(0)) : 0};
}

data::Loader Session::make_train_loader(std::int64_t first_batch) const {
  return data.train_loader(config().train.batch_size, config().seed, device_.type, ranks->part(), first_batch,
                           plan.mixed_batches);
}

std::pair<std::string, data::DatasetPointer> Session::evaluation_part(const std::string& name) const {
  if (name.empty())
    return data.test ? std::pair{std::string("test"), data.test} : std::pair{std::string("valid"), data.valid};
  if (name == "train") return {name, data.train};
  if (name == "valid") return {name, data.valid};
  HEARTH_CHECK(UsageError, name == "test", "part \"", name, "\" of the data is not known; use train, valid or test");
  return {name, data.test};
}

std::pair<std::string, data::DatasetPointer> Session::validation_part() const {
  return evaluation_part(data.valid ? "valid" : "test");
}

std::string Session::monitored() const {
  const std::string& chosen = config().eval.monitor;
  return !chosen.empty() ? chosen : task->best_by_loss() ? "loss" : "accuracy";
}

Session::Comparable Session::comparable(const Meter& meter) const {
  const std::string name = monitored();
  if (name == "loss") return {meter.loss(), true};
  if (name == "accuracy") return {meter.accuracy(), false};
  Json record = Json::object();
  meter.metrics->report(record);
  return {record.at(name).as_number(), name == "mse" || name == "mae"};
}

void Session::check_monitor() const {
  std::vector<std::string> known{"loss"};
  if (task->has_accuracy()) known.emplace_back("accuracy");
  Json record = Json::object();
  if (const std::unique_ptr<Metrics> metrics = task->metrics()) metrics->report(record);
  for (const JsonMember& member : record.members())
    if (member.value.is_number()) known.push_back(member.key);
  const std::string name = monitored();
  HEARTH_CHECK(ConfigError, std::ranges::find(known, name) != known.end(), "/eval/monitor: evaluations have no \"",
               name, "\"; ", suggest(name, known, "they have"));
}

std::string Session::best_by() const { return data.valid ? "valid " + monitored() : "last checkpoint"; }

std::string Session::throughput_unit() const { return join_text(task->unit(), "/s"); }

std::int64_t Session::steps_between_logs() const {
  if (const auto& chosen = config().log.every_steps) return *chosen;
  constexpr std::int64_t most = 50, lines = 20;
  return std::clamp<std::int64_t>(std::min(plan.total_steps / lines, static_cast<std::int64_t>(plan.steps_per_epoch)),
                                  1, most);
}

void Session::use_averaged_weights() {
  if (ema && !ema->in_use()) ema->swap();
}

}  // namespace hearth::train
