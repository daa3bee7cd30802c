// SPDX-License-Identifier: Apache-2.0
// Switches of the tape, each for one thread and one C++ scope.
#pragma once

#include <optional>

#include "core/dtype.h"

namespace hearth {

/// True where ops record what their gradients need.
HEARTH_API bool grad_enabled();

/// True while an op's forward runs for a result whose gradient is needed; ops skip work for `Saved` otherwise.
HEARTH_API bool is_recording();

/// True while recompute() runs a function for the second time. What a forward pass does once besides its result, such
/// as moving running statistics, is not to be done then.
HEARTH_API bool is_recomputing();

/// No op records while this object lives.
class HEARTH_API NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};

/// The low-precision type in force on this thread, if any (O1 mixed precision).
HEARTH_API std::optional<DType> autocast_dtype();

/// Ops run by their autocast class in `low_precision` (f16 or bf16) while this object lives; nullopt switches autocast
/// off.
class HEARTH_API AutocastScope {
 public:
  explicit AutocastScope(std::optional<DType> low_precision);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  std::optional<DType> previous_;
};

namespace detail {
/// An op, forward or backward, with those that it calls itself.
class HEARTH_API OpScope {
 public:
  OpScope();
  ~OpScope();
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;
};
/// Tells the ops of this thread from each other; outside of ops each call is another one.
HEARTH_API std::uint64_t current_op();

class HEARTH_API RecordingScope {
 public:
  explicit RecordingScope(bool on);
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  bool previous_recording_;
  bool previous_grad_;
};

/// Ops record again, within a backward pass.
class HEARTH_API RecomputingScope {
 public:
  RecomputingScope();
  ~RecomputingScope();
  RecomputingScope(const RecomputingScope&) = delete;
  RecomputingScope& operator=(const RecomputingScope&) = delete;

 private:
  bool previous_recomputing_;
  bool previous_grad_;
};
}  // namespace detail

}  // namespace hearth
