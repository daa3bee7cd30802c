// SPDX-License-Identifier: Apache-2.0
#include "hearth/train/report.h"

#include <iomanip>
#include <map>
#include <sstream>

#include "hearth/core/file.h"
#include "hearth/train/metrics_log.h"
#include "hearth/train/plot.h"

namespace hearth::train {
namespace {

constexpr const char* style = R"(
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2126; --faint: #66707a; --line: #dfe3e8; --panel: #f6f7f9;
  --c0: #2563c9; --c1: #d9480f; --c2: #2b8a3e; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181c; --ink: #e6e9ec; --faint: #98a2ad; --line: #2c333a;
  --panel: #1b2026; --c0: #6ea8fe; --c1: #ff9a62; --c2: #69db7c; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 1180px;
  margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
.sub { color: var(--faint); margin: .2rem 0 1.4rem; }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; }
.tile { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .6rem 1rem; min-width: 8rem; }
.tile b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; } .tile span { color: var(--faint); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1rem; }
.charts > div { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .4rem; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; } svg text { fill: var(--faint); }
svg .title { fill: var(--ink); font-weight: 600; font-size: 13px; } .grid { stroke: var(--line); }
polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
polyline.c0 { stroke: var(--c0); } polyline.c1 { stroke: var(--c1); } polyline.c2 { stroke: var(--c2); }
circle.c0, svg text.l0 { fill: var(--c0); } circle.c1, svg text.l1 { fill: var(--c1); } circle.c2, svg text.l2 { fill: var(--c2); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } td, th { padding: .25rem .9rem .25rem 0;
  border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; } th { font-weight: 600; color: var(--faint); }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .8rem; overflow-x: auto; font-size: 13px; }
@media print { body { margin: 0; max-width: none; } .charts > div, .tile { break-inside: avoid; } }
)";

// Curves of one key, a curve a split, over the epochs.
Chart chart_of(const std::vector<Json>& records, const std::string& key, const std::string& title) {
  Chart chart;
  chart.title = title;
  chart.x_label = "epoch";
  std::map<std::string, std::size_t> index;
  for (const Json& record : records) {
    const Json* value = record.find(key);
    const Json* split = record.find("split");
    const Json* epoch = record.find("epoch");
    if (!value || !value->is_number() || !split || !epoch) continue;
    const auto [entry, is_new] = index.emplace(split->as_string(), chart.curves.size());
    if (is_new) chart.curves.push_back({split->as_string(), {}});
    chart.curves[entry->second].points.emplace_back(epoch->as_number(), value->as_number());
  }
  return chart;
}

void tile(std::ostream& out, const std::string& value, const std::string& label) {
  out << "<div class=\"tile\"><b>" << html_escaped(value) << "</b><span>" << html_escaped(label) << "</span></div>";
}

std::string percent(double share) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2) << 100 * share << " %";
  return out.str();
}

std::string text_of(const Json& value) { return value.is_string() ? value.as_string() : to_text(value); }

void write_tiles(std::ostream& out, const Json& run_info) {
  const Json* metrics = run_info.find("metrics");
  if (metrics == nullptr) return;
  out << "<div class=\"tiles\">";
  if (const Json* best = metrics->find("best_accuracy")) tile(out, percent(best->as_number()), "best accuracy");
  if (const Json* last = metrics->find("accuracy")) tile(out, percent(last->as_number()), "final accuracy");
  if (const Json* loss = metrics->find("loss")) {
    std::ostringstream text;
    text << std::setprecision(4) << loss->as_number();
    tile(out, text.str(), "final loss");
  }
  if (const Json* step = metrics->find("step")) tile(out, text_of(*step), "steps");
  out << "</div>";
}

void write_evaluations(std::ostream& out, const std::vector<Json>& records) {
  out << "<h2>Evaluations</h2><table><tr><th>step</th><th>epoch</th><th>split</th><th>loss</th><th>accuracy</th></tr>";
  for (const Json& record : records) {
    if (text_of(record.at("split")) == "train") continue;
    out << "<tr><td>" << text_of(record.at("step")) << "</td><td>" << std::setprecision(6)
        << record.at("epoch").as_number() << "</td><td>" << html_escaped(text_of(record.at("split"))) << "</td><td>"
        << record.at("loss").as_number() << "</td><td>";
    if (const Json* accuracy = record.find("accuracy")) out << percent(accuracy->as_number());
    out << "</td></tr>";
  }
  out << "</table>";
}

void write_facts(std::ostream& out, const Json& node, const std::string& prefix) {
  for (const JsonMember& member : node.members()) {
    if (member.key == "metrics") continue;
    if (member.value.is_object())
      write_facts(out, member.value, prefix + member.key + " ");
    else
      out << "<tr><th>" << html_escaped(prefix + member.key) << "</th><td>" << html_escaped(text_of(member.value))
          << "</td></tr>";
  }
}

}  // namespace

std::string report_html(const Json& run_info, const Json& config, const std::vector<Json>& records) {
  const Json* name = config.find("name");
  const std::string title = name ? text_of(*name) : "run";
  const Json* status = run_info.find("status");
  std::ostringstream out;
  out << "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
         "content=\"width=device-width\"><title>"
      << html_escaped(title) << "</title><style>" << style << "</style></head><body><h1>" << html_escaped(title)
      << "</h1><p class=\"sub\">" << html_escaped(status ? text_of(*status) : "") << "</p>";
  write_tiles(out, run_info);
  out << "<h2>Curves</h2><div class=\"charts\">";
  Chart accuracy = chart_of(records, "accuracy", "accuracy");
  accuracy.percent = true;
  for (const Chart& chart :
       {chart_of(records, "loss", "loss"), accuracy, chart_of(records, "lr", "learning rate"),
        chart_of(records, "throughput", "images per second"), chart_of(records, "grad_norm", "gradient norm")}) {
    const std::string svg = to_svg(chart);
    if (!svg.empty()) out << "<div>" << svg << "</div>";
  }
  out << "</div>";
  write_evaluations(out, records);
  if (run_info.is_object()) {
    out << "<h2>Run</h2><table>";
    write_facts(out, run_info, "");
    out << "</table>";
  }
  out << "<h2>Config</h2><pre>" << html_escaped(to_text(config, 2)) << "</pre></body></html>\n";
  return out.str();
}

void write_report(const std::string& folder) {
  const std::string info = folder + "/run.json";
  write_file_synced(folder + "/report.html",
                    report_html(file_exists(info) ? read_json(info) : Json::object(),
                                read_json(folder + "/config.json"), read_metrics(folder + "/metrics.jsonl")));
}

}  // namespace hearth::train
