// SPDX-License-Identifier: Apache-2.0
#include "train/report/compare/verdict.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <limits>
#include <set>

#include "core/error.h"
#include "core/text_stream.h"
#include "train/report/page.h"

namespace hearth::train {
namespace {

void flatten_into(const Json& node, const std::string& path, std::map<std::string, std::string>& values) {
  if (!node.is_object() || node.size() == 0) {
    values[path] = text_of(node);
    return;
  }
  for (const JsonMember& member : node.members())
    flatten_into(member.value, path.empty() ? member.key : path + "." + member.key, values);
}

/// Whether a value does not change what a run learns, or is its seed.
bool is_aside(const std::string& path) {
  for (const char* const whole : {"name", "comment", "seed", "$schema"})
    if (path == whole) return true;
  return path.starts_with("log.") || path.starts_with("checkpoint.");
}

std::map<std::string, std::string> what_is_learned(const NamedRun& run) {
  std::map<std::string, std::string> values = flat_config(run.records.config);
  std::erase_if(values, [](const auto& value) { return is_aside(value.first); });
  return values;
}

std::vector<RunGroup> groups_of(const std::vector<NamedRun>& runs) {
  std::vector<RunGroup> groups;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto same = std::ranges::find_if(groups, [&](const RunGroup& group) {
      return what_is_learned(runs[group.runs[0]]) == what_is_learned(runs[i]);
    });
    if (same == groups.end())
      groups.push_back({{i}});
    else
      same->runs.push_back(i);
  }
  return groups;
}

struct Sample {
  double mean = 0, variance = 0;
  std::size_t count = 0;
};

Sample sample_of(const std::vector<double>& values) {
  Sample sample{.count = values.size()};
  for (const double value : values) sample.mean += value / static_cast<double>(values.size());
  for (const double value : values) sample.variance += (value - sample.mean) * (value - sample.mean);
  if (values.size() > 1) sample.variance /= static_cast<double>(values.size() - 1);
  return sample;
}

/// How often chance makes such a difference; nothing where no seeds tell how much chance there is.
struct TestResult {
  std::optional<double> p;
  const char* test = "";
};

TestResult compare_samples(const Sample& a, const Sample& b) {
  if (a.count < 2 && b.count < 2) return {};
  const auto of_a = static_cast<double>(a.count), of_b = static_cast<double>(b.count);
  if (a.count >= 2 && b.count >= 2) {
    const double va = a.variance / of_a, vb = b.variance / of_b;
    if (va + vb == 0) return {a.mean == b.mean ? 1.0 : 0.0, "Welch's t-test"};
    const double freedom = (va + vb) * (va + vb) / (va * va / (of_a - 1) + vb * vb / (of_b - 1));
    return {two_sided_p((a.mean - b.mean) / std::sqrt(va + vb), freedom), "Welch's t-test"};
  }
  const Sample& seeds = a.count >= 2 ? a : b;
  const auto count = static_cast<double>(seeds.count);
  const double spread = std::sqrt(seeds.variance * (1 + 1 / count));
  if (spread == 0) return {a.mean == b.mean ? 1.0 : 0.0, "t-test of one run"};
  return {two_sided_p((a.mean - b.mean) / spread, count - 1), "t-test of one run"};
}

std::vector<double> values_of(const std::vector<NamedRun>& runs, const RunGroup& group, const std::string& split,
                              const std::string& key) {
  std::vector<double> values;
  for (const std::size_t run : group.runs)
    if (const Json* const last = last_of(runs[run].records.metrics, split))
      if (const auto value = number_at(*last, key)) values.push_back(*value);
  return values;
}

MetricVerdict judge_metric(const Metric& metric, const std::string& split, std::size_t group, const Sample& first,
                           const Sample& other) {
  MetricVerdict verdict{.metric = metric.key,
                        .split = split,
                        .group = group,
                        .first_mean = first.mean,
                        .mean = other.mean,
                        .p = {},
                        .text = ""};
  const TestResult test = compare_samples(first, other);
  verdict.p = test.p;
  verdict.differs = test.p && *test.p < test_level;
  if (test.p)
    verdict.text = join_text(verdict.differs ? "different" : "equal within the band of seeds", " (", test.test,
                             ", p = ", std::setprecision(2), *test.p, ", level ", test_level, ")");
  else if (first.mean == other.mean)
    verdict.text = "the same in one run each";
  else
    verdict.text = "unknown: one run each has no band of seeds; train more seeds";
  return verdict;
}

std::vector<MetricVerdict> judge_metrics(const std::vector<NamedRun>& runs, const std::vector<RunGroup>& groups) {
  std::vector<Json> records;
  for (const NamedRun& run : runs)
    records.insert(records.end(), run.records.metrics.begin(), run.records.metrics.end());
  std::vector<MetricVerdict> all;
  std::set<std::string> splits{deciding_split(runs[0].records.metrics), "test"};
  for (std::size_t group = 1; group < groups.size(); ++group)
    for (const std::string& split : splits)
      for (const Metric& metric : metrics_in(records)) {
        if (metric.of_training) continue;
        const std::vector<double> first = values_of(runs, groups[0], split, metric.key),
                                  other = values_of(runs, groups[group], split, metric.key);
        if (!first.empty() && !other.empty())
          all.push_back(judge_metric(metric, split, group, sample_of(first), sample_of(other)));
      }
  return all;
}

/// What a deterministic run computes, and no clock.
constexpr const char* exact_keys[] = {"loss", "accuracy", "grad_norm", "lr"};

BitsVerdict compare_bits(const std::vector<NamedRun>& runs, std::size_t first, std::size_t second) {
  BitsVerdict verdict{.first = first, .second = second, .step = {}, .text = ""};
  std::map<std::pair<std::string, std::int64_t>, const Json*> lines;
  for (const Json& record : runs[first].records.metrics)
    if (const auto step = number_at(record, "step"))
      lines[{text_at(record, "split"), static_cast<std::int64_t>(*step)}] = &record;
  for (const Json& record : runs[second].records.metrics) {
    const auto step = static_cast<std::int64_t>(number_at(record, "step").value_or(-1));
    const auto other = lines.find({text_at(record, "split"), step});
    if (other == lines.end()) continue;
    for (const char* const key : exact_keys) {
      const auto a = number_at(*other->second, key), b = number_at(record, key);
      if (a == b || (verdict.step && *verdict.step <= step)) continue;
      verdict.step = step;
      verdict.text = join_text("differ first at step ", step, ": ", key, " ", std::setprecision(9),
                               a.value_or(std::nan("")), " and ", b.value_or(std::nan("")));
    }
  }
  const auto weights = [&](std::size_t run) {
    const Json* const metrics = runs[run].records.info.find("metrics");
    return metrics == nullptr ? std::string() : text_at(*metrics, "weights_sha256");
  };
  if (!verdict.text.empty()) return verdict;
  if (!weights(first).empty() && weights(first) == weights(second))
    verdict.text = "the same bits to the end";
  else
    verdict.text = "no line of metrics differs, and the last weights do";
  return verdict;
}

std::vector<BitsVerdict> compare_bits_of_pairs(const std::vector<NamedRun>& runs) {
  std::vector<BitsVerdict> all;
  for (std::size_t i = 1; i < runs.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (text_at(runs[i].records.config, "seed") == text_at(runs[j].records.config, "seed")) {
        all.push_back(compare_bits(runs, j, i));
        break;
      }
  return all;
}

bool reaches(double value, const Target& target) {
  return target.lower_is_better ? value <= target.value : value >= target.value;
}

/// What all runs reach of their deciding split.
std::optional<Target> common_target(const std::vector<NamedRun>& runs) {
  for (const char* const key : {"accuracy", "loss"}) {
    Target target{.metric = key, .value = 0, .lower_is_better = std::string_view(key) == "loss"};
    bool everywhere = true;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      std::optional<double> best;
      for (const Json& record : runs[i].records.metrics)
        if (text_at(record, "split") == deciding_split(runs[i].records.metrics))
          if (const auto value = number_at(record, key))
            best = !best ? *value : target.lower_is_better ? std::min(*best, *value) : std::max(*best, *value);
      everywhere = everywhere && best;
      if (!best) break;
      target.value = i == 0                   ? *best
                     : target.lower_is_better ? std::max(target.value, *best)
                                              : std::min(target.value, *best);
    }
    if (everywhere) return target;
  }
  return std::nullopt;
}

TargetTime time_to(const NamedRun& run, const Target& target) {
  TargetTime time;
  const std::vector<Json>& metrics = run.records.metrics;
  const std::string split = deciding_split(metrics);
  for (const Json& record : metrics) {
    const auto value = number_at(record, target.metric);
    if (text_at(record, "split") == split && value && reaches(*value, target)) {
      time.step = static_cast<std::int64_t>(number_at(record, "step").value_or(0));
      break;
    }
  }
  if (!time.step) return time;
  for (const Json& record : metrics) {
    if (text_at(record, "split") != "train" || number_at(record, "step").value_or(0) > static_cast<double>(*time.step))
      continue;
    if (const Json* const phases = record.find("phase_seconds"); phases != nullptr && phases->is_object())
      for (const JsonMember& phase : phases->members())
        time.seconds = time.seconds.value_or(0) + number_at(*phases, phase.key).value_or(0);
    if (const auto joules = number_at(record, "device_energy")) time.joules = time.joules.value_or(0) + *joules;
  }
  return time;
}

std::vector<std::vector<std::string>> differences_of(const std::vector<NamedRun>& runs) {
  std::vector<std::map<std::string, std::string>> configs;
  std::set<std::string> paths;
  for (const NamedRun& run : runs) {
    configs.push_back(flat_config(run.records.config));
    for (const auto& value : configs.back()) paths.insert(value.first);
  }
  std::vector<std::vector<std::string>> rows;
  for (const std::string& path : paths) {
    std::vector<std::string> row{path};
    std::set<std::string> different;
    for (const auto& config : configs) {
      const auto value = config.find(path);
      row.push_back(value != config.end() ? value->second : "");
      different.insert(row.back());
    }
    if (different.size() > 1 && path != "name" && path != "comment") rows.push_back(std::move(row));
  }
  return rows;
}

std::string names_in(const RunGroup& group, const std::vector<NamedRun>& runs) {
  std::string text;
  for (const std::size_t run : group.runs) text += (text.empty() ? "" : ", ") + runs[run].name;
  return text;
}

Json names_json(const RunGroup& group, const std::vector<NamedRun>& runs) {
  Json names = Json::array();
  for (const std::size_t run : group.runs) names.push_back(runs[run].name);
  return names;
}

}  // namespace

