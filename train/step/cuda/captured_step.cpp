// SPDX-License-Identifier: Apache-2.0
#include "train/step/captured_step.h"

#include <algorithm>

#include "core/cuda/graph.h"
#include "core/run_on.h"
#include "train/step/cuda/feed.h"
#include "train/step/ranks.h"

namespace hearth::train {
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
    for (const data::Batch::Named& named : batch.tensors()) tensors.push_back(named.tensor.contiguous());
  return tensors;
}

/// Batches of the same shapes on the device, uninitialised.
std::vector<data::Batch> inputs_for(std::span<const data::Batch> batches, Device device) {
  std::vector<data::Batch> inputs;
  for (const data::Batch& batch : batches)
    inputs.push_back(batch.map([&](const data::Batch::Named& named) {
      return Tensor::empty(named.tensor.shape(), named.tensor.dtype(), device);
    }));
  return inputs;
}

/// Steps of one shape, and what their recorded work refers to.
struct Recorded {
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
  int failures = 0;     ///< to be recorded
  bool worked = false;  ///< it was recorded once
  std::unique_ptr<cuda::Graph> graph;
};

class StepGraphs final : public CapturedStep {
 public:
  explicit StepGraphs(Session& session) : session_(session), arena_(session.device()) {}

  StepResult run(std::span<const data::Batch> batches) override;
  void record_anew() override;
  std::int64_t graphs() const override;

 private:
  StepResult step(Recorded& recorded, std::span<const data::Batch> batches);
  /// Whether this rank's step is replayed: that of all ranks is, or of none, as they compare their collectives unless
  /// they are replayed.
  bool all_replay(std::int64_t ability);

  Session& session_;
  // All graphs share one arena: they run one after the other, and nothing of a step outlives it. It goes last, because
  // the graphs hold its addresses.
  cuda::Arena arena_;
  std::vector<std::unique_ptr<Recorded>> all_;
};

StepResult StepGraphs::run(std::span<const data::Batch> batches) {
  std::vector<data::Batch> relabelled, padded;
  batches = as_loaded(session_, batches, relabelled);
  if (!unsupported_reason_.empty()) return training_step(session_, batches);
  for (const data::Batch& batch : batches) padded.push_back(data::with_spare_entries(batch));
  batches = padded;
  const bool device_counts = session_.loss.ignored_label.has_value();
  const Ranks& ranks = *session_.ranks;
  auto place = std::find_if(all_.begin(), all_.end(),
                            [&](const auto& recorded) { return recorded->fits(batches, device_counts, ranks); });
  if (place == all_.end() && all_.size() == max_graphs) {
    (void)all_replay(does_not_replay);
    // Within the arena, which has the memory.
    StepResult result;
    arena_.run([&] { result = training_step(session_, batches); });
    return result;
  }
  if (place == all_.end()) {
    all_.push_back(std::make_unique<Recorded>(batches, session_.device(), ranks));
    place = all_.end() - 1;
  }
  return step(**place, batches);
}

void StepGraphs::record_anew() {
  wait_for(session_.device());
  for (const auto& recorded : all_) {
    recorded->graph.reset();
    recorded->failures = 0;
  }
}

bool StepGraphs::all_replay(std::int64_t ability) {
  ability = session_.ranks->least(ability);
  if (ability == never_replays && unsupported_reason_.empty())
    unsupported_reason_ = "another rank cannot record its steps";
  return ability == replays;
}

StepResult StepGraphs::step(Recorded& recorded, std::span<const data::Batch> batches) {
  std::int64_t samples = 0;
  for (const data::Batch& batch : batches) samples += batch.count();
  if (!session_.ranks->alone()) samples = session_.ranks->step().samples;
  enter(session_, Phase::copy);
  session_.ranks->use_weights(recorded.weights);
  feed_of(session_).send(tensors_of(batches, session_.ranks->step().weights), recorded.targets);
  enter(session_, Phase::other);
  const StepResult result = begin_step(session_, samples);
  const auto work = [&] { run_step(session_, recorded.inputs); };
  cuda::Stream& stream = cuda::stream_of(session_.device());
  const bool is_first = &recorded == all_.front().get();
  if (recorded.graph == nullptr && recorded.failures < max_failures &&
      recorded.eager_steps >= (is_first ? steps_before_first : steps_before_others)) {
    try {
      recorded.graph = std::make_unique<cuda::Graph>(cuda::Graph::record(stream, arena_, work));
      recorded.worked = true;
    } catch (const Error& error) {
      // Nothing of the step has run yet. The eager step that follows may give the arena what was missing.
      ++recorded.failures;
      if (recorded.failures == max_failures && graphs() == 0 && !recorded.worked) unsupported_reason_ = error.what();
    }
  }
  if (all_replay(recorded.graph != nullptr ? replays : unsupported_reason_.empty() ? does_not_replay : never_replays)) {
    recorded.graph->launch(stream);
    nodes_ = recorded.graph->nodes();
  } else {
    arena_.run(work);
    ++recorded.eager_steps;
  }
  return result;
}

std::int64_t StepGraphs::graphs() const {
  return std::count_if(all_.begin(), all_.end(), [](const auto& recorded) { return recorded->graph != nullptr; });
}

}  // namespace

std::unique_ptr<CapturedStep> make_captured_step(cuda::Stream&, Session& session) {
  return std::make_unique<StepGraphs>(session);
}

}  // namespace hearth::train
