// SPDX-License-Identifier: Apache-2.0
// Sees every op call of a thread: for reports on what runs in which type.
#pragma once

#include <span>

#include "core/tensor.h"

namespace hearth {

struct OpInfo;

class OpObserver {
 public:
  virtual ~OpObserver() = default;
  /// After forward. `inputs` are what the op was given after autocast; absent ones are undefined.
  virtual void after(const OpInfo& info, std::span<const Tensor> inputs, const Tensor& y) = 0;
};

/// Installs an observer on this thread for the life of this object.
class OpObserverScope {
 public:
  explicit OpObserverScope(OpObserver& observer);
  ~OpObserverScope();
  OpObserverScope(const OpObserverScope&) = delete;
  OpObserverScope& operator=(const OpObserverScope&) = delete;

 private:
  OpObserver* previous_;
};

}  // namespace hearth
