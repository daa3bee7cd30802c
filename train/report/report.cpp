// SPDX-License-Identifier: Apache-2.0
#include "train/report/report.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <map>
#include <optional>

#include "core/io/file.h"
#include "core/text_stream.h"
#include "train/report/metrics_log.h"
#include "train/report/plot.h"
#include "train/report/progress.h"

namespace hearth::train {
namespace {

constexpr const char* style = R"(
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2126; --faint: #66707a; --line: #dfe3e8; --panel: #f6f7f9;
  --c0: #2563c9; --c1: #d9480f; --c2: #2b8a3e; --finished: #2b8a3e; --running: #2563c9; --stopped: #b35c00; --failed: #c92a2a; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181c; --ink: #e6e9ec; --faint: #98a2ad; --line: #2c333a;
  --panel: #1b2026; --c0: #6ea8fe; --c1: #ff9a62; --c2: #69db7c; --finished: #69db7c; --running: #6ea8fe; --stopped: #ffc078;
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
polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
polyline.c0 { stroke: var(--c0); } polyline.c1 { stroke: var(--c1); } polyline.c2 { stroke: var(--c2); }
circle.c0, svg text.l0 { fill: var(--c0); } circle.c1, svg text.l1 { fill: var(--c1); } circle.c2, svg text.l2 { fill: var(--c2); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; } td, th { padding: .25rem 1.2rem .25rem 0;
  border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; } th { font-weight: 600; color: var(--faint); }
.numbers td, .numbers th { text-align: right; } .numbers .best td { font-weight: 700; color: var(--finished); }
.facts th { white-space: nowrap; } .facts td { overflow-wrap: anywhere; padding-right: 0; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .8rem; overflow-x: auto; font-size: 13px; }
@media print { body { margin: 0; max-width: none; } .charts > div, .tile, tr { break-inside: avoid; }
  pre { white-space: pre-wrap; } }
)";

// Rows of evaluations shown; of more, every n-th, the best and the last.
constexpr std::size_t most_rows = 40;

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

std::string percent(double share) {
  TextStream out;
  out << std::fixed << std::setprecision(2) << 100 * share << " %";
  return out.str();
}

// The same in every chart, whichever splits it has.
std::optional<std::size_t> colour_of_split(const std::string& split) {
  if (split == "train") return 0;
  if (split == "valid") return 1;
  return split == "test" ? std::optional<std::size_t>(2) : std::nullopt;
}

// Curves of one key over the epochs, a curve a split.
Chart chart_of(const std::vector<Json>& records, const std::string& key, const std::string& title) {
  Chart chart;
  chart.title = title;
  chart.x_label = "epoch";
  std::map<std::string, std::size_t> index;
  for (const Json& record : records) {
    const auto value = number_at(record, key), epoch = number_at(record, "epoch");
    if (!value || !epoch) continue;
    const std::string split = text_at(record, "split");
    const auto [entry, is_new] = index.emplace(split, chart.curves.size());
    if (is_new) chart.curves.push_back({split, {}, colour_of_split(split)});
    chart.curves[entry->second].points.emplace_back(*epoch, *value);
  }
  return chart;
}

// A loss that falls by orders of magnitude shows nothing of its end on a linear axis.
Scale scale_of(const Chart& chart) {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const Curve& curve : chart.curves)
    for (const auto& point : curve.points) {
      low = std::min(low, point.second);
      high = std::max(high, point.second);
    }
  return low > 0 && high > 50 * low ? Scale::logarithmic : Scale::linear;
}

// The value of an object's member, or nothing where the object is absent.
std::optional<double> number_in(const Json* object, std::string_view key) {
  return object ? number_at(*object, key) : std::nullopt;
}

// The split that the run was judged by, as training chooses it.
std::string judged_split(const std::vector<Json>& records) {
  const bool has_valid = std::any_of(records.begin(), records.end(),
                                     [](const Json& record) { return text_at(record, "split") == "valid"; });
  return has_valid ? "valid" : "test";
}

const Json* last_of(const std::vector<Json>& records, const std::string& split) {
  const auto last = std::find_if(records.rbegin(), records.rend(),
                                 [&](const Json& record) { return text_at(record, "split") == split; });
  return last == records.rend() ? nullptr : &*last;
}

// Whether the pieces of a text are predicted, of which the best is that of least loss.
bool predicts_tokens(const std::vector<Json>& records) {
  return std::any_of(records.begin(), records.end(),
                     [](const Json& record) { return text_at(record, "unit") == "tokens/s"; });
}

