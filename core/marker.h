// SPDX-License-Identifier: Apache-2.0
// Named parts of a run on the calling thread, for profilers: phases of a step, stages of the loader, evaluations.
#pragma once

#include "core/export.h"
#include "core/profiler.h"

namespace hearth {

/// From construction to destruction: a span of the profile while one is collected (core/profiler.h), and a range in
/// NVIDIA's profilers where they are asked for (core/cuda/ranges.h). Costs two relaxed loads while nobody listens.
class HEARTH_API Marker {
 public:
  /// `name` must live as long as the process.
  explicit Marker(const char* name) noexcept;
  ~Marker();
  Marker(const Marker&) = delete;
  Marker& operator=(const Marker&) = delete;

  /// Whether anybody listens, for names that take work to make.
  static bool is_on() noexcept;

 private:
  profiler::Scope scope_;
  bool marked_;
};

}  // namespace hearth
