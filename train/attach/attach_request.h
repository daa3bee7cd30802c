// SPDX-License-Identifier: Apache-2.0
// What another process may ask of a run that trains, and the names of the files over which it asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/export.h"

namespace hearth::train {

/// In a run's folder, while it trains: a socket that takes a request and answers with a line of JSON.
inline constexpr const char* socket_file = "live.sock";
/// The same over files, where sockets do not lead to the run: another process writes a request, the run an answer.
inline constexpr const char* request_file = "trace.request";
inline constexpr const char* answer_file = "trace.answer";
/// What a trace leaves.
inline constexpr const char* trace_file = "trace.json";

struct AttachRequest {
  enum class Kind : std::uint8_t {
    status,  ///< "status": the live meters
    trace,   ///< "trace 5 ID": a trace of the next five steps; the answer comes once it is written, with the ID
  };
  Kind kind = Kind::status;
  std::int64_t steps = 0;
  std::string id{};
};

inline constexpr std::size_t longest_request = 64;
inline constexpr std::int64_t most_traced_steps = 1000;

/// Reads a request, without its end of line. UsageError, with what is wrong, for anything else.
HEARTH_API AttachRequest parse_request(std::string_view line);
/// The line of a request, with its end.
HEARTH_API std::string to_line(const AttachRequest& request);

}  // namespace hearth::train
