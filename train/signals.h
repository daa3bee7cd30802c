// SPDX-License-Identifier: Apache-2.0
// What signals ask of a training: SIGINT, SIGTERM, SIGHUP (the terminal is gone) and SIGXCPU (the limit on processor
// time is near) to finish the step, write a checkpoint and return; SIGUSR1 to write a checkpoint and go on. A second
// SIGINT or SIGTERM ends the process at once with 128 + its number. A closed pipe of messages (SIGPIPE) ends nothing.
#pragma once

#include <semaphore>
#include <thread>

#include "core/export.h"

namespace hearth::train {

/// Takes over these signals for the life of the object, and restores what was there after the last object. SIGHUP stays
/// ignored where it was, as nohup does it. Signals that the calling thread blocks are left to the program. A thread of
/// the object's own takes signals while the others run library kernels, which keep them away (core/cpu/signals.h).
class HEARTH_API SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  /// The signal that asked for a stop, or 0.
  static int requested();
  /// Whether SIGUSR1 came since the last call.
  static bool checkpoint_requested();

 private:
  std::binary_semaphore done_{0};
  std::thread listener_;
};

/// From here on this signal does not end the process, even outside of a SignalScope. A handler of the program's own
/// stays.
HEARTH_API void survive(int signal);

}  // namespace hearth::train
