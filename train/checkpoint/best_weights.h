// SPDX-License-Identifier: Apache-2.0
// The weights of the best checkpoint, in a session that has trained beyond it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "train/session.h"

namespace hearth::train {

/// Loads the weights, buffers and averages of the best checkpoint for as long as it lives, and puts back what was
/// there. All ranks make it together. Between evaluations and steps only: the averages are not in use then.
class HEARTH_API BestWeightsScope {
 public:
  /// `checkpoint_folder` is that of the session's run.
  BestWeightsScope(Session& session, const std::string& checkpoint_folder);
  ~BestWeightsScope();
  BestWeightsScope(const BestWeightsScope&) = delete;
  BestWeightsScope& operator=(const BestWeightsScope&) = delete;

  /// The step that the session's weights are of now: the best one, or the last where no other is kept as the best.
  std::int64_t step() const { return step_; }
  /// Why these are the last weights, although another step is the best; else empty.
  const std::string& unavailable_reason() const { return unavailable_; }

 private:
  /// Values as they were: of a tensor (in host memory), or the bytes of a number.
  struct Saved {
    State::Entry entry;
    Tensor tensor;
    std::vector<std::byte> number;
  };
  void save(const State& state);
  void put_back();

  Session& session_;
  std::int64_t step_;
  std::string unavailable_;
  std::vector<Saved> saved_;
};

}  // namespace hearth::train
