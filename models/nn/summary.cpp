// SPDX-License-Identifier: Apache-2.0
// An observer that writes one row a call.
#include "models/nn/summary.h"

#include <chrono>

#include "autograd/grad_mode.h"
#include "core/profiler.h"

namespace hearth::nn {

namespace {

class Reporter final : public CallObserver {
 public:
  void before(const Module& module) override {
    open_.push_back(rows_.size());
    ModuleReport row;
    row.path = module.path();
    row.type = module.type_name();
    row.depth = module.depth();
    row.parameters = module.parameter_count();
    // Until the call ends the row holds what the counters read when it began.
    row.flops = profiler::total_flops();
    row.milliseconds = now();
    rows_.push_back(std::move(row));
  }

  void after(const Module&, const Tensor& y) override {
    ModuleReport& row = rows_[open_.back()];
    open_.pop_back();
    row.output = y.shape();
    row.flops = profiler::total_flops() - row.flops;
    row.milliseconds = now() - row.milliseconds;
  }

  std::vector<ModuleReport> take() { return std::move(rows_); }

 private:
  static double now() {
    const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(since_start).count();
  }

  std::vector<ModuleReport> rows_;
  std::vector<std::size_t> open_;
};

/// Evaluation behaviour for a while, so that looking at a model does not move its running statistics.
class EvaluationScope {
 public:
  explicit EvaluationScope(Module& module) {
    module.for_each_module([&](Module& part) { before_.emplace_back(&part, part.is_training()); });
    module.eval();
  }
  ~EvaluationScope() {
    // Parents come first, and set their parts.
    for (const auto& [part, was_training] : before_) part->train(was_training);
  }
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  std::vector<std::pair<Module*, bool>> before_;
};

}  // namespace

std::vector<ModuleReport> summarize(Module& module, const Inputs& inputs) {
  Reporter reporter;
  const NoGrad no_grad;
  const EvaluationScope evaluation(module);
  const ObserverScope scope(reporter);
  module(inputs);
  return reporter.take();
}

}  // namespace hearth::nn
