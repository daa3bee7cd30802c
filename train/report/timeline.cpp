// SPDX-License-Identifier: Apache-2.0
#include "train/report/timeline.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "core/text_stream.h"
#include "train/report/page.h"
#include "train/task/report/plot.h"
#include "train/task/report_sections.h"

namespace hearth::train {
namespace {

constexpr double svg_width = 1100, margin_left = 130, margin_right = 20, margin_top = 46, lane = 16, gap = 14;

/// Colours of the style sheet.
constexpr std::pair<const char*, int> colours[] = {{"forward", 0}, {"backward", 4}, {"communication", 1},
                                                   {"update", 2},  {"copy", 7},     {"other", 7}};
constexpr int colour_of_collectives = 3;

int span_colour(const std::string& what) {
  for (const auto& [name, colour] : colours)
    if (what == name) return colour;
  return colour_of_collectives;
}

struct Span {
  std::string what;
  double begin = 0, end = 0;
  std::string more{};
};

std::vector<Span> spans_of(const Json& rank, const char* lane_name) {
  std::vector<Span> spans;
  const Json* const list = rank.find(lane_name);
  if (list == nullptr || !list->is_array()) return spans;
  for (const Json& one : list->items()) {
    if (!one.is_array() || one.size() < 3) continue;
    const std::vector<Json>& parts = one.items();
    if (!parts[1].is_number() || !parts[2].is_number()) continue;
    spans.push_back({text_of(parts[0]), std::max(0.0, parts[1].as_number()), parts[2].as_number()});
    if (parts.size() > 3 && parts[3].is_number()) spans.back().more = ", " + tick_text(parts[3].as_number()) + " bytes";
  }
  return spans;
}

void write_lane(std::ostream& out, const std::vector<Span>& spans, double y, double scale) {
  for (const Span& span : spans)
    out << "<rect class=\"s" << span_colour(span.what) << "\" x=\"" << rounded(margin_left + scale * span.begin, 6)
        << "\" y=\"" << y << "\" svg_width=\"" << rounded(std::max(0.5, scale * (span.end - span.begin)), 6)
        << "\" height=\"" << lane - 2 << "\"><title>" << html_escaped(span.what) << ", " << rounded(span.begin, 4)
        << " to " << rounded(span.end, 4) << " ms" << span.more << "</title></rect>";
}

void write_span_legend(std::ostream& out) {
  double x = margin_left;
  const auto entry = [&](const std::string& name, int colour) {
    out << "<rect class=\"s" << colour << "\" x=\"" << x << "\" y=\"8\" svg_width=\"12\" height=\"12\"/><text x=\""
        << x + 17 << "\" y=\"18\">" << name << "</text>";
    x += 40 + 7.0 * static_cast<double>(name.size());
  };
  for (const auto& [name, colour] : colours) entry(name, colour);
  entry("collective", colour_of_collectives);
}

}  // namespace

std::string timeline_svg(const Json& trace) {
  const Json* const ranks = trace.find("ranks");
  if (ranks == nullptr || !ranks->is_array()) return "";
  std::vector<std::vector<Span>> lanes;
  double end = 0;
  for (std::size_t i = 0; i < std::min(max_lanes, ranks->items().size()); ++i)
    for (const char* name : {"compute", "communication"}) {
      lanes.push_back(spans_of(ranks->items()[i], name));
      for (const Span& span : lanes.back()) end = std::max(end, span.end);
    }
  if (end <= 0 || !std::isfinite(end)) return "";
  const double scale = (svg_width - margin_left - margin_right) / end;
  const double lowest = margin_top + static_cast<double>(lanes.size() / 2) * (2 * lane + gap);
  TextStream out;
  out << "<svg viewBox=\"0 0 " << svg_width << " " << lowest + 4 << "\" role=\"img\" aria-label=\"A step by rank\">";
  write_span_legend(out);
  for (const double tick : axis_ticks(0, end, 8)) {
    const double x = margin_left + scale * tick;
    out << "<line class=\"grid\" x1=\"" << rounded(x, 6) << "\" x2=\"" << rounded(x, 6) << "\" y1=\"" << margin_top
        << "\" y2=\"" << lowest << "\"/><text x=\"" << rounded(x, 6) << "\" y=\"" << margin_top - 6
        << "\" text-anchor=\"middle\">" << tick_text(tick) << " ms</text>";
  }
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const double y = margin_top + 6 + static_cast<double>(i / 2) * (2 * lane + gap) + static_cast<double>(i % 2) * lane;
    out << "<text x=\"" << margin_left - 8 << "\" y=\"" << y + 11 << "\" text-anchor=\"end\">"
        << (i % 2 == 0 ? join_text("rank ", i / 2, " computes") : "communicates") << "</text>";
    write_lane(out, lanes[i], y, scale);
  }
  out << "</svg>";
  return out.str();
}

}  // namespace hearth::train
