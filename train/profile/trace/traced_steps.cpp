// SPDX-License-Identifier: Apache-2.0
#include "train/profile/trace/traced_steps.h"

#include "core/io/file.h"
#include "core/run_on.h"
#include "train/profile/trace/step_tracer.h"

namespace hearth::train {
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
    wait_for(session_.device());
  });
  if (!tracer_->done()) return;
  write();
  tracer_.reset();
}

void TracedSteps::write() {
  const DeviceActivity& quickest = tracer_->quickest();
  const ProfileLimits limits{peak_.gbs, peak_.tflops, peak_.gbs > 0 ? "the data sheet's" : "no known"};
  write_file_synced(folder_.file("device_profile.json"),
                    to_text(device_profile(quickest.spans, quickest.asked, limits)));
}

TracedSteps::TracedSteps(Session& session, RunFolder& folder, Progress& progress, const DevicePeak& peak)
    : session_(session), folder_(folder), peak_(peak) {
  if (!session.config().log.profile || !folder.writes()) return;
  if (const std::string reason = why_not_traced(session); !reason.empty())
    progress.line("profile: steps are not watched kernel by kernel: " + reason);
  else
    tracer_ = std::make_unique<StepTracer>();
}
TracedSteps::~TracedSteps() = default;

}  // namespace hearth::train
