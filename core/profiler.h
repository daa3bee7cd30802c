// SPDX-License-Identifier: Apache-2.0
// Named scopes with time, counted arithmetic and, on request, a Chrome trace. Off by default; a scope then costs one
// relaxed load.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/export.h"

namespace hearth::profiler {

struct Entry {
  std::int64_t calls = 0;
  double milliseconds = 0;  ///< wall time, scopes inside included
  double flops = 0;         ///< arithmetic reported by add_flops while this was the innermost scope
};

/// Starts collecting; forgets what was collected before.
HEARTH_API void start();
/// The same unless something collects already; returns whether it has started.
HEARTH_API bool start_if_idle();
/// Stops collecting.
HEARTH_API void stop();
HEARTH_API bool enabled() noexcept;
/// What was collected, by scope name.
HEARTH_API std::map<std::string, Entry> summary();
/// The collected scopes as Chrome trace events (a JSON array; chrome://tracing and Perfetto read it).
HEARTH_API std::string chrome_trace();

/// Adds floating-point operations (a multiply-add is two) to the innermost scope and to total_flops().
HEARTH_API void add_flops(double flops) noexcept;
/// Everything add_flops was given on this thread since the process began; counted even when profiling is off.
HEARTH_API double total_flops() noexcept;

/// Measures from construction to destruction. `name` must outlive the collection (a literal).
class HEARTH_API Scope {
 public:
  enum class Kind : std::uint8_t {
    op,    ///< an op, or an implementation of the op at work, named "op:name"
    part,  ///< of a run, around ops (core/marker.h)
  };
  explicit Scope(const char* name, Kind kind = Kind::op) noexcept;
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const char* name_;
  std::int64_t begin_ns_;
};

}  // namespace hearth::profiler
