// SPDX-License-Identifier: Apache-2.0
#include "train/memory/rank_memory.h"

#include "core/error.h"

namespace hearth::train {

namespace {

/// Elements of the f32 values that a model with low-precision weights takes itself, with the gaps behind them.
std::int64_t wide_elements(const FlatParameters& parameters) {
  const std::vector<FlatParameters::Entry>& entries = parameters.entries();
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (entries[i].value.dtype() == parameters.values().dtype())
      sum += (i + 1 < entries.size() ? entries[i + 1].begin : parameters.grads().size()) - entries[i].begin;
  return sum;
}

}  // namespace

std::vector<RankStates> states_of_ranks(const Session& session, int ranks) {
  const FlatParameters& parameters = *session.parameters;
  const auto element = static_cast<std::int64_t>(size_of(parameters.values().dtype()));
  const bool divides = session.config().dist.zero == 1,
             divides_values = divides && session.config().precision.level == PrecisionLevel::O2;
  const std::vector<std::int64_t> cuts = parameters.even_cuts(ranks);
  std::vector<RankStates> result;
  for (std::size_t rank = 0; rank + 1 < cuts.size(); ++rank) {
    const std::int64_t elements = divides ? cuts[rank + 1] - cuts[rank] : parameters.values().size();
    const std::int64_t values = divides_values ? elements + wide_elements(parameters) : parameters.values().size();
    result.push_back(
        {values * element, elements * element * session.optimizer->moments(), session.ema ? elements * element : 0});
  }
  return result;
}

std::vector<MemoryNeed> memory_of_ranks(const Session& session, const StepMemory& memory, std::int64_t batch,
                                        int ranks) {
  HEARTH_CHECK(
      ConfigError, !session.config().dist.compress,
      "/dist/compress: a plan for several ranks counts neither "
      "what a rank keeps of compressed gradients nor the bytes that it sends; set dist.compress to null for it");
  const MemoryNeed whole = memory.at((batch + ranks - 1) / ranks);
  const std::int64_t values =
      session.parameters->values().size() * static_cast<std::int64_t>(size_of(session.parameters->values().dtype()));
  std::vector<MemoryNeed> needs;
  for (const RankStates& states : states_of_ranks(session, ranks)) {
    MemoryNeed need = whole;
    const std::int64_t saved_of_values = values - states.values,
                       saved_of_optimizer = values * session.optimizer->moments() - states.optimizer,
                       saved_of_averages = (session.ema ? values : 0) - states.averages;
    need.parameters -= saved_of_values;
    need.optimizer -= saved_of_optimizer;
    need.averages -= saved_of_averages;
    need.peak -= saved_of_values + saved_of_optimizer + saved_of_averages;
    need.reserved -= saved_of_values + saved_of_optimizer + saved_of_averages;
    needs.push_back(need);
  }
  return needs;
}

}  // namespace hearth::train
