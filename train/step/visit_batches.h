// SPDX-License-Identifier: Apache-2.0
// The batches of a split as evaluations see them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "autograd/grad_mode.h"
#include "core/random.h"
#include "core/switches.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "optim/ema.h"

namespace hearth::train {

class Session;

/// What the random operations of a batch of an evaluation draw by: the seed, the step and the batch's number, whatever
/// was computed before and however many ranks there are. Not what the training draws by.
HEARTH_API RandomKey evaluation_key(const Session& session, std::int64_t batch);

/// While it lives the session computes as in its evaluations: in evaluation mode, without gradients, in the run's
/// precision, with the averaged weights if there are any. Random operations draw by evaluation_key() of batch 0.
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
  RandomScope random_;
  SwitchScope switches_;
};

/// Calls `use` with the batches of a split, in order and where the model computes, until they hold `most` samples; in
/// an EvaluationScope, and for each batch in a RandomScope of its evaluation_key().
HEARTH_API void visit_batches(Session& session, const data::DatasetPointer& part, std::int64_t most,
                              const std::function<void(const data::Batch&)>& use);

}  // namespace hearth::train
