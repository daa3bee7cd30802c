// SPDX-License-Identifier: Apache-2.0
// How far ahead batches are prepared.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hearth::data {

/// As many batches as were asked for. Small ones more, as many as the steps take in some seconds: where steps are
/// shorter than the system's turns, workers that give way to them come too late otherwise.
class PrefetchDepth {
 public:
  static constexpr int most = 64;
  static constexpr std::int64_t most_bytes = std::int64_t{1} << 20;

  PrefetchDepth(int least, double seconds) : least_(least), seconds_(seconds), now_(least) {}

  int now() const { return now_; }
  /// The largest that now() becomes.
  int room() const { return seconds_ > 0 ? std::max(least_, most) : least_; }
  /// After a step, which took so long, on a batch of so many bytes.
  void adjust(double step_seconds, std::int64_t batch_bytes) {
    if (seconds_ <= 0) return;
    // One slow step is no sign of slow steps.
    constexpr double newest = 1.0 / 16;
    step_ = step_ < 0 ? step_seconds : std::min((1 - newest) * step_ + newest * step_seconds, 2 * step_);
    const double wanted = seconds_ / std::max(step_, seconds_ / most);
    const std::int64_t fit = most_bytes / std::max<std::int64_t>(batch_bytes, 1);
    now_ = std::max(least_, static_cast<int>(std::min<std::int64_t>(static_cast<std::int64_t>(wanted), fit)));
  }

 private:
  int least_;
  double seconds_, step_ = -1;
  int now_;
};

}  // namespace hearth::data
