// SPDX-License-Identifier: Apache-2.0
#include "train/attach/attach_request.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/io/printable.h"

namespace hearth::train {
namespace {

bool is_id(std::string_view text) {
  const auto is_letter_or_digit = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  return !text.empty() && std::ranges::all_of(text, is_letter_or_digit);
}

}  // namespace

AttachRequest parse_request(std::string_view line) {
  if (line == "status") return {};
  constexpr std::string_view trace = "trace ";
  HEARTH_CHECK(UsageError, line.size() <= longest_request && line.starts_with(trace),
               "a run that trains takes the requests \"status\" and \"trace STEPS ID\", not \"",
               printable(std::string(line.substr(0, longest_request))), "\"");
  AttachRequest request{.kind = AttachRequest::Kind::trace};
  const char* const begin = line.data() + trace.size();
  const char* const end = line.data() + line.size();
  const auto [rest, error] = std::from_chars(begin, end, request.steps);
  HEARTH_CHECK(UsageError, error == std::errc() && request.steps >= 1 && request.steps <= most_traced_steps,
               "trace: the number of steps must be a whole number from 1 to ", most_traced_steps);
  HEARTH_CHECK(UsageError, rest != end && *rest == ' ' && is_id({rest + 1, end}),
               "trace: an ID of letters and digits must follow the number of steps");
  request.id.assign(rest + 1, end);
  return request;
}

std::string to_line(const AttachRequest& request) {
  if (request.kind == AttachRequest::Kind::status) return "status\n";
  return join_text("trace ", request.steps, " ", request.id, "\n");
}

}  // namespace hearth::train
