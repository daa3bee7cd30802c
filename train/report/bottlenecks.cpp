// SPDX-License-Identifier: Apache-2.0
#include "train/report/bottlenecks.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "core/text_stream.h"
#include "train/report/page.h"
#include "train/task/report_sections.h"

namespace hearth::train {
namespace {

constexpr std::size_t most_bottlenecks = 10;
/// Of the run's time, what is worth telling.
constexpr double worth_telling = 0.02;

/// What all lines of training metrics tell together.
struct Totals {
  std::map<std::string, double> phases;  ///< seconds
  double seconds = 0;                    ///< of all steps
  double steps = 0;
  double major_faults = 0, remote_pages = 0;  ///< the latter a second, at most
  std::optional<double> memory_left;          ///< the least, in bytes
  double process_memory = 0, swapped = 0;     ///< the most, in bytes
  double throttled_seconds = 0;
  std::string throttled;  ///< by what, most of the time
  std::string advice;     ///< on the input, the last
  std::size_t lines = 0;

  double phase(const char* name) const {
    const auto place = phases.find(name);
    return place == phases.end() ? 0 : place->second;
  }
};

/// Adds what held a device's clocks down, each with its part of the interval.
void add_throttling(Totals& totals, const Json& reasons, double seconds) {
  double most = 0;
  for (const JsonMember& reason : reasons.members()) {
    const double part = number_at(reasons, reason.key).value_or(0);
    if (part <= most) continue;
    most = part;
    totals.throttled = reason.key;
  }
  totals.throttled_seconds += most * seconds;
}

/// "decode takes ..." of "input: the step waited 41 % of the time; decode takes ...".
std::string blame_in(const std::string& advice) {
  const std::size_t end = advice.starts_with("input: ") ? advice.find("; ") : advice.npos;
  return end == advice.npos ? advice : advice.substr(end + 2);
}

Totals totals_of(const std::vector<Json>& records) {
  Totals totals;
  for (const Json& record : records) {
    const Json* const phases = record.find("phase_seconds");
    if (phases == nullptr || !phases->is_object()) continue;
    double seconds = 0;
    for (const JsonMember& phase : phases->members()) {
      const double value = number_at(*phases, phase.key).value_or(0);
      totals.phases[phase.key] += value;
      seconds += value;
    }
    totals.seconds += seconds;
    totals.steps = number_at(record, "step").value_or(totals.steps);
    // The first line has the pages of the program itself.
    if (totals.lines++ > 0) totals.major_faults += number_at(record, "process_major_faults").value_or(0);
    totals.remote_pages = std::max(totals.remote_pages, number_at(record, "machine_remote_pages").value_or(0));
    if (const auto left = number_at(record, "machine_memory_left"))
      totals.memory_left = std::min(totals.memory_left.value_or(*left), *left);
    totals.process_memory = std::max(totals.process_memory, number_at(record, "process_memory").value_or(0));
    totals.swapped = std::max(totals.swapped, number_at(record, "process_swapped").value_or(0));
    if (const Json* const reasons = record.find("device_throttled"); reasons != nullptr && reasons->is_object())
      add_throttling(totals, *reasons, seconds);
    if (const std::string advice = text_at(record, "data_advice"); !advice.empty()) totals.advice = blame_in(advice);
  }
  return totals;
}

/// A value of the configuration, "train.graph".
const Json* at_path(const Json& config, std::initializer_list<const char*> path) {
  const Json* node = &config;
  for (const char* const key : path) {
    if (!node->is_object() || (node = node->find(key)) == nullptr) return nullptr;
  }
  return node;
}

class Finder {
 public:
  explicit Finder(const RunRecords& run) : run_(run), totals_(totals_of(run.metrics)) {
    const Json* const profile = run.info.find("profile");
    const Json* const seconds = profile != nullptr ? profile->find("seconds") : nullptr;
    evaluation_ = seconds != nullptr ? number_at(*seconds, "evaluation").value_or(0) : 0;
    checkpoint_ = seconds != nullptr ? number_at(*seconds, "checkpoint").value_or(0) : 0;
  }

  std::vector<Bottleneck> all() {
    waits();
    outside_of_steps();
    machine();
    device();
    kernels();
    ops();
    std::ranges::stable_sort(list_, std::greater{}, &Bottleneck::seconds);
    if (list_.size() > most_bottlenecks) list_.resize(most_bottlenecks);
    return list_;
  }

