// SPDX-License-Identifier: Apache-2.0
#include "train/evaluation_hooks.h"

#include <algorithm>
#include <cmath>

#include "train/session.h"

namespace hearth::train {
namespace {

/// The best evaluation of a run, and how many have come since.
class BestEvaluation {
 public:
  void register_state(State& state, const std::string& prefix) {
    state.add(prefix + "best", &best_);
    state.add(prefix + "best_step", &step_);
    state.add(prefix + "worse", &worse_);
  }
  /// An evaluation that is not better by more than `margin` counts as worse, as does one whose loss is not finite. One
  /// in which no label counted is passed over.
  void take(const Session& session, const Meter& meter, double margin) {
    if (meter.samples == 0) return;
    const auto [value, lower_is_better] = session.comparable(meter);
    const double gain = lower_is_better ? best_ - value : value - best_;
    ++worse_;
    if (!std::isfinite(meter.loss()) || !std::isfinite(value) || (step_ >= 0 && gain <= margin)) return;
    best_ = value;
    step_ = session.position.step;
    worse_ = 0;
  }
  double best() const { return best_; }
  std::int64_t worse() const { return worse_; }
  /// Begins to count anew; the best stays.
  void forgive() { worse_ = 0; }
  /// "the best valid loss was 0.5, first at step 20"
  std::string text(const Session& session) const {
    if (step_ < 0) return "none was finite";
    return join_text("the best ", session.best_by(), " was ", best_, ", first at step ", step_);
  }

 private:
  double best_ = 0;
  std::int64_t step_ = -1;  // none so far
  std::int64_t worse_ = 0;  // in a row
};

class EarlyStopping : public Hook {
 public:
  explicit EarlyStopping(const EarlyStoppingOptions& options) : options_(options) {}

  bool allows_replay() const override { return true; }
  void register_state(State& state, const std::string& prefix) override { best_.register_state(state, prefix); }
  void after_evaluation(Session& session, const std::string& split, const Meter& meter) override {
    if (split != "valid") return;
    best_.take(session, meter, options_.min_delta);
    if (best_.worse() < *options_.patience) return;
    session.request_stop(join_text("early stopping: no improvement in ", best_.worse(), " evaluation",
                                   best_.worse() == 1 ? "" : "s", "; ", best_.text(session)));
  }

 private:
  EarlyStoppingOptions options_;
  BestEvaluation best_;
};

class ReduceLr : public Hook {
 public:
  explicit ReduceLr(const ReduceLrOptions& options) : options_(options) {}

  bool allows_replay() const override { return true; }
  void register_state(State& state, const std::string& prefix) override {
    best_.register_state(state, prefix);
    state.add(prefix + "scale", &scale_);
    state.add(prefix + "cooldown", &cooldown_);
  }
  double lr(const Session&, std::int64_t, double lr) const override {
    return std::max(lr * scale_, std::min(lr, options_.min_lr));
  }
  void after_evaluation(Session& session, const std::string& split, const Meter& meter) override {
    if (split != "valid") return;
    best_.take(session, meter, options_.threshold * std::abs(best_.best()));
    if (cooldown_ > 0) {
      --cooldown_;
      best_.forgive();
    }
    if (best_.worse() <= *options_.patience) return;
    scale_ *= options_.factor;
    cooldown_ = options_.cooldown;
    best_.forgive();
  }

 private:
  ReduceLrOptions options_;
  BestEvaluation best_;
  double scale_ = 1;
  std::int64_t cooldown_ = 0;  // evaluations that do not count
};

}  // namespace

std::unique_ptr<Hook> make_early_stopping(const EarlyStoppingOptions& options) {
  return std::make_unique<EarlyStopping>(options);
}

std::unique_ptr<Hook> make_reduce_lr_on_plateau(const ReduceLrOptions& options) {
  return std::make_unique<ReduceLr>(options);
}

}  // namespace hearth::train