std::map<std::string, std::string> flat_config(const Json& config) {
  std::map<std::string, std::string> values;
  flatten_into(config, "", values);
  return values;
}

std::vector<std::string> names_of_runs(const std::vector<std::string>& folders) {
  std::vector<std::string> names;
  for (const std::string& folder : folders) {
    const std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
    names.push_back((path.has_filename() ? path : path.parent_path()).filename().string());
  }
  if (std::set<std::string>(names.begin(), names.end()).size() == names.size()) return names;
  return folders;
}

// P(|T| >= t) = I_x(v/2, 1/2) at x = v / (v + t^2), the regularized incomplete beta function; its continued fraction by
// Lentz's method (Abramowitz and Stegun 26.5.8).
double two_sided_p(double t, double degrees_of_freedom) {
  const double a = degrees_of_freedom / 2, b = 0.5;
  const double x = degrees_of_freedom / (degrees_of_freedom + t * t);
  if (x >= 1) return 1;
  if (!(x > 0)) return 0;
  const auto fraction = [](double p, double q, double at) {
    constexpr double tiny = 1e-300, enough = 1e-14;
    constexpr int most_terms = 1000;
    double c = 1, d = 1 / std::max(std::abs(1 - (p + q) * at / (p + 1)), tiny), result = d;
    for (int i = 1; i < most_terms; ++i) {
      const double even = i * (q - i) * at / ((p + 2 * i - 1) * (p + 2 * i));
      const double odd = -(p + i) * (p + q + i) * at / ((p + 2 * i) * (p + 2 * i + 1));
      double change = 1;
      for (const double term : {even, odd}) {
        d = 1 + term * d;
        c = 1 + term / c;
        d = 1 / (std::abs(d) < tiny ? tiny : d);
        if (std::abs(c) < tiny) c = tiny;
        change = d * c;
        result *= change;
      }
      if (std::abs(change - 1) < enough) break;
    }
    return result;
  };
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  // The fraction converges fast on this side of the mean.
  return x < (a + 1) / (a + b + 2) ? front * fraction(a, b, x) / a : 1 - front * fraction(b, a, 1 - x) / b;
}

