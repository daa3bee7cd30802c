// SPDX-License-Identifier: Apache-2.0
#include "train/report/page.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>

#include "core/text_stream.h"
#include "train/task/report_sections.h"

namespace hearth::train {
namespace {

constexpr const char* style = R"(
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2126; --faint: #66707a; --line: #dfe3e8; --panel: #f6f7f9;
  --c0: #2563c9; --c1: #d9480f; --c2: #2b8a3e; --c3: #9c36b5; --c4: #0b7285; --c5: #a61e4d;
  --c6: #846200; --c7: #495057; --finished: #2b8a3e; --running: #2563c9; --stopped: #b35c00; --failed: #c92a2a; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181c; --ink: #e6e9ec; --faint: #98a2ad; --line: #2c333a;
  --panel: #1b2026; --c0: #6ea8fe; --c1: #ff9a62; --c2: #69db7c; --c3: #e599f7; --c4: #66d9e8;
  --c5: #faa2c1; --c6: #ffd43b; --c7: #adb5bd; --finished: #69db7c; --running: #6ea8fe; --stopped: #ffc078;
  --failed: #ff8787; } }
* { box-sizing: border-box; }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 1180px;
  margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
.sub { color: var(--faint); margin: .3rem 0 1.4rem; } .status { border: 1px solid; border-radius: 1em; padding: .05em .7em;
  font-size: .85em; font-weight: 600; margin-right: .5em; }
.finished { color: var(--finished); } .running { color: var(--running); } .stopped { color: var(--stopped); }
.failed { color: var(--failed); }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; }
.tile { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .6rem 1rem; min-width: 8rem; }
.tile b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; } .tile span { color: var(--faint); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1rem; }
.charts > div { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .4rem; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 0 3rem; align-items: start; }
svg { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; } svg text { fill: var(--faint); }
svg .title { fill: var(--ink); font-weight: 600; font-size: 13px; } .grid { stroke: var(--line); }
.mark { stroke: var(--faint); stroke-dasharray: 2 4; opacity: .6; }
polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
polyline.c0 { stroke: var(--c0); } circle.c0, svg text.l0 { fill: var(--c0); } .k0 { background: var(--c0); }
polyline.c1 { stroke: var(--c1); } circle.c1, svg text.l1 { fill: var(--c1); } .k1 { background: var(--c1); }
polyline.c2 { stroke: var(--c2); } circle.c2, svg text.l2 { fill: var(--c2); } .k2 { background: var(--c2); }
polyline.c3 { stroke: var(--c3); } circle.c3, svg text.l3 { fill: var(--c3); } .k3 { background: var(--c3); }
polyline.c4 { stroke: var(--c4); } circle.c4, svg text.l4 { fill: var(--c4); } .k4 { background: var(--c4); }
polyline.c5 { stroke: var(--c5); } circle.c5, svg text.l5 { fill: var(--c5); } .k5 { background: var(--c5); }
polyline.c6 { stroke: var(--c6); } circle.c6, svg text.l6 { fill: var(--c6); } .k6 { background: var(--c6); }
polyline.c7 { stroke: var(--c7); } circle.c7, svg text.l7 { fill: var(--c7); } .k7 { background: var(--c7); }
.s0 { fill: var(--c0); } .s1 { fill: var(--c1); } .s2 { fill: var(--c2); } .s3 { fill: var(--c3); } .s4 { fill: var(--c4); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; } td, th { padding: .25rem 1.2rem .25rem 0;
  border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; } th { font-weight: 600; color: var(--faint); }
.numbers td, .numbers th { text-align: right; } .numbers .best td { font-weight: 700; color: var(--finished); }
.facts th { white-space: nowrap; } .facts td { overflow-wrap: anywhere; padding-right: 0; }
.scroll { overflow: auto; max-height: 34rem; } .across { overflow-x: auto; } .numbers.named td:first-child, .numbers.named th:first-child { text-align: left; }
.confusion { width: auto; } .confusion td, .confusion th { border: 1px solid var(--line); padding: .15rem .5rem; text-align: right; }
.bars td { border: 0; padding: .1rem 1rem .1rem 0; white-space: nowrap; } .bars td:nth-child(2) { text-align: right; }
.bars td:last-child { width: 60%; } .bars div { background: var(--c0); height: .8rem; min-width: 1px; }
.figures { display: flex; flex-wrap: wrap; gap: .8rem; } figure { margin: 0; max-width: 100%; background: var(--panel);
  border: 1px solid var(--line); border-radius: 8px; padding: .5rem; } figure.wide { flex: 1 1 26rem; min-width: 0; }
