// SPDX-License-Identifier: Apache-2.0
#include "train/memory/rank_memory.h"

#include <algorithm>

#include "core/error.h"
#include "dist/process_group.h"

namespace hearth::train {

namespace {

/// Elements of the f32 values that a model with low-precision weights takes itself, with the gaps behind them.
std::int64_t wide_elements(const FlatParameters& parameters) {
  const std::vector<FlatParameters::Entry>& entries = parameters.entries();
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (entries[i].value.dtype() == parameters.values().dtype())
      sum += (i + 1 < entries.size() ? entries[i + 1].begin : parameters.total()) - entries[i].begin;
  return sum;
}

/// The most bytes that are in use while a session is made anew, after those of the one before it are free.
class StartWatch final : public MemoryObserver {
 public:
  explicit StartWatch(Device device)
      : device_(device), now_(memory_of(device).statistics().in_use), least_(now_), most_(now_) {}
  void allocated(Device device, const void*, std::size_t bytes) override {
    if (device == device_) most_ = std::max(most_, now_ += static_cast<std::int64_t>(bytes));
  }
  void freed(Device device, const void*, std::size_t bytes) noexcept override {
    if (device != device_) return;
    now_ -= static_cast<std::int64_t>(bytes);
    if (now_ < least_) least_ = most_ = now_;
  }
  std::int64_t peak() const { return most_; }

 private:
  Device device_;
  std::int64_t now_, least_, most_;
};

/// Elements that each rank keeps.
std::vector<std::int64_t> elements_of_ranks(const Session& session, int ranks) {
  const FlatParameters& parameters = *session.parameters;
  const std::int64_t zero = session.config().dist.zero;
  std::vector<std::int64_t> elements(static_cast<std::size_t>(ranks), zero == 0 ? parameters.total() : 0);
  if (zero == 0) return elements;
  const std::vector<std::int64_t> cuts =
      zero == 1 ? parameters.even_cuts(ranks) : parameters.block_cuts(ranks, block_elements(session.config().dist));
  for (std::size_t k = 0; k + 1 < cuts.size(); ++k) elements[k % elements.size()] += cuts[k + 1] - cuts[k];
  return elements;
}

}  // namespace

std::vector<RankStates> states_of_ranks(const Session& session, int ranks) {
  const FlatParameters& parameters = *session.parameters;
  const auto element = static_cast<std::int64_t>(size_of(parameters.grads().dtype()));
  const std::int64_t zero = session.config().dist.zero, total = parameters.total();
  const bool is_low = session.config().precision.level == PrecisionLevel::O2 && parameters.low_precision().defined();
  std::vector<RankStates> result;
  for (const std::int64_t elements : elements_of_ranks(session, ranks)) {
    // Beside its part a rank has what the model computes with.
    const std::int64_t computed = is_low && zero > 0 ? wide_elements(parameters)
                                  : zero == 2        ? total
                                                     : 0,
                       updated = zero > 1 || is_low ? elements : total;
    result.push_back({(updated + computed) * element, (zero > 1 ? elements : total) * element,
                      elements * element * session.optimizer->moments(), session.ema ? elements * element : 0});
  }
  return result;
}

std::vector<MemoryNeed> memory_of_ranks(Session& session, DeviceType target, int ranks) {
  HEARTH_CHECK(
      ConfigError, !session.config().dist.compress,
      "/dist/compress: a plan for several ranks counts neither "
      "what a rank keeps of compressed gradients nor the bytes that it sends; set dist.compress to null for it");
  HEARTH_CHECK(ConfigError, session.config().dist.zero < 2 || target == DeviceType::cpu,
               "/dist/zero: ", session.config().dist.zero,
               " divides gradients on the CPU, and the plan is for a GPU; use zero 1");
  const std::vector<RankStates> states = states_of_ranks(session, ranks);
  const auto bytes_of = [](const RankStates& of) { return of.values + of.gradients + of.optimizer + of.averages; };
  const auto most = std::max_element(states.begin(), states.end(), [&](const RankStates& a, const RankStates& b) {
    return bytes_of(a) < bytes_of(b);
  });
  const auto group = dist::imagined_group(static_cast<int>(most - states.begin()), ranks);
  StartWatch start(session.device());
  MemoryNeed largest;
  try {
    {
      const MemoryObserverScope scope(start);
      session.restart(group.get());
    }
    const std::int64_t cuts = session.ranks->part().cuts;
    largest = StepMemory(session, batches_to_measure(session), target).at((largest_rows(session) + cuts - 1) / cuts);
  } catch (...) {
    session.restart(nullptr);  // it outlives the group
    throw;
  }
  session.restart(nullptr);
  // The whole model is there before a rank keeps a part of it.
  const std::int64_t at_start = target == session.device().type ? start.peak() : 0;
  std::vector<MemoryNeed> needs;
  for (const RankStates& of : states) {
    MemoryNeed need = largest;
    need.parameters -= most->values - of.values;
    need.gradients -= most->gradients - of.gradients;
    need.optimizer -= most->optimizer - of.optimizer;
    need.averages -= most->averages - of.averages;
    need.peak -= bytes_of(*most) - bytes_of(of);
    need.reserved -= bytes_of(*most) - bytes_of(of);
    need.peak = std::max(need.peak, at_start);
    need.reserved = std::max(need.reserved, at_start);
    needs.push_back(need);
  }
  return needs;
}

}  // namespace hearth::train
