// SPDX-License-Identifier: Apache-2.0
#include "core/tf32.h"

#include <atomic>

namespace hearth {
namespace {

std::atomic<bool> allowed{false};

}  // namespace

bool allows_tf32() { return allowed.load(std::memory_order_relaxed); }
void set_allows_tf32(bool on) { allowed.store(on, std::memory_order_relaxed); }

}  // namespace hearth
