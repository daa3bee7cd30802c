// SPDX-License-Identifier: Apache-2.0
// What signals ask of a training: SIGINT, SIGTERM and SIGHUP (the terminal is gone) to finish the step, write a
// checkpoint and return; SIGUSR1 to write a checkpoint and go on. A second SIGINT or SIGTERM ends the process at once
// with 128 + its number. A closed pipe of messages (SIGPIPE) ends nothing.
#pragma once

namespace hearth::train {

/// Takes over these signals for the life of the object, and restores what was there. SIGHUP stays ignored where it was,
/// as nohup does it.
class SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  /// The signal that asked for a stop, or 0.
  static int requested();
  /// Whether SIGUSR1 came since the last call.
  static bool checkpoint_requested();
};

}  // namespace hearth::train
