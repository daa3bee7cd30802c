// SPDX-License-Identifier: Apache-2.0
#include "train/profile/traced_steps.h"

#include "core/build.h"
#include "core/io/file.h"
#if HEARTH_HAS_CUDA
#include "core/cuda/stream.h"
#include "train/profile/cuda/step_tracer.h"
#endif

namespace hearth::train {

#if HEARTH_HAS_CUDA

struct TracedSteps::Tracer : StepTracer {};

namespace {

std::string why_not_traced(const Session& session) {
  if (session.device().is_cpu()) return "the run computes on the cpu, whose operations run.json has";
  return cuda::why_no_device_trace();
}

}  // namespace

void TracedSteps::run(const std::function<void()>& step) {
  if (!tracer_) return step();
  tracer_->run([&] {
    step();
    cuda::stream_of(session_.device()).wait();
  });
  if (!tracer_->done()) return;
  write();
  tracer_.reset();
}

void TracedSteps::write() {
  const DeviceStep& found = tracer_->quickest();
  const ProfileLimits limits{peak_.gbs, peak_.tflops, peak_.gbs > 0 ? "the data sheet's" : "no known"};
  write_file_synced(folder_.file("device_profile.json"), to_text(device_profile(found.spans, found.asked, limits)));
}

#else

struct TracedSteps::Tracer {};

namespace {
std::string why_not_traced(const Session&) { return "this build of Hearth has no CUDA backend"; }
}  // namespace

void TracedSteps::run(const std::function<void()>& step) { step(); }
void TracedSteps::write() {}

#endif

TracedSteps::TracedSteps(Session& session, RunFolder& folder, Progress& progress, const DevicePeak& peak)
    : session_(session), folder_(folder), peak_(peak) {
  if (!session.config().log.profile || !folder.writes()) return;
  if (const std::string reason = why_not_traced(session); !reason.empty())
    progress.line("profile: steps are not watched kernel by kernel: " + reason);
  else
    tracer_ = std::make_unique<Tracer>();
}
TracedSteps::~TracedSteps() = default;

}  // namespace hearth::train
