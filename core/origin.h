// SPDX-License-Identifier: Apache-2.0
// Who is at work on this thread, so that reports about memory can name the op and the layer. Stored beside every
// storage and tape node, so it is three plain words whose strings live as long as the process.
#pragma once

#include <iosfwd>
#include <string>

#include "core/export.h"

namespace hearth {

struct HEARTH_API Origin {
  const char* op = nullptr;     ///< innermost op or part of a step; null outside of both
  const char* layer = nullptr;  ///< dotted path of the innermost module; null outside of modules
  bool backward = false;        ///< while the gradients of `op` are computed
  bool operator==(const Origin& other) const;
};

/// "conv2d (backward) of layer1.0.conv1", or "no op".
HEARTH_API std::ostream& operator<<(std::ostream& out, const Origin& origin);

/// The calling thread's.
HEARTH_API const Origin& current_origin() noexcept;

/// Sets the calling thread's origin for the life of this object, which is also a range in NVIDIA's profilers where they
/// are asked for (core/cuda/ranges.h).
class HEARTH_API OriginScope {
 public:
  explicit OriginScope(const Origin& origin) noexcept;
  ~OriginScope();
  OriginScope(const OriginScope&) = delete;
  OriginScope& operator=(const OriginScope&) = delete;

  /// The present origin with another op, or another layer. The text must live as long as the process.
  static OriginScope of_op(const char* op) noexcept;
  static OriginScope of_layer(const char* layer) noexcept;

 private:
  Origin previous_;
  bool marked_ = false;
};

/// The same text, kept until the process ends; equal strings are kept once.
HEARTH_API const char* lasting_text(const std::string& text);

}  // namespace hearth