 private:
  double run_seconds() const { return totals_.seconds + evaluation_ + checkpoint_; }
  std::optional<double> config_number(std::initializer_list<const char*> path) const {
    const Json* const value = at_path(run_.config, path);
    return value != nullptr && value->is_number() ? std::optional(value->as_number()) : std::nullopt;
  }
  bool config_is(std::initializer_list<const char*> path, const char* text) const {
    const Json* const value = at_path(run_.config, path);
    return value != nullptr && text_of(*value) == text;
  }
  void add(const char* cause, double seconds, std::string text, bool measured = true) {
    if (seconds > worth_telling * run_seconds()) list_.push_back({cause, seconds, measured, std::move(text)});
  }
  std::string part(double seconds) const { return percent_text(seconds / std::max(totals_.seconds, 1e-9)); }
  double computing() const { return totals_.phase("forward") + totals_.phase("backward") + totals_.phase("update"); }

  void waits() {
    const double data = totals_.phase("data"), copy = totals_.phase("copy"), others = totals_.phase("communication"),
                 rest = totals_.phase("other");
    const bool has_workers = config_number({"data", "workers"}).value_or(0) > 0;
    add("input", data,
        join_text("steps waited ", part(data), " of their time for batches; ",
                  !totals_.advice.empty() ? totals_.advice
                  : has_workers           ? "raise data.workers, or make samples cheaper to read"
                                : "set data.workers to 1 or more, so that batches are made beside the steps"));
    add("copy", copy,
        join_text("batches took ", part(copy),
                  " of the steps to reach the device; send fewer bytes, or smaller images"));
    add("communication", others,
        join_text("ranks waited ", part(others), " of their time for each other; ", wait_advice()));
    add("other", rest,
        join_text(part(rest),
                  " of the steps went by outside of their work, in hooks, meters and waits; take larger "
                  "batches, so that there are fewer steps"));
  }
  std::string wait_advice() const {
    const double bucket = config_number({"dist", "bucket_mb"}).value_or(10);
    if (bucket < 1)
      return join_text("gradients travel in small buckets of ", rounded(bucket, 3), " MB: set dist.bucket_mb to 10");
    if (config_is({"dist", "overlap"}, "false"))
      return "set dist.overlap to true, so that sums run beside the backward pass";
    return "send less (dist.wire bf16), take larger batches, or find the slow rank (`hearth status`)";
  }

  void outside_of_steps() {
    const double whole = std::max(run_seconds(), 1e-9);
    constexpr double much = 0.1;
    if (evaluation_ > much * whole)
      add("evaluation", evaluation_,
          join_text("evaluations took ", percent_text(evaluation_ / whole),
                    " of the run; evaluate less often (eval.every_epochs), or in larger batches (eval.batch_size)"));
    if (checkpoint_ > much * whole)
      add("checkpoint", checkpoint_,
          join_text("checkpoints took ", percent_text(checkpoint_ / whole),
                    " of the run; write them less often (checkpoint.every_epochs), or to a faster disk"));
  }

  void machine() {
    const Json* const facts = run_.info.find("machine");
    const double threads = facts != nullptr ? number_at(*facts, "threads").value_or(0) : 0,
                 cores = facts != nullptr ? number_at(*facts, "cores").value_or(0) : 0;
    if (cores > 0 && threads > cores)
      add("threads", computing() * (1 - cores / threads),
          join_text(threads, " threads compute on ", cores, cores == 1 ? " core" : " cores",
                    " and take turns; set HEARTH_THREADS to ", cores, ", or leave it out"),
          false);
    memory();
    constexpr double many_pages = 1000;
    if (totals_.remote_pages >= many_pages)
      add("NUMA", 0.2 * computing(),
          join_text("up to ", rounded(totals_.remote_pages, 4),
                    " pages a second lay on another NUMA node than the threads that use them; bind the run to a node "
                    "(numactl --cpunodebind=0 --membind=0), or start a rank for each node (`hearth launch`)"),
          false);
  }

