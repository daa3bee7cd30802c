// SPDX-License-Identifier: Apache-2.0
// An exponential moving average of the weights.
#include "optim/ema.h"

#include <mutex>
#include <set>
#include <utility>

#include "core/run_on.h"

namespace hearth::optim {

namespace {

void exchange_values(const Tensor& a, const Tensor& b) {
  run_on(a.device(), [&](auto& stream) { kernels::exchange(stream, a, b); });
  a.storage()->bump_version();
  b.storage()->bump_version();
}

void take_in(const Tensor& average, const Tensor& values, const Staged<double>& weight) {
  run_on(values.device(), [&](auto& stream) { kernels::blend(stream, average, values, weight); });
  average.storage()->bump_version();
}

/// Parameters that hold averages, once for each Ema that is in use. Ranks may be threads of one process.
struct Holders {
  std::mutex mutex;
  std::multiset<const FlatParameters*> parameters;
};

// Leaked, for what lives as long as the process.
Holders& holders() {
  static Holders& made = *new Holders;
  return made;
}

void note_holder(const FlatParameters& parameters, bool holds) {
  Holders& all = holders();
  const std::lock_guard lock(all.mutex);
  if (holds)
    all.parameters.insert(&parameters);
  else
    all.parameters.erase(all.parameters.find(&parameters));
}

}  // namespace

Ema::~Ema() {
  if (in_use_) note_holder(parameters_, false);
}

bool Ema::holds_averages(const FlatParameters& parameters) {
  Holders& all = holders();
  const std::lock_guard lock(all.mutex);
  return all.parameters.contains(&parameters);
}

Ema::Ema(FlatParameters& parameters, std::vector<NamedTensor> buffers, const EmaOptions& options)
    : parameters_(parameters),
      parameters_alive_(parameters.lifetime()),
      average_(parameters.own_values().clone()),
      options_(options),
      weight_(average_.device()) {
  HEARTH_CHECK(ConfigError, options.decay >= 0 && options.decay < 1, "ema: decay ", options.decay,
               " is outside [0, 1)");
  for (NamedTensor& buffer : buffers) {
    HEARTH_CHECK(UsageError, buffer.tensor != nullptr && buffer.tensor->defined(), "ema: buffer \"", buffer.name,
                 "\" has no tensor; give the buffers() of a module, or the address of a tensor that has values");
    const DType dtype = buffer.tensor->dtype();
    if (!is_floating(dtype)) continue;
    HEARTH_CHECK(DTypeError, dtype == DType::f32 || dtype == DType::f64, "ema: buffer \"", buffer.name, "\" is ", dtype,
                 "; averages are f32 or f64, so keep it in one of these");
    buffer_averages_.push_back(buffer.tensor->clone());
    buffers_.push_back(std::move(buffer));
  }
}

void Ema::check_parameters() const {
  HEARTH_CHECK(UsageError, !parameters_alive_.expired(),
               "ema: its FlatParameters are gone; they must live as long as it does");
  HEARTH_CHECK(UsageError, !parameters_.lifetime().expired(),
               "ema: its FlatParameters were moved to another object after it was made; make it of that");
}

void Ema::restart() {
  check_parameters();
  HEARTH_CHECK(UsageError, !in_use_, "ema: restart while the averages are in use; swap back first");
  average_.copy_from(parameters_.own_values());
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffer_averages_[i].copy_from(*buffers_[i].tensor);
  updates_ = 0;
}

void Ema::begin_update() {
  check_parameters();
  HEARTH_CHECK(UsageError, !in_use_, "ema: update while the averages are in use; swap back first");
  weight_.set(weight_of(options_, updates_));
  ++updates_;
  begun_ = true;
}

void Ema::abandon_update() {
  if (!begun_) return;
  --updates_;
  begun_ = false;
}

const Staged<double>& Ema::weight_for(std::int64_t update) {
  HEARTH_CHECK(UsageError, !in_use_, "ema: update while the averages are in use; swap back first");
  HEARTH_CHECK(UsageError, begun_ || update == blended_for_,
               "ema: no update was begun since the last one; call begin_update() in each step, before the optimizer's "
               "apply()");
  begun_ = false;
  blended_for_ = update;
  return weight_;
}

void Ema::apply() {
  check_parameters();
  begun_ = false;
  take_in(average_, parameters_.own_values(), weight_);
  apply_to_buffers();
}

void Ema::apply_to_buffers() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) take_in(buffer_averages_[i], *buffers_[i].tensor, weight_);
}

void Ema::swap() {
  check_parameters();
  // First, as it may find no memory.
  note_holder(parameters_, !in_use_);
  in_use_ = !in_use_;
  exchange_values(average_, parameters_.own_values());
  for (std::size_t i = 0; i < buffers_.size(); ++i) exchange_values(buffer_averages_[i], *buffers_[i].tensor);
  parameters_.shards() != nullptr ? parameters_.gather_values() : parameters_.refresh_low_precision();
}

EmaScope::EmaScope(Ema& ema) : ema_(ema) {
  HEARTH_CHECK(
      UsageError, !ema_.in_use(),
      "ema: the averages are in use already, and a second scope would give the weights back; use one EmaScope at "
      "a time, and ask in_use()");
  HEARTH_CHECK(UsageError, !Ema::holds_averages(ema_.parameters()),
               "ema: the averages of another Ema are in use in these parameters; end its scope first");
  ema_.swap();
}

EmaScope::~EmaScope() {
  try {
    ema_.swap();
  } catch (const PeerError&) {
    // Of ranks that have a part of the averages each, one is gone: the run ends.
  } catch (const UsageError&) {
    // The parameters are gone.
  }
}

void Ema::register_state(State& state) {
  check_parameters();
  state.before_reading([this] {
    HEARTH_CHECK(
        UsageError, !in_use_,
        "ema: a state is read while the averages are in use, so that weights and averages are exchanged; end the "
        "EmaScope, or swap back, first");
  });
  state.add("ema.updates", &updates_);
  const Shards* const shards = parameters_.shards();
  shards != nullptr ? state.add_shard("ema.average", &average_, *shards, {shards->total()})
                    : state.add("ema.average", &average_);
  for (std::size_t i = 0; i < buffers_.size(); ++i) state.add("ema." + buffers_[i].name, &buffer_averages_[i]);
}

}  // namespace hearth::optim