// What throughput counts: "images per second", "tokens per second", ...
std::string rate_label(const std::vector<Json>& records) {
  std::string unit;
  for (const Json& record : records)
    if (unit.empty()) unit = text_at(record, "unit");
  return (unit.empty() ? "images" : unit.substr(0, unit.find('/'))) + " per second";
}

std::vector<Chart> charts_of(const std::vector<Json>& records) {
  Chart loss = chart_of(records, "loss", "loss");
  loss.scale = scale_of(loss);
  Chart perplexity = chart_of(records, "perplexity", "perplexity");
  perplexity.scale = scale_of(perplexity);
  const Chart bits = chart_of(records, "bits_per_character", "bits a character");
  Chart accuracy = chart_of(records, "accuracy", "accuracy");
  accuracy.percent = true;
  Chart lr = chart_of(records, "lr", "learning rate");
  lr.scale = Scale::from_zero;
  Chart throughput = chart_of(records, "throughput", rate_label(records));
  std::erase_if(throughput.curves, [](const Curve& curve) { return curve.name != "train"; });
  throughput.scale = Scale::from_zero;
  Chart grad_norm = chart_of(records, "grad_norm", "gradient norm");
  grad_norm.scale = scale_of(grad_norm);
  return {loss, perplexity, bits, accuracy, lr, throughput, grad_norm};
}

std::optional<double> median_throughput(const std::vector<Json>& records) {
  std::vector<double> all;
  for (const Json& record : records)
    if (const auto rate = number_at(record, "throughput"); rate && text_at(record, "split") == "train")
      all.push_back(*rate);
  if (all.empty()) return std::nullopt;
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

void write_head(std::ostream& out, const std::string& title, const Json& run_info) {
  out << "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
         "content=\"width=device-width\"><title>"
      << html_escaped(title) << "</title><style>" << style << "</style></head><body><h1>" << html_escaped(title)
      << "</h1><p class=\"sub\">";
  const std::string status = html_escaped(text_at(run_info, "status"));
  if (!status.empty()) out << "<span class=\"status " << status << "\">" << status << "</span>";
  if (const std::string started = text_at(run_info, "started"); !started.empty())
    out << "started " << html_escaped(started) << "  ";
  if (const auto seconds = number_at(run_info, "seconds")) out << "&middot; ran " << duration_text(*seconds);
  out << "</p>";
}

void write_tiles(std::ostream& out, const Json& run_info, const std::vector<Json>& records) {
  const auto tile = [&](const std::string& value, const std::string& label) {
    out << "<div class=\"tile\"><b>" << html_escaped(value) << "</b><span>" << html_escaped(label) << "</span></div>";
  };
  const auto share = [&](std::optional<double> value, const char* label) {
    if (value) tile(percent(*value), label);
  };
  const auto number = [&](std::optional<double> value, int digits, const char* label) {
    if (value) tile(rounded(*value, digits), label);
  };
  out << "<div class=\"tiles\">";
  const Json* const metrics = run_info.find("metrics");
  const std::string judged = judged_split(records);
  const Json* const test = judged == "test" ? nullptr : last_of(records, "test");
  if (predicts_tokens(records)) {
    const Json* const last = last_of(records, judged);
    number(number_in(metrics, "best_loss"), 4, "best loss");
    number(number_in(metrics, "loss"), 4, "final loss");
    number(number_in(last, "perplexity"), 4, "final perplexity");
    number(number_in(last, "bits_per_character"), 4, "final bits a character");
    number(number_in(test, "loss"), 4, "test loss");
  } else {
    share(number_in(metrics, "best_accuracy"), "best accuracy");
    share(number_in(metrics, "accuracy"), judged == "test" ? "final test accuracy" : "final accuracy");
    number(number_in(metrics, "loss"), 4, judged == "test" ? "final test loss" : "final loss");
    share(number_in(test, "accuracy"), "test accuracy");
  }
  number(number_in(metrics, "step"), 12, "steps");
  if (const auto rate = median_throughput(records))
    tile(tick_text(std::round(*rate)), rate_label(records) + " (median)");
  out << "</div>";
}

// What texts have beside loss and accuracy: key and heading.
constexpr std::pair<const char*, const char*> text_columns[] = {{"perplexity", "perplexity"},
                                                                {"bits_per_character", "bits a character"}};

void write_evaluations(std::ostream& out, const Json& run_info, const std::vector<Json>& records) {
  std::vector<const Json*> rows;
  const Json* best = nullptr;
  const auto best_step = number_in(run_info.find("metrics"), "best_step");
  const std::string judged = judged_split(records);
  for (const Json& record : records) {
    if (text_at(record, "split") == "train") continue;
    rows.push_back(&record);
    if (judged == "valid" && best_step && number_at(record, "step") == best_step && text_at(record, "split") == judged)
      best = &record;
  }
  if (rows.empty()) return;
  out << "<section><h2>Evaluations</h2><table class=\"numbers\"><tr><th>step</th><th>epoch</th><th>split</th>"
         "<th>loss</th><th>accuracy</th>";
  std::vector<const char*> further;
  for (const auto& [key, heading] : text_columns) {
    if (std::none_of(rows.begin(), rows.end(),
                     [key = key](const Json* row) { return number_at(*row, key).has_value(); }))
      continue;
    further.push_back(key);
    out << "<th>" << heading << "</th>";
  }
  out << "</tr>";
  const std::size_t every = (rows.size() + most_rows - 1) / most_rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json& row = *rows[i];
    if ((rows.size() - 1 - i) % every != 0 && &row != best) continue;
    const auto epoch = number_at(row, "epoch"), loss = number_at(row, "loss"), accuracy = number_at(row, "accuracy");
    out << (&row == best ? "<tr class=\"best\"><td>" : "<tr><td>") << html_escaped(text_at(row, "step")) << "</td><td>"
        << (epoch ? rounded(*epoch, 6) : "") << "</td><td>" << html_escaped(text_at(row, "split")) << "</td><td>"
        << (loss ? rounded(*loss, 5) : "not finite") << "</td><td>" << (accuracy ? percent(*accuracy) : "") << "</td>";
    for (const char* key : further) {
      const auto value = number_at(row, key);
      out << "<td>" << (value ? rounded(*value, 5) : "") << "</td>";
    }
    out << "</tr>";
  }
  out << "</table>";
  if (every > 1) out << "<p class=\"sub\">every " << every << "th of " << rows.size() << ", and the best</p>";
  if (judged == "test")
    out << "<p class=\"sub\">There is no valid split: the best checkpoint is the last one, and no choice was made by "
           "the test split.</p>";
  out << "</section>";
}

