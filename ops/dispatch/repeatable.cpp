// SPDX-License-Identifier: Apache-2.0
#include "ops/dispatch/repeatable.h"

#include "core/switches.h"

namespace hearth {

bool repeatable() { return switches().repeatable; }
void set_repeatable(bool on) { detail::set_repeatable(on); }

}  // namespace hearth
