// SPDX-License-Identifier: Apache-2.0
#include "train/profile/work_log.h"

#include <map>
#include <utility>

#include "core/cuda/counters.h"
#include "core/error.h"
#include "core/profiler.h"

namespace hearth::train {

class WorkLog::Listener final : public cuda::WorkListener {
 public:
  explicit Listener(const PhaseMeter* phases) : phases_(phases) {}
  void asked(const cuda::Work& work) override {
    const double flops = profiler::total_flops();
    (recording_ ? recorded_ : asked_)
        .push_back({work.name, current_origin(), work.bytes, flops - flops_, work.kernel != nullptr,
                    phases_ == nullptr ? std::nullopt : phases_->phase()});
    flops_ = flops;
  }
  void begin_recording() override { recording_ = true; }
  void end_recording(std::int64_t graph) override {
    recording_ = false;
    std::vector<AskedWork> works = std::exchange(recorded_, {});
    if (graph != 0) graphs_[graph] = std::move(works);
  }
  void replayed(std::int64_t graph) override {
    const auto known = graphs_.find(graph);
    if (known != graphs_.end()) asked_.insert(asked_.end(), known->second.begin(), known->second.end());
  }
  std::vector<AskedWork> take() { return std::exchange(asked_, {}); }

 private:
  const PhaseMeter* phases_;
  std::vector<AskedWork> asked_, recorded_;
  std::map<std::int64_t, std::vector<AskedWork>> graphs_;
  bool recording_ = false;
  double flops_ = profiler::total_flops();  ///< of this thread, when the latest work was asked for
};

WorkLog::WorkLog(const PhaseMeter* phases) : listener_(std::make_unique<Listener>(phases)) {
  HEARTH_CHECK(UsageError, cuda::work_listener() == nullptr, "work log: another one is at work");
  cuda::listen_to_work(listener_.get());
}
WorkLog::~WorkLog() { cuda::listen_to_work(nullptr); }
std::vector<AskedWork> WorkLog::take() { return listener_->take(); }

}  // namespace hearth::train
