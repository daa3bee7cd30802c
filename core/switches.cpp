// SPDX-License-Identifier: Apache-2.0
#include "core/switches.h"

#include <atomic>
#include <utility>

namespace hearth {
namespace {

std::atomic<bool> process_deterministic{Switches{}.deterministic}, process_repeatable{Switches{}.repeatable};
std::atomic<Tf32> process_tf32{Switches{}.tf32};

thread_local std::optional<Switches> of_thread;

}  // namespace

void detail::set_deterministic(bool on) noexcept { process_deterministic.store(on, std::memory_order_relaxed); }
void detail::set_repeatable(bool on) noexcept { process_repeatable.store(on, std::memory_order_relaxed); }

Switches switches() noexcept {
  if (of_thread) return *of_thread;
  return {process_deterministic.load(std::memory_order_relaxed), process_repeatable.load(std::memory_order_relaxed),
          process_tf32.load(std::memory_order_relaxed), Switches{}.threads};
}

SwitchScope::SwitchScope(const Switches& of_scope) noexcept : before_(std::exchange(of_thread, of_scope)) {}
SwitchScope::~SwitchScope() { of_thread = before_; }

Tf32 allowed_tf32() { return switches().tf32; }
bool allows_tf32() { return allowed_tf32() == Tf32(true); }
void set_allows_tf32(Tf32 of) { process_tf32.store(of, std::memory_order_relaxed); }

}  // namespace hearth
