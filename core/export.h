// SPDX-License-Identifier: Apache-2.0
// What a program may call.
#pragma once

/// Marks the functions and classes of public headers: a shared library shows them, and nothing else of it. A class with
/// virtual functions and an exception have it even where all is inline, so that program and library know one type.
#define HEARTH_API __attribute__((visibility("default")))