Verdict verdict_on(const std::vector<NamedRun>& runs, std::optional<Target> target) {
  Verdict verdict;
  verdict.groups = groups_of(runs);
  verdict.metrics = judge_metrics(runs, verdict.groups);
  verdict.bits = compare_bits_of_pairs(runs);
  const bool is_named = target.has_value();
  verdict.target = is_named ? target : common_target(runs);
  bool is_measured = false;
  for (const NamedRun& run : runs) {
    verdict.times.push_back(verdict.target ? time_to(run, *verdict.target) : TargetTime{});
    for (const Json& record : run.records.metrics)
      is_measured =
          is_measured || (is_named && text_at(record, "split") != "train" && number_at(record, target->metric));
  }
  HEARTH_CHECK(UsageError, !is_named || is_measured, "compare: no evaluation of these runs has the metric \"",
               target->metric, "\"");
  verdict.differences = differences_of(runs);
  return verdict;
}

Json to_json(const Verdict& verdict, const std::vector<NamedRun>& runs) {
  Json groups = Json::array(), metrics = Json::array(), bits = Json::array(), times = Json::array();
  for (const RunGroup& group : verdict.groups) groups.push_back(names_json(group, runs));
  for (const MetricVerdict& metric : verdict.metrics)
    metrics.push_back(Json::object()
                          .set("metric", metric.metric)
                          .set("split", metric.split)
                          .set("first", names_json(verdict.groups[0], runs))
                          .set("other", names_json(verdict.groups[metric.group], runs))
                          .set("first_mean", metric.first_mean)
                          .set("other_mean", metric.mean)
                          .set("p", metric.p ? Json(*metric.p) : Json())
                          .set("differs", metric.p ? Json(metric.differs) : Json())
                          .set("verdict", metric.text));
  for (const BitsVerdict& pair : verdict.bits)
    bits.push_back(Json::object()
                       .set("first", runs[pair.first].name)
                       .set("second", runs[pair.second].name)
                       .set("step", pair.step ? Json(*pair.step) : Json())
                       .set("verdict", pair.text));
  const auto number = [](const auto& value) { return value ? Json(*value) : Json(); };
  for (std::size_t i = 0; i < verdict.times.size(); ++i)
    times.push_back(Json::object()
                        .set("run", runs[i].name)
                        .set("step", number(verdict.times[i].step))
                        .set("seconds", number(verdict.times[i].seconds))
                        .set("joules", number(verdict.times[i].joules)));
  Json result = Json::object().set("groups", groups).set("level", test_level).set("metrics", metrics).set("bits", bits);
  if (verdict.target)
    result.set(
        "target",
        Json::object().set("metric", verdict.target->metric).set("value", verdict.target->value).set("runs", times));
  Json differences = Json::object();
  for (const std::vector<std::string>& row : verdict.differences)
    differences.set(row[0], Json::array_of(std::vector<std::string>(row.begin() + 1, row.end())));
  return result.set("differences", differences);
}

