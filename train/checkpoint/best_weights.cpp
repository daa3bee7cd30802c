// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint/best_weights.h"

#include <algorithm>

#include "autograd/grad_mode.h"
#include "train/checkpoint/checkpoint_files.h"

namespace hearth::train {
namespace {

/// Why the set cannot be used; "" if it is whole.
std::string fault_of(const std::string& set) {
  try {
    verify_checkpoint(set, required_files());
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

BestWeightsScope::BestWeightsScope(Session& session, const std::string& checkpoint_folder)
    : session_(session), step_(session.position.step) {
  const std::int64_t best = session.position.best_step;
  if (!session.config().checkpoint.best || !session.data.valid || best < 0 || best == step_) return;
  const std::string set = checkpoint_folder + "/" + checkpoint_name(best);
  unavailable_ = fault_of(set);
  // Ranks of other machines may not see the folder.
  if (session.ranks->least(unavailable_.empty() ? 1 : 0) == 0 && unavailable_.empty())
    unavailable_ = set + " cannot be read by all ranks";
  if (!unavailable_.empty()) return;
  State averages;
  if (session.ema) session.ema->register_state(averages);
  save(session.model_state);
  save(averages);
  try {
    session.model_state.load(set + "/" + model_file);
    averages.load_part(set + "/" + state_file);
    session.parameters->refresh_low_precision();
  } catch (...) {
    put_back();
    throw;
  }
  step_ = best;
}

BestWeightsScope::~BestWeightsScope() {
  try {
    put_back();
  } catch (...) {
    // Another rank has failed, or the device; so does what comes next.
  }
}

void BestWeightsScope::save(const State& state) {
  for (const State::Entry& entry : state.entries()) {
    Saved saved{entry, {}, {}};
    if (entry.tensor != nullptr)
      saved.tensor = entry.tensor->device().is_cpu() ? entry.tensor->clone() : entry.tensor->to(Device{});
    else
      saved.number.assign(entry.bytes().begin(), entry.bytes().end());
    saved_.push_back(std::move(saved));
  }
}

void BestWeightsScope::put_back() {
  if (saved_.empty()) return;
  const NoGrad values_only;
  for (const Saved& saved : saved_)
    if (saved.entry.tensor != nullptr)
      saved.entry.tensor->copy_from(saved.tensor);
    else
      std::copy(saved.number.begin(), saved.number.end(), saved.entry.bytes().begin());
  saved_.clear();
  session_.parameters->refresh_low_precision();
}

}  // namespace hearth::train
