// SPDX-License-Identifier: Apache-2.0
// The checks and the step count around every update.
#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "core/io/printable.h"
#include "core/io/safetensors.h"
#include "optim/clip.h"
#include "optim/ema.h"

namespace hearth::optim {
namespace {

/// Under which save() lists the parameters in a file's metadata, a line each.
constexpr const char* parameters_note = "parameters";

/// "fc.weight [3, 4]" of each.
std::vector<std::string> lines_of(const FlatParameters& parameters) {
  std::vector<std::string> lines;
  for (const FlatParameters::Entry& entry : parameters.entries())
    lines.push_back(join_text(entry.name, ' ', entry.value.shape()));
  return lines;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// FileError if the file says that its state is of other parameters. Files of older versions do not say it.
void check_file(const FlatParameters& parameters, const std::string& path) {
  const SafetensorsFile file(path);
  const auto note = file.metadata().find(parameters_note);
  if (note == file.metadata().end()) return;
  const std::vector<std::string> there = lines_of(note->second), here = lines_of(parameters);
  for (std::size_t i = 0; i < std::max(there.size(), here.size()); ++i) {
    const std::string of_file = i < there.size() ? there[i] : "none", own = i < here.size() ? here[i] : "none";
    HEARTH_CHECK(FileError, of_file == own, path, ": the state of an optimizer of other parameters: parameter ", i,
                 " is ", printable(of_file), " there and ", own,
                 " here; load it into an optimizer of the model that it was saved with");
  }
}

}  // namespace

Optimizer::~Optimizer() = default;

Optimizer::Optimizer(FlatParameters& parameters, double base_lr, const GroupOptions& options, Ranges ranges)
    : parameters_(&parameters),
      parameters_alive_(parameters.lifetime()),
      plan_(parameters, options, ranges),
      sharded_(parameters.shards() != nullptr),
      base_lr_(base_lr) {
  set_lr(base_lr);
  const DType dtype = parameters.values().dtype();
  HEARTH_CHECK(DTypeError, dtype == DType::f32 || dtype == DType::f64, "optimizer: the parameters are ", dtype,
               "; they are f32 or f64");
}

void Optimizer::set_lr(double lr) {
  HEARTH_CHECK(ConfigError, std::isfinite(lr) && lr >= 0, "optimizer: learning rate ", lr,
               "; it is finite and at least 0");
  base_lr_ = lr;
}

void Optimizer::step(double lr, double grad_scale) {
  // What refuses the update does so before it counts.
  check_parameters();
  check_values();
  parameters_->begin_update(this);
  begin_step(lr, grad_scale);
  apply();
}

void Optimizer::check_parameters() const {
  HEARTH_CHECK(UsageError, !parameters_alive_.expired(),
               "optimizer: its FlatParameters are gone; they must live as long as it does");
}

void Optimizer::check_values() const {
  HEARTH_CHECK(
      UsageError, !Ema::holds_averages(*parameters_),
      "optimizer: update while the averages of an Ema are in use, which it would train in place of the weights; "
      "end the EmaScope, or swap back, first");
}

const FlatParameters& Optimizer::parameters() const {
  check_parameters();
  return *parameters_;
}

void Optimizer::zero_grad() {
  check_parameters();
  clip_ = 1.0;
  parameters_->zero_grads();
}

double Optimizer::clip_grad_norm(double max_norm) {
  check_parameters();
  const double norm = grad_norm(*parameters_);
  clip_ = clip_scale(norm, max_norm);
  return norm;
}

void Optimizer::begin_step(double lr, double grad_scale) {
  HEARTH_CHECK(UsageError, std::isfinite(lr) && lr >= 0, "optimizer: learning rate ", lr,
               "; it is finite and at least 0");
  HEARTH_CHECK(UsageError, std::isfinite(grad_scale), "optimizer: gradient scale ", grad_scale, " is not finite");
  check_values();
  prepare(lr, grad_scale * std::exchange(clip_, 1.0));
  ++steps_;
  ++begun_;
}

void Optimizer::abandon_step() {
  if (begun_ == applied_) return;
  --steps_;
  --begun_;
}

void Optimizer::apply(Ema* average) {
  HEARTH_CHECK(UsageError, begun_ > 0,
               "optimizer: apply() before begin_step(), which gives the update its learning rate");
  HEARTH_CHECK(UsageError, clip_ == 1.0,
               "optimizer: clip_grad_norm() after begin_step(), which takes the factor for the update; clip before it");
  check_parameters();
  check_values();
  const Shards* const shards = parameters_->shards();
  HEARTH_CHECK(UsageError, sharded_ == (shards != nullptr),
               "optimizer: updates were divided among ranks after it was made; make DataParallel first");
  HEARTH_CHECK(UsageError, shards == nullptr || can_shard(),
               "optimizer: updates are divided among ranks (zero), which this optimizer does not say it can do; leave "
               "zero out, or override can_shard()");
  parameters_->begin_update(this);
  applied_ = begun_;
  // Of all ranks' new values it is made afterwards.
  Copies copies{.low_precision = shards != nullptr ? Tensor() : parameters_->low_precision()};
  if (average != nullptr) {
    HEARTH_CHECK(UsageError, &average->parameters() == parameters_,
                 "optimizer: the moving average is of other parameters; make it of those of the optimizer");
    copies.average = average->average();
    copies.weight = &average->weight_for(begun_);
  }
  const Tensor values = parameters_->own_values(), grads = parameters_->own_grads();
  update({values, grads, copies, plan_, shards != nullptr ? shards->group : nullptr});
  for (const Tensor& written : {parameters_->values(), copies.low_precision, copies.average})
    if (written.defined()) written.storage()->bump_version();
  parameters_->end_update(this);
  parameters_->gather_values();
}

void Optimizer::check_eps(const char* op, double eps) const {
  const bool low_precision = parameters_->values().dtype() == DType::f32;
  const double least = low_precision ? std::numeric_limits<float>::min() : std::numeric_limits<double>::min();
  const double most = low_precision ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
  HEARTH_CHECK(ConfigError, eps >= least && eps <= most, op, ": eps ", eps, "; it is from ", least, " to ", most,
               ", as the weights are ", parameters_->values().dtype());
}

void Optimizer::register_state(State& state) {
  check_parameters();
  state.add("optimizer.steps", &steps_);
  if (schedule_ != nullptr) state.add("optimizer.skipped", &skipped_);
  const Shards* const shards = parameters_->shards();
  for (const NamedTensor& moment : moments_)
    shards != nullptr ? state.add_shard(moment.name, moment.tensor, *shards, {shards->total()})
                      : state.add(moment.name, moment.tensor);
}

void Optimizer::make_moment(const char* name, Tensor& moment) {
  const Tensor values = parameters_->own_values();
  moment = Tensor::zeros(values.shape(), values.dtype(), values.device());
  moments_.push_back({name, &moment});
}

void save(Optimizer& optimizer, const std::string& path) {
  std::string list;
  for (const std::string& line : lines_of(optimizer.parameters())) list += line + '\n';
  State state;
  optimizer.register_state(state);
  state.save(path, {{parameters_note, list}});
}

void load(Optimizer& optimizer, const std::string& path) {
  check_file(optimizer.parameters(), path);
  State state;
  optimizer.register_state(state);
  state.load(path, {"optimizer.skipped"});
}

}  // namespace hearth::optim
