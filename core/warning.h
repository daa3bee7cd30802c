// SPDX-License-Identifier: Apache-2.0
// Warnings: what the library tells a program without failing. The library itself prints nothing.
#pragma once

#include <functional>
#include <string>

#include "core/export.h"

namespace hearth {

using WarningHandler = std::function<void(const std::string& text)>;

/// Sets the function that takes warnings, for all threads, and returns the one before. Calls come one at a time, from
/// the thread that warns; the function must neither throw nor call the library. Initially, and with an empty function,
/// warnings are dropped. `run_cli` writes them to the standard error.
HEARTH_API WarningHandler set_warning_handler(WarningHandler handler);

/// Passes a warning to the handler.
HEARTH_API void warn(const std::string& text);

}  // namespace hearth
