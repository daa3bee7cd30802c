// SPDX-License-Identifier: Apache-2.0
#include "train/step/captured_step.h"

#include "core/build.h"
#include "train/step/ranks.h"
#if HEARTH_HAS_CUDA
#include <algorithm>

#include "core/cuda/graph.h"
#include "train/step/cuda/feed.h"
#endif

namespace hearth::train {

#if HEARTH_HAS_CUDA
namespace {

// Enough for every plan and every buffer that is made at first use to be there.
constexpr int steps_before_first = 2;
constexpr int steps_before_others = 1;
// Of a shape to be recorded.
constexpr int max_failures = 2;

// What a rank can do with a step, and all ranks the least of these.
enum Ability : std::int64_t { never_replays, does_not_replay, replays };

/// All tensors of all batches, and `weights` if they are defined.
std::vector<Tensor> tensors_of(std::span<const data::Batch> batches, const Tensor& weights) {
  std::vector<Tensor> tensors;
  if (weights.defined()) tensors.push_back(weights);
  for (const data::Batch& batch : batches)
    for (const data::Batch::Named& one : batch.tensors()) tensors.push_back(one.tensor.contiguous());
  return tensors;
}

/// Batches of the same shapes on the device, uninitialised.
std::vector<data::Batch> inputs_for(std::span<const data::Batch> batches, Device device) {
  std::vector<data::Batch> inputs;
  for (const data::Batch& batch : batches)
    inputs.push_back(batch.map(
        [&](const data::Batch::Named& one) { return Tensor::empty(one.tensor.shape(), one.tensor.dtype(), device); }));
  return inputs;
}

}  // namespace

/// Steps of one shape, and what their recorded work refers to.
struct CapturedStep::Recorded {
  Recorded(std::span<const data::Batch> batches, Device device, const Ranks& ranks)
      : inputs(inputs_for(batches, device)),
        part(ranks.step()),
        weights(part.weights.defined() ? Tensor::empty(part.weights.shape(), DType::f64, device) : Tensor()),
        targets(tensors_of(inputs, weights)) {}

  /// Where the device counts labels itself, their number is no part of what is recorded.
  bool fits(std::span<const data::Batch> batches, bool device_counts, const Ranks& ranks) const {
    return part.same_but_for_weights(ranks.step()) &&
           std::equal(inputs.begin(), inputs.end(), batches.begin(), batches.end(),
                      [&](const data::Batch& mine, const data::Batch& other) {
                        return (device_counts || mine.counted == other.counted) && same_shapes(mine, other);
                      });
  }

  std::vector<data::Batch> inputs;
  StepPart part;                ///< of a rank
  Tensor weights;               ///< of its pieces, or undefined
  std::vector<Tensor> targets;  ///< all of these
  int eager_steps = 0;
  int failures = 0;  ///< to be recorded
  std::unique_ptr<cuda::Graph> graph;
};

/// All graphs share one arena: they run one after the other, and nothing of a step outlives it. It goes last, because
/// the graphs hold its addresses.
struct CapturedStep::Recordings {
  explicit Recordings(Device device) : arena(device) {}

  cuda::Arena arena;
  std::vector<std::unique_ptr<Recorded>> all;
};

CapturedStep::CapturedStep(Session& session) : session_(session) {
  HEARTH_CHECK(UsageError, session.device().is_cuda(), "captured step: the run computes on ", session.device(),
               "; only CUDA devices replay steps");
}

StepResult CapturedStep::run(std::span<const data::Batch> given) {
  std::vector<data::Batch> held;
  const std::span<const data::Batch> batches = as_loaded(session_, given, held);
  if (recordings_ == nullptr) recordings_ = std::make_unique<Recordings>(session_.device());
  std::vector<std::unique_ptr<Recorded>>& all = recordings_->all;
  const bool device_counts = session_.loss.ignored_label.has_value();
  const Ranks& ranks = *session_.ranks;
  auto found = std::find_if(all.begin(), all.end(),
                            [&](const auto& recorded) { return recorded->fits(batches, device_counts, ranks); });
  if (!unsupported_reason_.empty()) return training_step(session_, batches);
  if (found == all.end() && all.size() == max_graphs) {
    (void)all_replay(does_not_replay);
    // Within the arena, which has the memory.
    StepResult result;
    recordings_->arena.run([&] { result = training_step(session_, batches); });
    return result;
  }
  if (found == all.end()) {
    all.push_back(std::make_unique<Recorded>(batches, session_.device(), ranks));
    found = all.end() - 1;
  }
  return step(**found, batches);
}

bool CapturedStep::all_replay(std::int64_t ability) {
  ability = session_.ranks->least(ability);
  if (ability == never_replays && unsupported_reason_.empty())
    unsupported_reason_ = "another rank cannot record its steps";
  return ability == replays;
}

StepResult CapturedStep::step(Recorded& recorded, std::span<const data::Batch> batches) {
  std::int64_t samples = 0;
  for (const data::Batch& batch : batches) samples += batch.count();
  if (!session_.ranks->alone()) samples = session_.ranks->step().samples;
  session_.ranks->use_weights(recorded.weights);
  feed_of(session_).send(tensors_of(batches, session_.ranks->step().weights), recorded.targets);
  const StepResult result = begin_step(session_, samples);
  const auto work = [&] { run_step(session_, recorded.inputs); };
  cuda::Stream& stream = cuda::stream_of(session_.device());
  const bool is_first = &recorded == recordings_->all.front().get();
  if (recorded.graph == nullptr && recorded.failures < max_failures &&
      recorded.eager_steps >= (is_first ? steps_before_first : steps_before_others)) {
    try {
      recorded.graph = std::make_unique<cuda::Graph>(cuda::Graph::record(stream, recordings_->arena, work));
    } catch (const Error& error) {
      // Nothing of the step has run yet. The eager step that follows may give the arena what was missing.
      ++recorded.failures;
      if (recorded.failures == max_failures && graphs() == 0) unsupported_reason_ = error.what();
    }
  }
  if (all_replay(recorded.graph != nullptr ? replays : unsupported_reason_.empty() ? does_not_replay : never_replays)) {
    recorded.graph->launch(stream);
    nodes_ = recorded.graph->nodes();
  } else {
    recordings_->arena.run(work);
    ++recorded.eager_steps;
  }
  return result;
}

std::int64_t CapturedStep::graphs() const {
  if (recordings_ == nullptr) return 0;
  return std::count_if(recordings_->all.begin(), recordings_->all.end(),
                       [](const auto& recorded) { return recorded->graph != nullptr; });
}

#else

struct CapturedStep::Recordings {};

CapturedStep::CapturedStep(Session& session) : session_(session) {
  throw UsageError("captured step: this build of Hearth has no CUDA backend");
}
StepResult CapturedStep::run(std::span<const data::Batch> batches) { return training_step(session_, batches); }
std::int64_t CapturedStep::graphs() const { return 0; }

#endif

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

CapturedStep::~CapturedStep() = default;

}  // namespace hearth::train