std::vector<std::pair<std::string, std::string>> verdict_lines(const Verdict& verdict,
                                                               const std::vector<NamedRun>& runs) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (std::size_t i = 0; i < verdict.groups.size(); ++i)
    lines.emplace_back(join_text("group ", i + 1), names_in(verdict.groups[i], runs));
  for (const MetricVerdict& metric : verdict.metrics)
    lines.emplace_back(metric.metric + ", " + metric.split,
                       join_text(rounded(metric.first_mean, 5), " in group 1, ", rounded(metric.mean, 5), " in group ",
                                 metric.group + 1, ": ", metric.text));
  for (const BitsVerdict& pair : verdict.bits)
    lines.emplace_back("bits", runs[pair.first].name + " and " + runs[pair.second].name + ": " + pair.text);
  for (std::size_t i = 0; verdict.target && i < runs.size(); ++i) {
    const TargetTime& time = verdict.times[i];
    std::string text = runs[i].name + ": ";
    if (!time.step)
      text += "never";
    else
      text += join_text("step ", *time.step);
    if (time.seconds) text += join_text(", ", rounded(*time.seconds, 4), " s of training");
    if (time.joules) text += join_text(", ", rounded(*time.joules, 4), " J");
    lines.emplace_back(join_text("to ", verdict.target->metric, " ", rounded(verdict.target->value, 5)), text);
  }
  return lines;
}

}  // namespace hearth::train
