// SPDX-License-Identifier: Apache-2.0
#include "train/hook.h"

namespace hearth::train {

void Hook::register_state(State&, const std::string&) {}
double Hook::lr(const Session&, std::int64_t, double lr) const { return lr; }
void Hook::before_step(Session&, std::span<const data::Batch>) {}
void Hook::after_step(Session&, const StepResult&) {}
void Hook::after_epoch(Session&, std::int64_t) {}
void Hook::after_evaluation(Session&, const std::string&, const Meter&) {}
void Hook::after_checkpoint(const Session&, const std::string&) {}

HookRegistry& hooks() {
  static HookRegistry registry("hook", "What a program does between the steps of a run; the program adds the types.");
  return registry;
}

}  // namespace hearth::train
