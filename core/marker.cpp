// SPDX-License-Identifier: Apache-2.0
#include "core/marker.h"

#include "core/build.h"
#if HEARTH_HAS_CUDA
#include "core/cuda/ranges.h"
#endif

namespace hearth {

#if HEARTH_HAS_CUDA
bool Marker::is_on() noexcept { return profiler::enabled() || cuda::marks_ranges(); }
Marker::Marker(const char* name) noexcept : scope_(name, profiler::Scope::Kind::part), marked_(cuda::marks_ranges()) {
  if (marked_) cuda::push_range(name);
}
Marker::~Marker() {
  if (marked_) cuda::pop_range();
}
#else
bool Marker::is_on() noexcept { return profiler::enabled(); }
Marker::Marker(const char* name) noexcept : scope_(name, profiler::Scope::Kind::part), marked_(false) {}
Marker::~Marker() = default;
#endif

}  // namespace hearth
