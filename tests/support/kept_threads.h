// SPDX-License-Identifier: Apache-2.0
// Gives back the number of threads that a test changes.
#pragma once

#include "core/cpu/parallel.h"

namespace hearth::test {

class KeptThreads {
 public:
  KeptThreads() = default;
  ~KeptThreads() { cpu::set_threads(before_); }
  KeptThreads(const KeptThreads&) = delete;
  KeptThreads& operator=(const KeptThreads&) = delete;

 private:
  const int before_ = cpu::threads();
};

}  // namespace hearth::test
