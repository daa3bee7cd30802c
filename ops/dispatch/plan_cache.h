// SPDX-License-Identifier: Apache-2.0
// Plans of the libraries that ops call, kept in memory.
#pragma once

#include <map>
#include <mutex>
#include <utility>

namespace hearth {

/// Plans of one kind by key: each is made once and stays where it is until clear(). A Plan that could not be made says
/// why, and is kept like any other, so that a library is asked once. Key is ordered by operator<.
template <class Key, class Plan>
class PlanCache {
 public:
  PlanCache() = default;
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  /// The key's plan; where there is none yet make() makes it, while other threads that ask wait. Nothing is kept where
  /// make() throws.
  template <class Make>
  const Plan& get(const Key& key, Make&& make) {
    const std::lock_guard lock(mutex_);
    auto found = plans_.find(key);
    if (found == plans_.end()) found = plans_.emplace(key, std::forward<Make>(make)()).first;
    return found->second;
  }

  /// f(key, plan) in the order of keys.
  template <class F>
  void each(F&& f) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, plan] : plans_) f(key, plan);
  }

  /// Not while a plan is used.
  void clear() {
    const std::lock_guard lock(mutex_);
    plans_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::map<Key, Plan> plans_;
};

}  // namespace hearth