  /// Pages of files come from disk where they are read first, too: memory is short where little is left of it.
  void memory() {
    // A page that comes from a disk takes about so long.
    constexpr double seconds_of_fault = 1e-3;
    constexpr double many_faults = 100;
    constexpr double little = 0.1;  // of what the process has
    if (totals_.major_faults < many_faults) return;
    const auto& left = totals_.memory_left;
    if (left && totals_.swapped == 0 && *left > little * totals_.process_memory) return;
    add("memory", std::max(totals_.major_faults * seconds_of_fault, 2 * worth_telling * run_seconds()),
        join_text(rounded(totals_.major_faults, 4), " pages came back from disk while steps ran",
                  left ? join_text(", with ", bytes_text(*left), " of memory left") : "",
                  totals_.swapped > 0 ? join_text(", ", bytes_text(totals_.swapped), " of the run in swap") : "",
                  ": memory is short; end other programs, or lower train.batch_size, data.workers or data.cache_mb"),
        false);
  }

  void device() {
    if (!totals_.throttled.empty())
      add("throttled device", 0.3 * totals_.throttled_seconds,
          join_text("the device was throttled (", totals_.throttled, ") in ", part(totals_.throttled_seconds),
                    " of the time; check its cooling and power limit (nvidia-smi -q -d PERFORMANCE)"),
          false);
    const Json* const profile = run_.info.find("device_profile");
    if (profile == nullptr || text_at(*profile, "clock") == "host") return;
    const double whole = number_at(*profile, "milliseconds").value_or(0),
                 gaps = number_at(*profile, "gap_milliseconds").value_or(0);
    if (whole <= 0) return;
    add("launches", gaps / whole * computing(),
        join_text("the device waited ", percent_text(gaps / whole), " of a step between kernels; ",
                  config_is({"train", "graph"}, "false") ? "steps are launch bound: record them (train.graph true)"
                                                         : "take larger batches, so that kernels are longer"));
  }

  /// Rows of a table of the profile of a step.
  std::vector<std::pair<std::string, const Json*>> rows(const char* table) const {
    std::vector<std::pair<std::string, const Json*>> result;
    const Json* const profile = run_.info.find("device_profile");
    const Json* const list = profile != nullptr ? profile->find(table) : nullptr;
    if (list == nullptr || !list->is_array()) return result;
    for (const Json& row : list->items()) result.emplace_back(text_at(row, "name"), &row);
    return result;
  }
  double seconds_of(double us) const {
    const Json* const profile = run_.info.find("device_profile");
    const double whole = profile != nullptr ? number_at(*profile, "milliseconds").value_or(0) : 0;
    return whole > 0 ? 1e-3 * us / whole * computing() : 0;
  }

  /// A kernel that is the last of its op's candidates.
  void add_portable(const std::string& name, double seconds) {
    const std::string_view ending = std::string_view(name).substr(std::min(name.find(':'), name.size()));
    if (ending != ":portable" && ending != ":im2col" && ending != ":gemm") return;
    add("portable kernel", seconds,
        join_text(
            "the portable kernel ", name, " took ", part(seconds),
            " of the steps; `hearth plan --audit` tells why no faster one ran, if HEARTH_PICK did not ask for it"));
  }

  void kernels() {
    const Json* const profile = run_.info.find("profile");
    const Json* const of_step = profile != nullptr ? profile->find("kernel_milliseconds") : nullptr;
    const double whole = of_step != nullptr ? number_at(*of_step, "the whole step").value_or(0) : 0;
    if (whole > 0) {
      // On a CPU some ops have no other kernel than that.
      for (const JsonMember& kernel : of_step->members())
        if (!kernel.key.ends_with(":portable"))
          add_portable(kernel.key, number_at(*of_step, kernel.key).value_or(0) / whole * totals_.seconds);
      return;
    }
    for (const auto& [name, row] : rows("kernels")) add_portable(name, seconds_of(number_at(*row, "us").value_or(0)));
  }

  void ops() {
    for (const auto& [name, row] : rows("ops")) {
      const double us = number_at(*row, "us").value_or(0), floor = number_at(*row, "floor_us").value_or(0);
      if (floor <= 0 || us <= floor) continue;
      add("op", seconds_of(us - floor),
          join_text(name, " takes ", rounded(1e-3 * us, 3), " ms of a step, ", rounded(us / floor, 3),
                    " times what its bytes and arithmetic need at this machine's limits"));
    }
  }

  const RunRecords& run_;
  Totals totals_;
  double evaluation_ = 0, checkpoint_ = 0;
  std::vector<Bottleneck> list_;
};

}  // namespace

std::vector<Bottleneck> bottlenecks(const RunRecords& run) { return Finder(run).all(); }

}  // namespace hearth::train
