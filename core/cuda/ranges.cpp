// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace hearth::cuda {
namespace {

std::atomic<bool>& marking() {
  static std::atomic<bool> on = [] {
    const char* const wanted = std::getenv("HEARTH_NVTX");
    return wanted != nullptr && std::strcmp(wanted, "1") == 0;
  }();
  return on;
}

}  // namespace

bool marks_ranges() noexcept { return marking().load(std::memory_order_relaxed); }
void mark_ranges(bool on) noexcept { marking().store(on, std::memory_order_relaxed); }
void push_range(const std::string& name) { nvtxRangePushA(name.c_str()); }
void pop_range() noexcept { nvtxRangePop(); }

}  // namespace hearth::cuda
