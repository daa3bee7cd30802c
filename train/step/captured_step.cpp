// SPDX-License-Identifier: Apache-2.0
#include "train/step/captured_step.h"

#include "core/run_on.h"
#include "train/step/ranks.h"

namespace hearth::train {
namespace {

std::unique_ptr<CapturedStep> make_captured_step(cpu::Stream&, Session& session) {
  throw UsageError(
      join_text("captured step: the run computes on ", session.device(), "; only CUDA devices replay steps"));
}

}  // namespace

std::unique_ptr<CapturedStep> make_captured_step(Session& session) {
  return with_stream(session.device(), [&](auto& stream) { return make_captured_step(stream, session); });
}

std::string why_not_replayed(const Session& session) {
  const TrainOptions& train = session.config().train;
  if (!train.graph.value_or(true)) return "train.graph is false";
  if (!session.ranks->alone() && !session.ranks->group().device().is_cuda())
    return join_text(session.ranks->group().backend(), " sums gradients on the host");
  if (session.parameters->shards() != nullptr) return "ranks update a part of the weights each (dist.zero)";
  if (!session.ranks->alone() && session.config().dist.sync_batch_norm)
    return "batch normalisation waits for all ranks (dist.sync_batch_norm)";
  for (const NamedHook& one : session.hooks())
    if (!train.graph && !one.hook->allows_replay())
      return join_text("the hook \"", one.name,
                       "\" may change what a step does (train.graph true records them anyway)");
  return "";
}

}  // namespace hearth::train
