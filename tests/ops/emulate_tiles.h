// SPDX-License-Identifier: Apache-2.0
// Matrix tiles (Intel AMX) on processors without.
#pragma once

#include "core/cpu/amx.h"
#include "ops/dispatch/forget_choices.h"

namespace hearth::test {

/// While one lives, products take tiles in plain C++, in all threads.
class EmulateTiles {
 public:
  EmulateTiles() { set(true); }
  ~EmulateTiles() { set(false); }
  EmulateTiles(const EmulateTiles&) = delete;
  EmulateTiles& operator=(const EmulateTiles&) = delete;

 private:
  static void set(bool begins) {
    cpu::amx::emulate(begins);
    forget_choices();
  }
};

}  // namespace hearth::test