void write_facts(std::ostream& out, const Json& node, const std::string& prefix) {
  for (const JsonMember& member : node.members()) {
    // Shown above the table, or empty.
    if (member.key == "metrics" || member.key == "seconds" || text_of(member.value).empty()) continue;
    if (member.value.is_object()) {
      write_facts(out, member.value, prefix + member.key + " ");
    } else {
      out << "<tr><th>" << html_escaped(prefix + member.key) << "</th><td>" << html_escaped(text_of(member.value))
          << "</td></tr>";
    }
  }
}

}  // namespace

std::string report_html(const Json& run_info, const Json& config, const std::vector<Json>& records) {
  const std::string name = text_at(config, "name");
  TextStream out;
  write_head(out, name.empty() ? "run" : name, run_info);
  write_tiles(out, run_info, records);
  out << "<h2>Curves</h2><div class=\"charts\">";
  for (const Chart& chart : charts_of(records)) {
    const std::string svg = to_svg(chart);
    if (!svg.empty()) out << "<div>" << svg << "</div>";
  }
  out << "</div><div class=\"columns\">";
  write_evaluations(out, run_info, records);
  if (run_info.is_object() && run_info.size() > 0) {
    out << "<section><h2>Run</h2><table class=\"facts\">";
    write_facts(out, run_info, "");
    out << "</table></section>";
  }
  out << "</div><h2>Config</h2><pre>" << html_escaped(to_text(config, 2)) << "</pre></body></html>\n";
  return out.str();
}

void write_report(const std::string& folder, std::int64_t best_step) {
  const std::string path = folder + "/run.json";
  Json info = file_exists(path) ? read_json(path, small_file) : Json::object();
  if (best_step >= 0) {
    Json metrics = info.find("metrics") ? info.at("metrics") : Json::object();
    info.set("metrics", metrics.set("best_step", best_step));
  }
  write_file_synced(folder + "/report.html", report_html(info, read_json(folder + "/config.json", small_file),
                                                         read_metrics(folder + "/metrics.jsonl")));
}

}  // namespace hearth::train
