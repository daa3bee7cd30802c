// SPDX-License-Identifier: Apache-2.0
// SIGINT and SIGTERM as a request to stop: the trainer finishes its step, writes a checkpoint and returns.
// A second signal ends the process at once with 128 + its number.
#pragma once

namespace hearth::train {

/// Takes over SIGINT and SIGTERM for the life of the object, and restores what was there.
class SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  /// The signal that asked for a stop, or 0.
  static int requested();
};

}  // namespace hearth::train