figure > div { display: flex; flex-wrap: wrap; gap: .3rem; } figure img { width: 8rem; height: 8rem; object-fit: contain;
  image-rendering: pixelated; } figure pre { border: 0; padding: 0; margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }
figcaption { color: var(--faint); font-size: .85em; max-width: 26rem; overflow-wrap: anywhere; }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .35em 0 .8em; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .8rem; overflow-x: auto; font-size: 13px; }
@media print { body { margin: 0; max-width: none; } .charts > div, .tile, tr, figure { break-inside: avoid; }
  .scroll { max-height: none; }
  pre { white-space: pre-wrap; } }
)";

// What a model is evaluated by, and how its training goes.
std::vector<Metric> metrics_of_training() {
  return {
      {.key = "loss", .title = "loss"},
      {.key = "perplexity", .title = "perplexity"},
      {.key = "bits_per_character", .title = "bits a character"},
      {.key = "accuracy", .title = "accuracy", .percent = true},
      {.key = "mean_iou", .title = "mean IoU", .percent = true},
      {.key = "bleu", .title = "BLEU"},
      {.key = "chrf", .title = "chrF"},
      {.key = "error_rate", .title = "error rate", .percent = true},
      {.key = "sequence_error_rate", .title = "translations with an error", .percent = true},
      {.key = "lr", .title = "learning rate", .from_zero = true, .of_training = true},
      {.key = "throughput", .title = "throughput", .from_zero = true, .of_training = true},
      {.key = "grad_norm", .title = "gradient norm", .of_training = true},
      {.key = "loss_scale", .title = "loss scale", .of_training = true},
      {.key = "data_wait", .title = "time waiting for data", .percent = true, .from_zero = true, .of_training = true},
      {.key = "queue_depth", .title = "batches ready", .from_zero = true, .of_training = true},
      {.key = "mfu", .title = "arithmetic, part of the peak", .percent = true, .from_zero = true, .of_training = true},
      {.key = "bandwidth",
       .title = "memory rate, part of the peak",
       .percent = true,
       .from_zero = true,
       .of_training = true},
      {.key = "device_use", .title = "device busy", .percent = true, .from_zero = true, .of_training = true},
      {.key = "scaling_efficiency",
       .title = "scaling efficiency",
       .percent = true,
       .from_zero = true,
       .of_training = true},
      {.key = "communication_wait",
       .title = "time waiting for other ranks",
       .percent = true,
       .from_zero = true,
       .of_training = true},
      {.key = "communication_hidden",
       .title = "communication hidden by computation",
       .percent = true,
       .from_zero = true,
       .of_training = true},
      {.key = "communication_seconds",
       .title = "communication, seconds a step",
       .from_zero = true,
       .of_training = true},
      {.key = "communication_exposed", .title = "exposed, seconds a step", .from_zero = true, .of_training = true},
      {.key = "communication_bytes", .title = "bytes sent a step by rank 0", .from_zero = true, .of_training = true},
  };
}

// What the device, the machine and the process do meanwhile.
constexpr std::pair<const char*, const char*> hardware_metrics[] = {
    {"device_power", "power of the device, W"},
    {"device_clock", "clock of the device, MHz"},
    {"device_temperature", "temperature of the device, degrees"},
    {"device_memory", "memory in use on the device, bytes"},
    {"device_pcie_sent", "sent by PCIe, bytes a second"},
    {"device_pcie_received", "received by PCIe, bytes a second"},
    {"device_nvlink_sent", "sent by NVLink, bytes a second"},
    {"device_nvlink_received", "received by NVLink, bytes a second"},
    {"machine_power", "power of processors and memory, W"},
    {"process_cpus", "processors busy"},
    {"process_memory", "memory of the process, bytes"},
    {"process_swapped", "memory of the process in swap, bytes"},
    {"machine_memory_left", "memory that the process could still get, bytes"},
    {"process_read", "bytes read a second"},
    {"process_written", "bytes written a second"},
    {"process_major_faults", "pages read back from disk"},
    {"machine_remote_pages", "pages of other NUMA nodes a second"},
};

const std::vector<Metric>& known_metrics() {
  static const std::vector<Metric> known = [] {
    std::vector<Metric> all = metrics_of_training();
    for (const auto& [key, title] : hardware_metrics)
      all.push_back({.key = key, .title = title, .from_zero = true, .of_training = true});
    return all;
  }();
  return known;
}

// Of records, but no metrics.
constexpr const char* other_numbers[] = {"step",
                                         "epoch",
                                         "samples",
                                         "padding",
                                         "skipped_steps",
                                         "decoded",
                                         "ranks",
                                         "data_workers",
                                         "data_copy",
                                         "queue_dry",
                                         "queue_depth_min",
                                         "process_minor_faults",
                                         "device_energy",
                                         "device_memory_clock",
                                         "device_ecc_corrected",
                                         "device_ecc_uncorrected",
                                         "machine_energy"};

