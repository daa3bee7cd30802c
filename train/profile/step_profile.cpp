// SPDX-License-Identifier: Apache-2.0
#include "train/profile/step_profile.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/text_stream.h"

namespace hearth::train {
namespace {

using cuda::DeviceSpan;
using Kind = DeviceSpan::Kind;

constexpr std::size_t max_gaps = 10;

bool is_own(const DeviceSpan& span) {
  return span.kind == Kind::kernel && span.name.find("hearth") != std::string::npos;
}
bool is_collective(const DeviceSpan& span) { return span.name.find("nccl") != std::string::npos; }

/// The kind of span that work makes on a device.
Kind kind_of(const AskedWork& work) {
  return work.name == "copy" ? Kind::copy : work.name == "fill" ? Kind::fill : Kind::kernel;
}

/// Spreads the spans over the works of their kind, in order: the first works get one more where it does not come out
/// even.
void spread(const std::vector<std::size_t>& spans, const std::vector<int>& works, std::vector<int>& found) {
  if (works.empty()) return;
  const std::size_t each = spans.size() / works.size(), more = spans.size() % works.size();
  std::size_t at = 0;
  for (std::size_t w = 0; w < works.size(); ++w)
    for (std::size_t i = 0; i < each + (w < more ? 1 : 0); ++i) found[spans[at++]] = works[w];
}

/// "batch_norm_apply" of a mangled name, without template arguments and parameters.
std::string short_name(const std::string& mangled) {
  int status = 0;
  char* const text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 && text != nullptr ? text : mangled;
  std::free(text);
  if (name.starts_with("void ")) name.erase(0, 5);
  return name.substr(0, std::min(name.find_first_of("<("), std::size_t{80}));
}

std::string name_of(const DeviceSpan& span, const AskedWork* work) {
  if (work != nullptr && (work->own || span.kind != Kind::kernel)) return work->name;
  return (work != nullptr ? work->name + ": " : std::string()) + short_name(span.name);
}

std::string op_of(const DeviceSpan& span, const AskedWork* work) {
  if (work == nullptr) return span.kind == Kind::kernel ? "unknown" : span.name;
  const char* const op = work->origin.op == nullptr ? work->name.c_str() : work->origin.op;
  return join_text(op, work->origin.backward ? " (backward)" : "");
}

const char* phase_of(const DeviceSpan& span, const AskedWork* work) {
  if (is_collective(span)) return "communication";
  if (work == nullptr) return span.kind == Kind::copy ? "data" : "unknown";
  const std::string_view op = work->origin.op == nullptr ? "" : work->origin.op;
  if (op == "normalize_images") return "data";
  if (op == "optimizer") return "update";
  return work->origin.backward ? "backward" : "forward";
}

/// The longest times in which the device did nothing, with what came before and after.
Json longest_gaps(std::span<const DeviceSpan> spans, const std::vector<std::string>& names, double& idle_us) {
  struct Gap {
    double us;
    std::size_t after, before;
  };
  std::vector<Gap> gaps;
  std::size_t last = 0;
  for (std::size_t i = 1; i < spans.size(); ++i) {
    if (spans[i].begin_ns > spans[last].end_ns)
      gaps.push_back({1e-3 * static_cast<double>(spans[i].begin_ns - spans[last].end_ns), last, i});
    if (spans[i].end_ns > spans[last].end_ns) last = i;
  }
  for (const Gap& gap : gaps) idle_us += gap.us;
  std::stable_sort(gaps.begin(), gaps.end(), [](const Gap& a, const Gap& b) { return a.us > b.us; });
  if (gaps.size() > max_gaps) gaps.resize(max_gaps);
  Json list = Json::array();
  for (const Gap& gap : gaps)
    list.push_back(Json::object().set("us", gap.us).set("after", names[gap.after]).set("before", names[gap.before]));
  return list;
}

const AskedWork* work_at(std::span<const AskedWork> asked, int index) {
  return index < 0 ? nullptr : &asked[static_cast<std::size_t>(index)];
}

}  // namespace

std::vector<int> match_spans(std::span<const DeviceSpan> spans, std::span<const AskedWork> asked) {
  std::vector<int> found(spans.size(), -1);
  const auto own_spans = std::count_if(spans.begin(), spans.end(), is_own);
  if (own_spans != std::count_if(asked.begin(), asked.end(), [](const AskedWork& work) { return work.own; }))
    return found;
  std::size_t span = 0, work = 0;
  while (span < spans.size() || work < asked.size()) {
    // What lies between two kernels of Hearth: by kind.
    std::map<std::pair<Kind, bool>, std::pair<std::vector<std::size_t>, std::vector<int>>> between;
    for (; work < asked.size() && !asked[work].own; ++work)
      between[{kind_of(asked[work]), asked[work].name == "NCCL"}].second.push_back(static_cast<int>(work));
    for (; span < spans.size() && !is_own(spans[span]); ++span)
      if (spans[span].kind != Kind::copy || spans[span].name == "copy")
        between[{spans[span].kind, is_collective(spans[span])}].first.push_back(span);
    for (const auto& [kind, both] : between) spread(both.first, both.second, found);
    if (span < spans.size()) found[span++] = static_cast<int>(work++);
  }
  return found;
}

Json device_profile(std::span<const DeviceSpan> spans, std::span<const AskedWork> asked, const ProfileLimits& limits) {
  const std::vector<int> found = match_spans(spans, asked);
  ProfileRows phases, ops, kernels;
  std::vector<std::string> names;
  std::uint64_t begin = ~std::uint64_t{0}, end = 0;
  std::vector<bool> counted(asked.size(), false);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const AskedWork* const work = work_at(asked, found[i]);
    names.push_back(name_of(spans[i], work));
    // Of several kernels of a call the first has its bytes and arithmetic.
    const bool first = work != nullptr && !counted[static_cast<std::size_t>(found[i])];
    if (first) counted[static_cast<std::size_t>(found[i])] = true;
    for (ProfileRow* row : {&phases[phase_of(spans[i], work)], &ops[op_of(spans[i], work)], &kernels[names.back()]}) {
      row->add(spans[i].microseconds());
      if (first) row->add_work(static_cast<double>(std::max<std::int64_t>(work->bytes, 0)), work->flops, limits);
    }
    begin = std::min(begin, spans[i].begin_ns);
    end = std::max(end, spans[i].end_ns);
  }
  double idle_us = 0;
  Json gaps = longest_gaps(spans, names, idle_us);
  const double whole_us = spans.empty() ? 0 : 1e-3 * static_cast<double>(end - begin);
  return Json::object()
      .set("milliseconds", 1e-3 * whole_us)
      .set("busy_milliseconds", 1e-3 * (whole_us - idle_us))
      .set("gap_milliseconds", 1e-3 * idle_us)
      .set("matched", tells_of_ops(spans, found))
      .set("limits", to_json(limits))
      .set("phases", to_json(phases))
      .set("ops", to_json(ops))
      .set("kernels", to_json(kernels))
      .set("longest_gaps", std::move(gaps));
}

