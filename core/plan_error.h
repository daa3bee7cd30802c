// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/error.h"
#include "core/export.h"

namespace hearth {

/// A vendor's library did not run a plan that it had made; nothing was computed, and something else can do it.
class HEARTH_API PlanError : public DeviceError {
 public:
  explicit PlanError(const std::string& message) : DeviceError(message) {}
};

}  // namespace hearth
