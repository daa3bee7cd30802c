// SPDX-License-Identifier: Apache-2.0
#include "train/report/report.h"

#include <algorithm>
#include <cmath>

#include "core/io/file.h"
#include "core/text_stream.h"
#include "train/checkpoint/run_folder.h"
#include "train/report/bottlenecks.h"
#include "train/report/device_section.h"
#include "train/report/input_section.h"
#include "train/report/metrics_log.h"
#include "train/report/page.h"
#include "train/report/progress.h"
#include "train/report/timeline.h"
#include "train/task/report_sections.h"

namespace hearth::train {
namespace {

// Rows of evaluations shown; of more, every n-th, the best and the last.
constexpr std::size_t max_table_rows = 40;
// Evaluations whose samples are shown: the first, the last, and some between.
constexpr std::size_t max_samples = 8;

// The value of an object's member, or nothing where the object is absent.
std::optional<double> number_in(const Json* object, std::string_view key) {
  return object ? number_at(*object, key) : std::nullopt;
}

// The same in every chart, whichever splits it has.
constexpr const char* split_order[] = {"train", "valid", "test"};

/// Phases of the steps as parts of their time, but for those that take next to nothing.
Chart phases_chart(const std::vector<Json>& records) {
  constexpr double worth_showing = 0.01;
  std::vector<Curve> curves;
  for (const Json& record : records) {
    const Json* const seconds = record.find("phase_seconds");
    const auto epoch = number_at(record, "epoch");
    if (seconds == nullptr || !seconds->is_object() || !epoch) continue;
    double sum = 0;
    for (const JsonMember& phase : seconds->members()) sum += number_at(*seconds, phase.key).value_or(0);
    for (const JsonMember& phase : seconds->members()) {
      auto curve = std::ranges::find(curves, phase.key, &Curve::name);
      if (curve == curves.end()) curve = curves.insert(curve, {.name = phase.key, .points = {}});
      if (sum > 0) curve->points.emplace_back(*epoch, number_at(*seconds, phase.key).value_or(0) / sum);
    }
  }
  std::erase_if(curves, [&](const Curve& curve) {
    return curve.points.size() < 2 ||
           std::ranges::none_of(curve.points, [&](const auto& point) { return point.second >= worth_showing; });
  });
  return {.title = "time of a step by phase",
          .x_label = "epoch",
          .percent = true,
          .scale = Scale::from_zero,
          .curves = std::move(curves)};
}

// Epochs of the evaluations; none where there are too many to tell apart.
std::vector<double> evaluation_marks(const std::vector<Json>& records) {
  constexpr std::size_t most = 40;
  std::vector<double> marks;
  for (const Json& record : records)
    if (const auto epoch = number_at(record, "epoch"); epoch && text_at(record, "split") != "train")
      marks.push_back(*epoch);
  std::ranges::sort(marks);
  marks.erase(std::unique(marks.begin(), marks.end()), marks.end());
  return marks.size() <= most ? marks : std::vector<double>();
}

std::vector<Chart> charts_of(const std::vector<Json>& records) {
  std::vector<Chart> charts;
  const std::vector<double> evaluations = evaluation_marks(records);
  for (const Metric& metric : metrics_in(records)) {
    Chart chart = chart_of(metric);
    for (std::size_t i = 0; i < std::size(split_order); ++i) {
      if (metric.of_training && i > 0) continue;
      auto points = points_of(records, split_order[i], metric.key);
      if (!points.empty()) chart.curves.push_back({split_order[i], std::move(points), i});
    }
    // One number is in the tiles and the table.
    if (std::ranges::none_of(chart.curves, [](const Curve& curve) { return curve.points.size() > 1; })) continue;
    choose_scale(chart, metric);
    // What is evaluated has its points there.
    if (metric.of_training) chart.marks = evaluations;
    charts.push_back(std::move(chart));
  }
  if (Chart phases = phases_chart(records); !phases.curves.empty()) {
    phases.marks = evaluations;
    charts.push_back(std::move(phases));
  }
  return charts;
}

std::optional<double> median_in_training(const std::vector<Json>& records, std::string_view key) {
  std::vector<double> all;
  for (const Json& record : records)
    if (const auto rate = number_at(record, key); rate && text_at(record, "split") == "train") all.push_back(*rate);
  if (all.empty()) return std::nullopt;
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

void write_status(std::ostream& out, const Json& run_info) {
  out << "<p class=\"sub\">";
  const std::string status = html_escaped(text_at(run_info, "status"));
  if (!status.empty()) out << "<span class=\"status " << status << "\">" << status << "</span>";
  if (const std::string started = text_at(run_info, "started"); !started.empty())
    out << "started " << html_escaped(started) << "  ";
  if (const auto seconds = number_at(run_info, "seconds")) out << "&middot; ran " << duration_text(*seconds);
  const Json* const metrics = run_info.find("metrics");
  if (const std::string reason = metrics != nullptr ? text_at(*metrics, "stop_reason") : ""; !reason.empty())
    out << " &middot; " << html_escaped(reason);
  out << "</p>";
}

void write_tiles(std::ostream& out, const Json& run_info, const std::vector<Json>& records) {
  const auto tile = [&](const std::string& value, const std::string& label) {
    out << "<div class=\"tile\"><b>" << html_escaped(value) << "</b><span>" << html_escaped(label) << "</span></div>";
  };
  out << "<div class=\"tiles\">";
  const Json* const metrics = run_info.find("metrics");
  const std::string deciding = deciding_split(records);
  const Json* const last = last_of(records, deciding);
  const Json* const test = deciding == "test" ? nullptr : last_of(records, "test");
  const std::string best_by = metrics != nullptr ? text_at(*metrics, "best_by") : "", of_valid = "valid ";
  const std::string chosen = best_by.starts_with(of_valid) ? best_by.substr(of_valid.size()) : "accuracy";
  if (const auto best = number_in(metrics, "best_" + chosen))
    tile(chosen == "accuracy" ? percent_text(*best) : rounded(*best, 4), "best " + chosen);
  std::string rate_title;
  for (const Metric& metric : metrics_in(records)) {
    if (metric.key == "throughput") rate_title = metric.title;
    if (metric.of_training) continue;
    const auto shown = [&](double value) { return metric.percent ? percent_text(value) : rounded(value, 4); };
    if (const auto value = number_in(last, metric.key))
      tile(shown(*value), (deciding == "test" ? "final test " : "final ") + metric.title);
    if (const auto value = number_in(test, metric.key))
      tile(shown(*value), "test " + metric.title + (test->find("weights_step") != nullptr ? " of the best" : ""));
  }
  if (const auto steps = number_in(metrics, "step")) tile(rounded(*steps, 12), "steps");
  if (const auto rate = median_in_training(records, "throughput"))
    tile(tick_text(std::round(*rate)), rate_title + " (median)");
  if (const auto part = median_in_training(records, "scaling_efficiency"))
    tile(percent_text(*part), "scaling efficiency (median)");
  out << "</div>";
}

// Samples that were generated at evaluations, oldest first.
std::string samples_over_time(const std::vector<Json>& records) {
  std::vector<const Json*> with;
  for (const Json& record : records)
    if (record.find("figures") != nullptr) with.push_back(&record);
  ReportSections sections;
  if (with.empty()) return "";
  sections.heading("Samples over time");
  const std::size_t count = std::min(with.size(), max_samples);
  for (std::size_t i = 0; i < count; ++i) {
    const Json& record = *with[count == 1 ? 0 : i * (with.size() - 1) / (count - 1)];
    sections.paragraph("step " + text_at(record, "step"));
    sections.figures(record.at("figures"));
  }
  return sections.html();
}

void write_rows(std::ostream& out, const std::vector<const Json*>& rows, const std::vector<Metric>& metrics,
                const Json* best) {
  const std::size_t every = (rows.size() + max_table_rows - 1) / max_table_rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json& row = *rows[i];
    if ((rows.size() - 1 - i) % every != 0 && &row != best) continue;
    const auto epoch = number_at(row, "epoch");
    out << (&row == best ? "<tr class=\"best\"><td>" : "<tr><td>") << html_escaped(text_at(row, "step")) << "</td><td>"
        << (epoch ? rounded(*epoch, 6) : "") << "</td><td>" << html_escaped(text_at(row, "split")) << "</td>";
    for (const Metric& metric : metrics) {
      const auto value = number_at(row, metric.key);
      out << "<td>" << (value ? metric.text(*value) : metric.key == "loss" ? "not finite" : "") << "</td>";
    }
    out << "</tr>";
  }
  out << "</table></div>";
  if (every > 1) out << "<p class=\"sub\">every " << every << "th of " << rows.size() << ", and the best</p>";
}

void write_evaluations(std::ostream& out, const Json& run_info, const std::vector<Json>& records) {
  std::vector<const Json*> rows;
  std::vector<Json> evaluations;
  const Json* best = nullptr;
  const auto best_step = number_in(run_info.find("metrics"), "best_step");
  const std::string deciding = deciding_split(records);
  for (const Json& record : records) {
    if (text_at(record, "split") == "train") continue;
    rows.push_back(&record);
    evaluations.push_back(record);
    if (deciding == "valid" && best_step && number_at(record, "step") == best_step &&
        text_at(record, "split") == deciding)
      best = &record;
  }
  if (rows.empty()) return;
  std::vector<Metric> metrics = metrics_in(evaluations);
  std::erase_if(metrics, [](const Metric& metric) { return metric.of_training; });
  out << "<section><h2>Evaluations</h2><div class=\"across\"><table class=\"numbers\"><tr><th>step</th><th>epoch</th>"
         "<th>split</th>";
  for (const Metric& metric : metrics) out << "<th>" << html_escaped(metric.title) << "</th>";
  out << "</tr>";
  write_rows(out, rows, metrics, best);
  if (deciding == "test")
    out << "<p class=\"sub\">There is no valid split: the best checkpoint is the last one, and no choice was made by "
           "the test split.</p>";
  out << "</section>";
}

void write_facts(std::ostream& out, const Json& node, const std::string& prefix) {
  for (const JsonMember& member : node.members()) {
    // Shown above or below the table, or empty.
    if (member.key == "metrics" || member.key == "profile" || member.key == "seconds" || member.key == "step_trace" ||
        member.key == "device_profile" || member.key == "bad_samples" || member.key == "cost" ||
        text_of(member.value).empty())
      continue;
    if (member.value.is_object()) {
      write_facts(out, member.value, prefix + member.key + " ");
    } else {
      out << "<tr><th>" << html_escaped(prefix + member.key) << "</th><td>" << html_escaped(text_of(member.value))
          << "</td></tr>";
    }
  }
}

// Numbers of one kind as bars, each as long as its part of the largest.
template <class Text>
void add_bars(ReportSections& sections, const std::vector<std::pair<std::string, double>>& numbers, const Text& text) {
  double largest = 0;
  for (const auto& number : numbers) largest = std::max(largest, number.second);
  std::vector<ReportSections::Bar> bars;
  for (const auto& [name, value] : numbers) bars.push_back({name, text(value), largest > 0 ? value / largest : 0});
  sections.bars(bars);
}

std::vector<std::pair<std::string, double>> numbers_in(const Json& object) {
  std::vector<std::pair<std::string, double>> numbers;
  if (!object.is_object()) return numbers;
  for (const JsonMember& member : object.members())
    if (member.value.is_number()) numbers.emplace_back(member.key, member.value.as_number());
  return numbers;
}

// Each rank's last step before an evaluation.
std::string step_section(const Json& run_info) {
  const Json* const trace = run_info.find("step_trace");
  const std::string svg = trace != nullptr ? timeline_svg(*trace) : "";
  if (svg.empty()) return "";
  const std::size_t ranks = trace->at("ranks").size();
  return join_text("<section><h2>A step by rank</h2><p class=\"sub\">Step ", html_escaped(text_at(*trace, "step")),
                   ", ", ranks > max_lanes ? join_text("the first ", max_lanes, " of ") : "", ranks,
                   " ranks, from when all have told what they have. Collectives below the backward pass are hidden; "
                   "what waits is exposed.</p>",
                   svg, "</section>");
}

// Samples that could not be read, as run.json tells them.
std::string bad_samples_section(const Json& run_info) {
  const Json* const bad = run_info.find("bad_samples");
  if (bad == nullptr || !bad->is_object()) return "";
  TextStream out;
  out << "<section><h2>Bad samples</h2><p class=\"sub\">Other samples stood in for them.</p><table>"
      << "<tr><th>Split</th><th>Sample</th><th>Name</th><th>Fault</th></tr>";
  for (const JsonMember& split : bad->members()) {
    const Json& first = split.value.at("first");
    for (const Json& one : first.items())
      out << "<tr><td>" << html_escaped(split.key) << "</td><td>" << html_escaped(text_at(one, "sample")) << "</td><td>"
          << html_escaped(text_at(one, "name")) << "</td><td>" << html_escaped(text_at(one, "fault")) << "</td></tr>";
    const std::int64_t count = split.value.at("count").as_integer(), listed = static_cast<std::int64_t>(first.size());
    if (count > listed)
      out << "<tr><td>" << html_escaped(split.key) << "</td><td>and " << count - listed
          << " more</td><td></td><td></td></tr>";
  }
  out << "</table></section>";
  return out.str();
}

// What cost the most time, and what to change.
std::string bottleneck_section(const RunRecords& run) {
  ReportSections sections;
  const std::vector<Bottleneck> all = bottlenecks(run);
  if (all.empty()) return "";
  sections.heading("Where time was lost");
  std::vector<ReportSections::Bar> bars;
  for (const Bottleneck& one : all)
    bars.push_back({one.cause, join_text(one.measured ? "" : "about ", rounded(one.seconds, 3), " s"),
                    one.seconds / all[0].seconds});
  sections.bars(bars);
  for (const Bottleneck& one : all) sections.paragraph(one.cause + ": " + one.text + ".");
  return sections.html();
}

// Where time and memory went, as run.json tells it.
std::string profile_sections(const Json& run_info) {
  const Json* const profile = run_info.find("profile");
  if (profile == nullptr || !profile->is_object()) return "";
  ReportSections sections;
  if (const Json* const seconds = profile->find("seconds")) {
    sections.heading("Time");
    add_bars(sections, numbers_in(*seconds), [](double value) { return rounded(value, 3) + " s"; });
  }
  if (const Json* const ops = profile->find("step_milliseconds"); ops != nullptr && ops->size() > 0) {
    sections.heading("Time of a training step by operation");
    add_bars(sections, numbers_in(*ops), [](double value) { return rounded(value, 3) + " ms"; });
  }
  if (const Json* const bytes = profile->find("bytes")) {
    sections.heading("Memory");
    add_bars(sections, numbers_in(*bytes), bytes_text);
  }
  return sections.html();
}

}  // namespace

std::string cost_text(const Json& cost) {
  if (!cost.is_object() || cost.find("hours") == nullptr) return "";
  std::string text = duration_text(3600 * cost.at("hours").as_number());
  for (const auto& [key, of] :
       {std::pair("device_kwh", " kWh of devices"), {"machine_kwh", " kWh of processors and memory"}})
    if (const Json* const kwh = cost.find(key)) text += join_text(", ", rounded(kwh->as_number(), 3), of);
  if (const Json* const price = cost.find("price")) text += ", price " + rounded(price->as_number(), 4);
  return text;
}

std::string report_html(const Json& run_info, const Json& config, const std::vector<Json>& records,
                        const std::string& sections) {
  const std::string name = text_at(config, "name");
  TextStream out;
  begin_page(out, name.empty() ? "run" : name);
  write_status(out, run_info);
  write_tiles(out, run_info, records);
  write_charts(out, charts_of(records));
  out << samples_over_time(records) << sections << "<div class=\"columns\">";
  write_evaluations(out, run_info, records);
  if (run_info.is_object() && run_info.size() > 0) {
    out << "<section><h2>Run</h2><table class=\"facts\">";
    if (const Json* const cost = run_info.find("cost"))
      out << "<tr><th>cost</th><td>" << html_escaped(cost_text(*cost)) << "</td></tr>";
    write_facts(out, run_info, "");
    out << "</table></section>";
  }
  out << "</div>" << bottleneck_section({run_info, config, records}) << input_section(records) << step_section(run_info)
      << (run_info.find("device_profile") != nullptr ? device_section(run_info.at("device_profile")) : "")
      << profile_sections(run_info) << bad_samples_section(run_info) << "<h2>Config</h2><pre>"
      << html_escaped(to_text(config, 2)) << "</pre>";
  end_page(out);
  return out.str();
}

void write_report(const std::string& folder, std::int64_t best_step) {
  RunRecords run = read_run(folder, best_step);
  if (best_step >= 0) {
    Json metrics = run.info.find("metrics") ? run.info.at("metrics") : Json::object();
    run.info.set("metrics", metrics.set("best_step", best_step));
  }
  write_file_synced(folder + "/report.html", report_html(run.info, run.config, run.metrics));
}

void write_report(const std::string& folder, const std::string& path, const std::string& sections) {
  const RunRecords run = read_run(folder);
  write_file_synced(path, report_html(run.info, run.config, run.metrics, sections));
}

RunRecords read_run(const std::string& folder, std::int64_t best_step) {
  for (const char* name : {"config.json", "metrics.jsonl"})
    HEARTH_CHECK(FileError, file_exists(folder + "/" + name), folder, ": holds no run: there is no ", name,
                 " in it; give the folder that `hearth train` wrote, as in runs/digits");
  const std::string info_path = folder + "/run.json";
  Json info = file_exists(info_path) ? read_json(info_path, small_file) : Json::object();
  for (const char* more : {"step_trace", "device_profile"})
    if (const std::string path = join_text(folder, "/", more, ".json"); file_exists(path))
      info.set(more, read_json(path, small_file));
  if (const auto known = number_in(info.find("metrics"), "best_step"); known && best_step < 0)
    best_step = static_cast<std::int64_t>(*known);
  return {std::move(info), read_json(folder + "/config.json", small_file),
          read_metrics(folder + "/metrics.jsonl", best_step)};
}

}  // namespace hearth::train
