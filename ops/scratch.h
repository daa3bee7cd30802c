// SPDX-License-Identifier: Apache-2.0
// Short-lived working memory of kernels: one stack of large, reused blocks a thread, so that a training step
// asks the system for nothing after the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace hearth::cpu {

/// A frame on the calling thread's scratch stack. Memory taken from it is 64-byte aligned, not initialised, and
/// lives until the frame ends. Frames nest; only the innermost may be taken from. Not to be passed to other threads
/// (the memory may).
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// Throws OutOfMemory, saying how much was asked and is held.
  void* take_bytes(std::size_t bytes);
  template <class T>
  T* take(std::int64_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    return static_cast<T*>(take_bytes(static_cast<std::size_t>(count) * sizeof(T)));
  }

  /// Bytes the calling thread's stack holds from the system.
  static std::size_t held_bytes();
  /// Gives the calling thread's memory back to the system; nothing while a frame is open.
  static void release();

 private:
  std::size_t block_;
  std::size_t used_;
};

}  // namespace hearth::cpu
