// SPDX-License-Identifier: Apache-2.0
// The batches of a split as evaluations see them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "autograd/grad_mode.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "optim/ema.h"

namespace hearth::train {

class Session;

/// While it lives the session computes as in its evaluations: in evaluation mode, without gradients, in the run's
/// precision, with the averaged weights if there are any.
class HEARTH_API EvaluationScope {
 public:
  explicit EvaluationScope(Session& session);
  ~EvaluationScope();
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  Session& session_;
  bool was_training_;
  std::optional<optim::EmaScope> averaged_;
  NoGrad no_grad_;
  AutocastScope autocast_;
};

/// Calls `use` with the batches of a split, in order and where the model computes, until they hold `most` samples; in
/// an EvaluationScope.
HEARTH_API void visit_batches(Session& session, const data::DatasetPointer& part, std::int64_t most,
                              const std::function<void(const data::Batch&)>& use);

}  // namespace hearth::train
