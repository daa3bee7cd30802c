// SPDX-License-Identifier: Apache-2.0
// The page that compares several runs.
#include <algorithm>
#include <set>

#include "core/text_stream.h"
#include "train/report/compare/verdict.h"
#include "train/report/page.h"
#include "train/report/progress.h"
#include "train/report/report.h"
#include "train/task/report_sections.h"

namespace hearth::train {
namespace {

constexpr std::size_t max_runs = 16;
constexpr std::size_t max_differences = 200;

void write_legend(std::ostream& out, const std::vector<NamedRun>& runs) {
  out << "<p class=\"sub\">";
  for (std::size_t i = 0; i < runs.size(); ++i)
    out << "<span class=\"swatch k" << i % curve_colours << "\"></span>" << html_escaped(runs[i].name) << " ";
  out << "</p>";
}

/// A chart of each metric in training, and of each in the splits that the runs are compared by.
std::vector<Chart> charts_of(const std::vector<NamedRun>& runs, const std::vector<Metric>& metrics) {
  std::vector<Chart> charts;
  for (const Metric& metric : metrics)
    for (const bool training : {true, false}) {
      if (metric.of_training && !training) continue;
      Chart chart = chart_of(metric);
      chart.title += metric.of_training ? "" : training ? ", training" : ", evaluations";
      chart.legend = false;
      for (std::size_t i = 0; i < runs.size(); ++i) {
        const std::vector<Json>& records = runs[i].records.metrics;
        chart.curves.push_back(
            {runs[i].name, points_of(records, training ? "train" : deciding_split(records), metric.key), i});
      }
      choose_scale(chart, metric);
      charts.push_back(std::move(chart));
    }
  return charts;
}

void add_final_metrics(ReportSections& sections, const std::vector<NamedRun>& runs,
                       const std::vector<Metric>& metrics) {
  std::vector<std::string> headings{"run", "status", "time", "steps", "best step", "split"};
  for (const Metric& metric : metrics)
    if (!metric.of_training) headings.push_back(metric.title);
  std::vector<std::vector<std::string>> rows;
  for (const NamedRun& run : runs) {
    const Json& info = run.records.info;
    const Json* const summary = info.find("metrics");
    const auto of_summary = [&](const char* key) { return summary != nullptr ? text_at(*summary, key) : ""; };
    const auto seconds = number_at(info, "seconds");
    // The split that chooses the best checkpoint, and below it the one that is evaluated at the end.
    const std::string deciding = deciding_split(run.records.metrics);
    std::vector<std::string> splits{deciding};
    if (deciding != "test" && last_of(run.records.metrics, "test") != nullptr) splits.emplace_back("test");
    for (const std::string& split : splits) {
      const Json* const last = last_of(run.records.metrics, split);
      std::vector<std::string> row{run.name,           text_at(info, "status"), seconds ? duration_text(*seconds) : "",
                                   of_summary("step"), of_summary("best_step"), last != nullptr ? split : ""};
      for (const Metric& metric : metrics) {
        if (metric.of_training) continue;
        const auto value = last != nullptr ? number_at(*last, metric.key) : std::nullopt;
        row.push_back(value ? metric.text(*value) : "");
      }
      rows.push_back(std::move(row));
    }
  }
  sections.heading("Last evaluations");
  sections.table(headings, rows);
}

void add_verdict(ReportSections& sections, const Verdict& verdict, const std::vector<NamedRun>& runs) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [what, text] : verdict_lines(verdict, runs)) rows.push_back({what, text});
  sections.heading("Verdict");
  sections.table({"", ""}, rows);
}

void add_differences(ReportSections& sections, const Verdict& verdict, const std::vector<NamedRun>& runs) {
  std::vector<std::string> headings{"key"};
  for (const NamedRun& run : runs) headings.push_back(run.name);
  std::vector<std::vector<std::string>> rows = verdict.differences;
  sections.heading("Differences of the configurations");
  if (rows.empty()) return sections.paragraph("There is none.");
  const std::size_t all = rows.size();
  if (all > max_differences) rows.resize(max_differences);
  sections.table(headings, rows);
  if (all > max_differences) sections.paragraph(join_text("the first ", max_differences, " of ", all));
}

}  // namespace

std::string comparison_html(const std::vector<std::string>& folders) {
  HEARTH_CHECK(UsageError, folders.size() >= 2 && folders.size() <= max_runs, "report: ", folders.size(),
               " runs to compare; give 2 to ", max_runs);
  const std::vector<std::string> names = names_of_runs(folders);
  std::vector<NamedRun> runs;
  std::vector<Json> records;
  std::set<std::string> units;
  for (std::size_t i = 0; i < folders.size(); ++i) {
    runs.push_back({names[i], read_run(folders[i])});
    const std::vector<Json>& metrics = runs.back().records.metrics;
    records.insert(records.end(), metrics.begin(), metrics.end());
    for (const Json& record : metrics) units.insert(text_at(record, "unit"));
  }
  units.erase("");
  std::vector<Metric> metrics = metrics_in(records);
  if (units.size() > 1)
    for (Metric& metric : metrics)
      if (metric.key == "throughput") metric.title = "throughput";
  TextStream out;
  begin_page(out, join_text(runs.size(), " runs"));
  write_legend(out, runs);
  ReportSections sections;
  if (units.size() > 1)
    sections.paragraph("These runs do not count the same: their tasks differ, so losses do not compare.");
  const Verdict verdict = verdict_on(runs);
  add_verdict(sections, verdict, runs);
  add_final_metrics(sections, runs, metrics);
  add_differences(sections, verdict, runs);
  out << sections.html();
  write_charts(out, charts_of(runs, metrics));
  end_page(out);
  return out.str();
}

}  // namespace hearth::train
