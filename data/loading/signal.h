// SPDX-License-Identifier: Apache-2.0
// Waiting for a change without holding up whoever makes it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace hearth::data {

/// Wakes threads that wait for a change of what a mutex guards. Who notifies never waits: a condition variable waits
/// for threads that it woke before and that have not run since, as workers may not for long where training comes first.
class Signal {
 public:
  template <class IsTrue>
  void wait(std::unique_lock<std::mutex>& lock, const IsTrue& is_true) {
    while (!is_true()) {
      const std::uint32_t seen = changes_.load(std::memory_order_acquire);
      lock.unlock();
      changes_.wait(seen, std::memory_order_acquire);
      lock.lock();
    }
  }
  /// After the change, which was made under the mutex.
  void notify_one() {
    changes_.fetch_add(1, std::memory_order_release);
    changes_.notify_one();
  }
  void notify_all() {
    changes_.fetch_add(1, std::memory_order_release);
    changes_.notify_all();
  }

 private:
  std::atomic<std::uint32_t> changes_{0};
};

}  // namespace hearth::data
