// SPDX-License-Identifier: Apache-2.0
// What decides which algorithms compute, and on how many threads: of a thread while a SwitchScope lives there, else of
// the process.
#pragma once

#include <optional>

#include "core/export.h"
#include "core/tf32.h"

namespace hearth {

struct Switches {
  bool deterministic = false;  ///< cpu::deterministic()
  bool repeatable = true;      ///< repeatable()
  Tf32 tf32{};                 ///< allowed_tf32()
  int threads = 0;             ///< of the pool, at most (cpu::threads()); 0: all
};

/// Those that apply to the calling thread. Threads of the pool have those of the thread that gave them work.
HEARTH_API Switches switches() noexcept;

/// Gives the calling thread switches of its own while it lives: two trainings of a process do not disturb each other.
class HEARTH_API SwitchScope {
 public:
  explicit SwitchScope(const Switches& of_scope) noexcept;
  ~SwitchScope();
  SwitchScope(const SwitchScope&) = delete;
  SwitchScope& operator=(const SwitchScope&) = delete;

 private:
  std::optional<Switches> before_;
};

namespace detail {
/// Those of the process, of which TF32 is set by set_allows_tf32().
HEARTH_API void set_deterministic(bool on) noexcept;
HEARTH_API void set_repeatable(bool on) noexcept;
}  // namespace detail

}  // namespace hearth
