// SPDX-License-Identifier: Apache-2.0
// The batches of a split as evaluations see them.
#pragma once

#include <cstdint>
#include <functional>

#include "data/batch.h"
#include "data/dataset.h"

namespace hearth::train {

class Session;

/// Calls `use` with the batches of a split, in order and where the model computes, until they hold `most` samples; in
/// evaluation mode, without gradients, in the run's precision, with the averaged weights if there are any.
HEARTH_API void visit_batches(Session& session, const data::DatasetPointer& part, std::int64_t most,
                              const std::function<void(const data::Batch&)>& use);

}  // namespace hearth::train
