// SPDX-License-Identifier: Apache-2.0
// Memory for what outlives a step.
#pragma once

#include "core/device.h"
#include "core/export.h"

namespace hearth {

class MemoryResource;

/// Makes memory_of() give the devices' own resources on the calling thread for the life of this object, whatever
/// DeviceMemoryScope is in force: for tensors that are made within a step and kept, as the memory of recorded steps
/// goes with them.
class HEARTH_API LastingMemoryScope {
 public:
  LastingMemoryScope();
  ~LastingMemoryScope();
  LastingMemoryScope(const LastingMemoryScope&) = delete;
  LastingMemoryScope& operator=(const LastingMemoryScope&) = delete;

 private:
  MemoryResource* previous_;
};

}  // namespace hearth
