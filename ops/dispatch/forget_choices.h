// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace hearth {

/// Has every op choose among its implementations anew: what they say of themselves has changed, as in a test.
void forget_choices();

}  // namespace hearth
