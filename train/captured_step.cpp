// SPDX-License-Identifier: Apache-2.0
#include "hearth/train/captured_step.h"

#include "hearth/core/build.h"
#if HEARTH_HAS_CUDA
#include <iterator>

#include "hearth/core/cuda/feed.h"
#include "hearth/core/cuda/graph.h"
#endif

namespace hearth::train {

#if HEARTH_HAS_CUDA
namespace {

// Enough for every plan and every buffer that is made at first use to be there.
constexpr int steps_before_recording = 2;
constexpr int misfits_before_declining = 8;

constexpr Tensor data::Batch::*batch_parts[] = {&data::Batch::images, &data::Batch::labels, &data::Batch::erased,
                                                &data::Batch::share,  &data::Batch::input,  &data::Batch::source,
                                                &data::Batch::target};
constexpr Tensor StepInput::*input_parts[] = {&StepInput::images, &StepInput::labels, &StepInput::erased,
                                              &StepInput::share,  &StepInput::input,  &StepInput::source,
                                              &StepInput::target};
constexpr std::size_t part_count = std::size(batch_parts);

/// All parts of all batches; absent where a batch has none.
std::vector<Tensor> tensors_of(std::span<const data::Batch> batches) {
  std::vector<Tensor> parts;
  for (const data::Batch& batch : batches)
    for (const auto part : batch_parts)
      parts.push_back((batch.*part).defined() ? (batch.*part).contiguous() : Tensor());
  return parts;
}

std::vector<Tensor> present(const std::vector<Tensor>& parts) {
  std::vector<Tensor> found;
  for (const Tensor& part : parts)
    if (part.defined()) found.push_back(part);
  return found;
}

std::vector<Tensor> places_for(const std::vector<Tensor>& parts, Device device) {
  std::vector<Tensor> places;
  for (const Tensor& part : parts)
    places.push_back(part.defined() ? Tensor::empty(part.shape(), part.dtype(), device) : Tensor());
  return places;
}

}  // namespace

/// What the recorded work refers to. The arena goes last: the graph holds its addresses.
struct CapturedStep::Recorded {
  Recorded(Device device, std::vector<Tensor> where, std::span<const data::Batch> batches)
      : arena(device), places(std::move(where)), feed(present(places)) {
    inputs.resize(places.size() / part_count);
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].counted = batches[i].counted;
    for (std::size_t i = 0; i < places.size(); ++i) inputs[i / part_count].*input_parts[i % part_count] = places[i];
  }

  bool fits(const std::vector<Tensor>& parts, std::span<const data::Batch> batches) const {
    bool same = parts.size() == places.size();
    // How many labels count is part of what is recorded.
    for (std::size_t i = 0; same && i < inputs.size(); ++i) same = inputs[i].counted == batches[i].counted;
    for (std::size_t i = 0; same && i < parts.size(); ++i) {
      same = parts[i].defined() == places[i].defined();
      if (same && parts[i].defined())
        same = parts[i].shape() == places[i].shape() && parts[i].dtype() == places[i].dtype();
    }
    return same;
  }

  cuda::Arena arena;
  std::vector<Tensor> places;
  cuda::Feed feed;
  std::vector<StepInput> inputs;
  std::unique_ptr<cuda::Graph> graph;
};

CapturedStep::CapturedStep(Session& session) : session_(session) {
  HEARTH_CHECK(UsageError, session.device().is_cuda(), "captured step: the run computes on ", session.device(),
               "; only CUDA devices replay steps");
}

StepResult CapturedStep::run(std::span<const data::Batch> batches) {
  const std::vector<Tensor> parts = tensors_of(batches);
  if (recorded_ == nullptr)
    recorded_ = std::make_unique<Recorded>(session_.device(), places_for(parts, session_.device()), batches);
  Recorded& recorded = *recorded_;
  const bool fits = recorded.fits(parts, batches);
  if (!fits && recorded.graph == nullptr && declined_.empty() && ++misfits_ == misfits_before_declining)
    declined_ = join_text("batches differ in shape, or in how many of their labels count, from the first of the run: ",
                          misfits_, " of ", misfits_ + eager_steps_, " steps could not be recorded");
  if (!declined_.empty() || !fits) return training_step(session_, batches);

  std::int64_t samples = 0;
  for (const data::Batch& batch : batches) samples += count_of(batch);
  recorded.feed.send(present(parts));
  const StepResult result = begin_device_step(session_, samples);
  const auto work = [&] { run_device_step(session_, recorded.inputs); };
  cuda::Stream& stream = cuda::stream_of(session_.device());
  if (recorded.graph == nullptr && eager_steps_ == steps_before_recording) {
    try {
      recorded.graph = std::make_unique<cuda::Graph>(cuda::Graph::record(stream, recorded.arena, work));
    } catch (const Error& error) {
      // Nothing of the step has run yet.
      declined_ = error.what();
    }
  }
  if (recorded.graph != nullptr) {
    recorded.graph->launch(stream);
  } else {
    recorded.arena.run(work);
    ++eager_steps_;
  }
  return result;
}

std::int64_t CapturedStep::nodes() const {
  return recorded_ != nullptr && recorded_->graph != nullptr ? recorded_->graph->nodes() : 0;
}

#else

struct CapturedStep::Recorded {};

CapturedStep::CapturedStep(Session& session) : session_(session) {
  throw UsageError("captured step: this build of Hearth has no CUDA backend");
}
StepResult CapturedStep::run(std::span<const data::Batch> batches) { return training_step(session_, batches); }
std::int64_t CapturedStep::nodes() const { return 0; }

#endif

CapturedStep::~CapturedStep() = default;

}  // namespace hearth::train
