// SPDX-License-Identifier: Apache-2.0
// Hooks: code of a program that a run calls between its steps, on the host; with train.graph between replayed steps.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/config/config.h"
#include "core/io/state.h"
#include "data/batch.h"

namespace hearth::train {

class Session;
struct Meter;
struct StepResult;

/// What a run calls. Each function does nothing unless it is overridden.
///
/// The order within a step: lr(), before_step(), the update, after_step(), after_epoch() where an epoch ends, then for
/// each evaluation that is due after_evaluation(), then, where a checkpoint is due, after_checkpoint(). Several hooks
/// are called in the order in which they were added. What a hook throws ends the run, whose status is "failed"; it can
/// go on from its last checkpoint. All but after_checkpoint() may call Session::request_stop(). With several ranks each
/// has hooks of its own, which must decide alike: the meters and metrics they are given are those of all ranks.
class HEARTH_API Hook {
 public:
  virtual ~Hook() = default;

  /// Whether a step that is recorded once and replayed does what it would do by itself. Not so where the hook freezes
  /// parameters, or changes what the host tells a loss or a layer. With train.graph null steps are replayed only if all
  /// hooks say so.
  virtual bool allows_replay() const { return false; }
  /// Registers what the hook carries from one step to the next, so that a resumed run goes on with the same bits; names
  /// begin with `prefix`. Called once, before a checkpoint is loaded; again where Session::restart() makes a new state.
  virtual void register_state(State& state, const std::string& prefix);
  /// The learning rate of step 0, 1, ...; `lr` is what the schedule and the hooks before this one make of it. It may
  /// be called several times for a step.
  virtual double lr(const Session& session, std::int64_t step, double lr) const;
  /// `batches`, on the host, are those whose gradients make the coming update.
  virtual void before_step(Session& session, std::span<const data::Batch> batches);
  /// Session::position.step counts the step. Session::read_interval() brings the loss up to date and waits for the
  /// device.
  virtual void after_step(Session& session, const StepResult& step);
  /// `epoch` epochs are over.
  virtual void after_epoch(Session& session, std::int64_t epoch);
  /// `split` was evaluated: that of Session::validation_part(), and at the end of a run "test". Comes before the
  /// checkpoint of a new best evaluation.
  virtual void after_evaluation(Session& session, const std::string& split, const Meter& meter);
  /// The checkpoint of this step is in the folder `set`. It does not hold what this function changes in the hook.
  virtual void after_checkpoint(const Session& session, const std::string& set);
};

using HookRegistry = Registry<std::unique_ptr<Hook>()>;
/// Hooks by the type that "hooks" of a configuration gives; a program adds its own.
HEARTH_API HookRegistry& hooks();

}  // namespace hearth::train
