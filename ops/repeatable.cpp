// SPDX-License-Identifier: Apache-2.0
#include "ops/repeatable.h"

#include <atomic>

namespace hearth {
namespace {

std::atomic<bool> required{true};

}  // namespace

bool repeatable() { return required.load(std::memory_order_relaxed); }
void set_repeatable(bool on) { required.store(on, std::memory_order_relaxed); }

}  // namespace hearth
