// SPDX-License-Identifier: Apache-2.0
// Where a training step's time on the device went: the device's own times (device_trace.h) beside what the host asked
// for (bytes and arithmetic of each launch).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/io/json_text.h"
#include "train/profile/profile_rows.h"
#include "train/profile/trace/device_trace.h"
#include "train/profile/work_log.h"

namespace hearth::train {

/// Which of `asked` each span is: native kernels are matched in their order, library kernels and copies with the calls
/// between these. -1: unknown; all are where the numbers of native kernels differ.
std::vector<int> match_spans(std::span<const cuda::DeviceSpan> spans, std::span<const AskedWork> asked);

/// A step as `hearth bench step --profile` reports it: "milliseconds" from the first begin to the last end, "busy" and
/// "gaps" of these, "phases" and "ops" and "kernels", each a list from the slowest with count, us, bytes, flops,
/// "floor_us" (the time that bytes and arithmetic take at the limits) and "percent_of_limit"; and "longest_gaps".
Json device_profile(std::span<const cuda::DeviceSpan> spans, std::span<const AskedWork> asked,
                    const ProfileLimits& limits);
/// Whether `matches`, as match_spans() gives them, tell of native kernels which op they are of.
bool tells_of_ops(std::span<const cuda::DeviceSpan> spans, std::span<const int> matches);

/// A span as traces show it.
struct DeviceEvent {
  std::string name;
  const char* phase;
  Json about;  ///< op, layer, kernel, the launch's figures, bytes and arithmetic
};
/// One for each span; `matches` are those of match_spans().
std::vector<DeviceEvent> device_events(std::span<const cuda::DeviceSpan> spans, std::span<const AskedWork> asked,
                                       std::span<const int> matches);
/// The spans as Chrome trace events.
std::string chrome_trace(std::span<const cuda::DeviceSpan> spans, std::span<const AskedWork> asked);

}  // namespace hearth::train
