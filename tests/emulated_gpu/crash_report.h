// SPDX-License-Identifier: Apache-2.0
// The last words of a process that touches emulated device memory where it must not.
#pragma once

namespace hearth::cuda::emulate {

class Memory;

/// From now on a fault at an address of `memory`, which must live as long as the process, writes one line to stderr
/// that says what was touched and by what, before the process ends as it would have without. Other faults go their
/// usual way. Does nothing under the address sanitizer, whose report says more.
void report_crashes(const Memory& memory);

/// What runs now, for that line; null when nothing does. The text must stay while it runs.
void set_running(const char* name);

}  // namespace hearth::cuda::emulate
