// SPDX-License-Identifier: Apache-2.0
// The profiler's scopes one by one, for tables of where a step's time went.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/export.h"

namespace hearth::profiler {

/// A scope that has ended.
struct Span {
  const char* name;
  const char* op;     ///< the op that it is, or that called the implementation that it is; null outside of ops
  const char* layer;  ///< dotted path of the module; null outside of modules
  bool backward;      ///< while gradients were computed
  std::int64_t begin_ns, end_ns;
  std::int64_t own_ns;  ///< without the scopes inside
  double flops, bytes;  ///< told while this was the innermost scope
  std::size_t thread;   ///< equal for the scopes of one thread
};

/// What was collected since start(), in the order of their ends.
HEARTH_API std::vector<Span> spans();
/// Span::thread of the calling thread.
HEARTH_API std::size_t this_thread() noexcept;
/// An event of a Chrome trace, one JSON object, on a lane of a process: `name` is a JSON string, and `about` an object
/// of arguments or "". Times have all digits, so that long traces keep their short spans.
HEARTH_API std::string trace_event(int process, std::size_t lane, const std::string& name, std::int64_t begin_ns,
                                   std::int64_t end_ns, const std::string& about = {});
/// Adds a part of a run (Scope::Kind::part) that ends now, on the calling thread; does nothing while profiling is off.
HEARTH_API void add_part(const char* name, std::int64_t begin_ns) noexcept;
/// Adds bytes that are read or written to the innermost scope of the calling thread; does nothing while profiling is
/// off.
HEARTH_API void add_bytes(double bytes) noexcept;

}  // namespace hearth::profiler
