// SPDX-License-Identifier: Apache-2.0
// Asks a run that another process trains.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "core/io/json_text.h"

namespace hearth::train {

/// The live meters of a run; null, with the reason in `why`, where no process answers at its folder's socket.
HEARTH_API Json live_status(const std::string& folder, std::string& why);

/// Has a run trace its next steps; returns the path of the trace once it is written. Asks over files where the socket
/// does not lead to the run, as from another machine. UsageError where nothing trains there, or no answer comes in
/// time; DataError with what the run says where it cannot.
HEARTH_API std::string trace_run(const std::string& folder, std::int64_t steps, std::chrono::seconds patience);

}  // namespace hearth::train