bool tells_of_ops(std::span<const DeviceSpan> spans, std::span<const int> matches) {
  return std::none_of(spans.begin(), spans.end(), is_own) ||
         std::any_of(matches.begin(), matches.end(), [](int index) { return index >= 0; });
}

std::vector<DeviceEvent> device_events(std::span<const DeviceSpan> spans, std::span<const AskedWork> asked,
                                       std::span<const int> matches) {
  std::vector<DeviceEvent> events;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const DeviceSpan& span = spans[i];
    const AskedWork* const work = work_at(asked, matches[i]);
    Json about = Json::object();
    about.set("op", op_of(span, work));
    if (work != nullptr && work->origin.layer != nullptr) about.set("layer", work->origin.layer);
    if (span.kind == Kind::kernel)
      about.set("kernel", span.name)
          .set("blocks", span.blocks)
          .set("threads", span.threads)
          .set("registers", span.registers)
          .set("shared_bytes", span.shared_bytes);
    if (work != nullptr) about.set("bytes", work->bytes).set("flops", work->flops);
    events.push_back({name_of(span, work), phase_of(span, work), std::move(about)});
  }
  return events;
}

std::string chrome_trace(std::span<const DeviceSpan> spans, std::span<const AskedWork> asked) {
  const std::vector<DeviceEvent> shown = device_events(spans, asked, match_spans(spans, asked));
  Json events = Json::array();
  for (std::size_t i = 0; i < spans.size(); ++i)
    events.push_back(Json::object()
                         .set("ph", "X")
                         .set("pid", 0)
                         .set("tid", std::int64_t{spans[i].stream})
                         .set("name", shown[i].name)
                         .set("cat", shown[i].phase)
                         .set("ts", 1e-3 * static_cast<double>(spans[i].begin_ns - spans[0].begin_ns))
                         .set("dur", spans[i].microseconds())
                         .set("args", shown[i].about));
  return to_text(events) + "\n";
}

}  // namespace hearth::train
