// SPDX-License-Identifier: Apache-2.0
#include "train/profile/host_profile.h"

#include <map>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace hearth::train {
namespace {

const char* phase_of(const profiler::Span& span) {
  const std::string_view op = span.op;
  if (op == "data.next" || op == "normalize_images") return "data";
  if (op == "optimizer") return "update";
  return span.backward ? "backward" : "forward";
}

/// Of one of `steps` steps, with the floor: of what an op reads its implementation does the arithmetic.
void finish(ProfileRows& rows, int steps, const ProfileLimits& limits) {
  for (auto& [name, row] : rows) {
    row.count /= steps;
    const double bytes = std::exchange(row.bytes, 0) / steps, flops = std::exchange(row.flops, 0) / steps;
    row.us /= steps;
    row.add_work(bytes, flops, limits);
  }
}

}  // namespace

std::string name_of_op(const profiler::Span& span) { return join_text(span.op, span.backward ? " (backward)" : ""); }

Json host_profile(std::span<const profiler::Span> spans, double milliseconds, int steps, const ProfileLimits& limits) {
  ProfileRows phases, ops, kernels;
  std::map<std::string, const char*> phase_of_op;
  for (const profiler::Span& span : spans) {
    if (span.thread != profiler::this_thread() || span.op == nullptr) continue;
    const double us = 1e-3 * static_cast<double>(span.own_ns);
    const bool is_op = std::string_view(span.op) == span.name;
    const std::string op = name_of_op(span);
    phase_of_op[op] = phase_of(span);
    ProfileRow &of_op = ops[op], &kernel = kernels[is_op ? op : span.name];
    for (ProfileRow* const row : {&of_op, &kernel}) {
      row->us += us;
      row->flops += span.flops;
    }
    of_op.bytes += span.bytes;
    // Else the implementation inside reads and writes them.
    if (span.own_ns == span.end_ns - span.begin_ns) kernel.bytes += span.bytes;
    // An op counts once, whatever it calls.
    of_op.count += is_op ? 1 : 0;
    ++kernel.count;
  }
  finish(ops, steps, limits);
  finish(kernels, steps, limits);
  ProfileRow all;
  for (const auto& [name, row] : ops)
    for (ProfileRow* const sum : {&phases[phase_of_op.at(name)], &all}) {
      sum->count += row.count;
      sum->us += row.us;
      sum->bytes += row.bytes;
      sum->flops += row.flops;
      sum->floor_us += row.floor_us;
    }
  const double whole = milliseconds / steps;
  return Json::object()
      .set("clock", "host")
      .set("milliseconds", whole)
      .set("busy_milliseconds", 1e-3 * all.us)
      .set("gap_milliseconds", whole - 1e-3 * all.us)
      .set("floor_milliseconds", 1e-3 * all.floor_us)
      .set("limits", to_json(limits))
      .set("phases", to_json(phases))
      .set("ops", to_json(ops))
      .set("kernels", to_json(kernels));
}

}  // namespace hearth::train
