// SPDX-License-Identifier: Apache-2.0
#include "train/profile/work_log.h"

#include <utility>

#include "core/cuda/counters.h"
#include "core/error.h"
#include "core/profiler.h"

namespace hearth::train {
namespace {

struct Listening {
  std::vector<AskedWork> asked;
  double flops = 0;  ///< of this thread, when the latest work was asked for
};
Listening* listening = nullptr;

void note(const cuda::Work& work) {
  const double flops = profiler::total_flops();
  listening->asked.push_back(
      {work.name, current_origin(), work.bytes, flops - listening->flops, work.kernel != nullptr});
  listening->flops = flops;
}

}  // namespace

WorkLog::WorkLog() {
  HEARTH_CHECK(UsageError, listening == nullptr, "work log: another one is at work");
  listening = new Listening{{}, profiler::total_flops()};
  cuda::listen_to_work(note);
}
WorkLog::~WorkLog() {
  cuda::listen_to_work(nullptr);
  delete std::exchange(listening, nullptr);
}
std::vector<AskedWork> WorkLog::take() { return std::exchange(listening->asked, {}); }

}  // namespace hearth::train