// What throughput counts: "images per second", "tokens per second", ...
std::string rate_title(const std::vector<Json>& records) {
  std::string unit;
  for (const Json& record : records)
    if (unit.empty()) unit = text_at(record, "unit");
  return (unit.empty() ? "samples" : unit.substr(0, unit.find('/'))) + " per second";
}

}  // namespace

void begin_page(std::ostream& out, const std::string& title) {
  out << "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
         "content=\"width=device-width\"><title>"
      << html_escaped(title) << "</title><style>" << style << "</style></head><body><h1>" << html_escaped(title)
      << "</h1>";
}

void end_page(std::ostream& out) { out << "</body></html>\n"; }

void write_charts(std::ostream& out, const std::vector<Chart>& charts) {
  out << "<h2>Curves</h2>";
  if (std::ranges::any_of(charts, [](const Chart& chart) { return !chart.marks.empty(); }))
    out << "<p class=\"sub\">Dashed lines: evaluations.</p>";
  out << charts_html(charts);
}

std::string text_of(const Json& value) { return value.is_string() ? value.as_string() : to_text(value); }

std::string text_at(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value && !value->is_null() ? text_of(*value) : "";
}

std::optional<double> number_at(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value && value->is_number() ? std::optional(value->as_number()) : std::nullopt;
}

std::string rounded(double value, int digits) {
  TextStream out;
  out << std::setprecision(digits) << value;
  return out.str();
}

std::string bytes_text(double bytes) {
  const char* unit = "B";
  for (const char* larger : {"kB", "MB", "GB", "TB"})
    if (bytes >= 1000) bytes /= 1000, unit = larger;
  return join_text(rounded(bytes, 4), ' ', unit);
}

std::string Metric::text(double value) const { return percent ? percent_text(value) : rounded(value, 5); }

std::vector<Metric> metrics_in(const std::vector<Json>& records) {
  std::vector<Metric> quality, others, training;
  const auto has = [&](const std::string& key) {
    return std::any_of(records.begin(), records.end(),
                       [&](const Json& record) { return number_at(record, key).has_value(); });
  };
  for (const Metric& metric : known_metrics())
    if (has(metric.key)) (metric.of_training ? training : quality).push_back(metric);
  const auto is_known = [&](const std::string& key) {
    const auto named = [&](const Metric& metric) { return metric.key == key; };
    return std::any_of(known_metrics().begin(), known_metrics().end(), named) ||
           std::any_of(others.begin(), others.end(), named) ||
           std::find(std::begin(other_numbers), std::end(other_numbers), key) != std::end(other_numbers);
  };
  for (const Json& record : records)
    for (const JsonMember& member : record.members())
      if (member.value.is_number() && !is_known(member.key)) others.push_back({.key = member.key, .title = member.key});
  for (Metric& metric : training)
    if (metric.key == "throughput") metric.title = rate_title(records);
  for (const auto* more : {&others, &training}) quality.insert(quality.end(), more->begin(), more->end());
  return quality;
}

Chart chart_of(const Metric& metric) { return {.title = metric.title, .x_label = "epoch", .percent = metric.percent}; }

void choose_scale(Chart& chart, const Metric& metric) {
  // A loss that falls by orders of magnitude shows nothing of its end on a linear axis.
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const Curve& curve : chart.curves)
    for (const auto& point : curve.points) {
      low = std::min(low, point.second);
      high = std::max(high, point.second);
    }
  const bool wide = !metric.percent && low > 0 && high > 50 * low;
  chart.scale = metric.from_zero ? Scale::from_zero : wide ? Scale::logarithmic : Scale::linear;
}

std::vector<std::pair<double, double>> points_of(const std::vector<Json>& records, const std::string& split,
                                                 const std::string& key) {
  std::vector<std::pair<double, double>> points;
  for (const Json& record : records) {
    const auto value = number_at(record, key), epoch = number_at(record, "epoch");
    if (value && epoch && text_at(record, "split") == split) points.emplace_back(*epoch, *value);
  }
  return points;
}

std::string deciding_split(const std::vector<Json>& records) { return last_of(records, "valid") ? "valid" : "test"; }

const Json* last_of(const std::vector<Json>& records, const std::string& split) {
  const auto last = std::find_if(records.rbegin(), records.rend(),
                                 [&](const Json& record) { return text_at(record, "split") == split; });
  return last == records.rend() ? nullptr : &*last;
}

}  // namespace hearth::train
