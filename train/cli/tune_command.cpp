// SPDX-License-Identifier: Apache-2.0
// tune: what makes a run faster without changing what it learns. tune batch: the largest batch that fits, and the batch
// at which samples go by fastest. tune lr: the learning rate at which the loss falls fastest.
#include <algorithm>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <thread>

#include "core/cpu/cores.h"
#include "core/io/file.h"
#include "core/io/printable.h"
#include "core/memory/memory.h"
#include "train/bench/bench.h"
#include "train/bench/step_bench.h"
#include "train/cli/commands.h"
#include "train/cli/join_group.h"
#include "train/cli/shared_cores.h"
#include "train/lr_range.h"
#include "train/memory/step_memory.h"
#include "train/tune/choices.h"
#include "train/tune/lock_file.h"
#include "train/tune/run_trials.h"

namespace hearth::train {
namespace {

struct Trial {
  std::int64_t batch = 0;
  double ms = 0;
  double per_s = 0;
  std::string unit = "";
  double peak_mb = 0;
};

LoadedConfig config_with_batch(const Arguments& arguments, std::int64_t batch) {
  std::vector<std::string> overrides = arguments.values("--set");
  if (batch > 0) overrides.push_back(join_text("train.batch_size=", batch));
  return load_config(arguments.positional()[1], overrides);
}

/// The largest batch of the budget of which an epoch has one; 0 if not even 1 fits.
std::int64_t largest_estimated(const Arguments& arguments) {
  Session session(config_with_batch(arguments, 0));
  HEARTH_CHECK(ConfigError, session.data.rows_by_tokens() == 0,
               "tune batch: batches are filled by /data/tokens_per_batch; train.batch_size changes nothing");
  const StepMemory memory(session, batches_to_measure(session), session.device().type);
  return memory.largest_batch(memory_budget(session.device()), session.data.train_batches(1)).value_or(0);
}

Trial try_batch(const Arguments& arguments, std::int64_t batch, int steps) {
  StepBench bench(config_with_batch(arguments, batch));
  MemoryResource& memory = memory_of(bench.session().device());
  for (int i = 0; i < 3; ++i) (void)bench.step_ms();
  memory.reset_peak();
  std::vector<double> all;
  for (int i = 0; i < steps; ++i) all.push_back(bench.step_ms());
  const double ms = timing_of(all).median_ms;
  return {batch, ms, 1e3 * static_cast<double>(bench.items()) / ms, bench.session().throughput_unit(),
          static_cast<double>(memory.statistics().peak) / 1e6};
}

/// Sizes by doubling, and the largest itself as a multiple of 8 where there is one.
std::vector<std::int64_t> sizes_up_to(std::int64_t largest) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= largest; size *= 2) sizes.push_back(size);
  const std::int64_t last = largest >= 8 ? largest / 8 * 8 : largest;
  if (sizes.back() < last) sizes.push_back(last);
  return sizes;
}

Json to_json(const Trial& trial) {
  return Json::object()
      .set("batch_size", trial.batch)
      .set("ms", trial.ms)
      .set("per_s", trial.per_s)
      .set("unit", trial.unit)
      .set("peak_mem_mb", trial.peak_mb);
}

struct Tuning {
  std::int64_t largest = 0;  ///< that fits
  std::vector<Trial> trials{};
  std::size_t best = 0;
};

void print(const Trial& trial) {
  std::cerr << "batch " << std::setw(6) << trial.batch << std::fixed << std::setprecision(2) << std::setw(12)
            << trial.ms << " ms" << std::setprecision(1) << std::setw(12) << trial.per_s << ' ' << trial.unit
            << std::setw(10) << trial.peak_mb << " MB\n";
}

Tuning try_up_to(std::int64_t estimated, const Arguments& arguments, int steps) {
  Tuning tuning{.largest = estimated};
  std::vector<Trial>& trials = tuning.trials;
  // More of the same is not worth its time after two doublings that gained next to nothing.
  int flat = 0;
  for (const std::int64_t size : sizes_up_to(estimated)) {
    if (flat >= 2) break;
    try {
      trials.push_back(try_batch(arguments, size, steps));
    } catch (const OutOfMemory&) {
      std::cerr << "batch " << std::setw(6) << size << "  does not fit, other than estimated\n";
      tuning.largest = trials.empty() ? 0 : trials.back().batch;
      break;
    } catch (const ShapeError& error) {
      // Batch normalisation has nothing to go by where one sample is one value a channel.
      if (size > 1 || estimated == 1) throw;
      std::cerr << "batch " << std::setw(6) << size << "  is refused: " << error.what() << "\n";
      continue;
    }
    print(trials.back());
    flat = trials.size() == 1 || trials.back().per_s > 1.03 * trials[tuning.best].per_s ? 0 : flat + 1;
    if (trials.back().per_s > trials[tuning.best].per_s) tuning.best = trials.size() - 1;
  }
  return tuning;
}

int tune_batch(const Arguments& arguments) {
  HEARTH_CHECK(UsageError, arguments.positional().size() == 2,
               "tune batch: give a config; usage: hearth tune batch CONFIG.json");
  arguments.refuse_others("tune batch", {"--set", "--json", "--steps", "--most"});
  const int steps = static_cast<int>(arguments.positive("--steps", 5));
  const std::int64_t estimated = std::min(largest_estimated(arguments), arguments.positive("--most", 1 << 20));
  const auto [largest, trials, best] = estimated >= 1 ? try_up_to(estimated, arguments, steps) : Tuning{};
  HEARTH_CHECK(OutOfMemory, largest >= 1, "tune batch: not even a batch of 1 fits; see `hearth plan`");
  if (arguments.has("--json")) {
    Json list = Json::array();
    for (const Trial& trial : trials) list.push_back(to_json(trial));
    std::cout << to_text(Json::object()
                             .set("largest_batch_size", largest)
                             .set("fastest_batch_size", trials[best].batch)
                             .set("tried", list))
              << "\n";
    return 0;
  }
  std::cout << "largest batch that fits: " << largest << "\nfastest of those tried:  " << trials[best].batch << "\n";
  return 0;
}

void print(const LrRange& range) {
  constexpr std::size_t rows = 20;
  const std::size_t every = std::max<std::size_t>(1, range.trials.size() / rows);
  for (std::size_t i = 0; i < range.trials.size(); ++i) {
    const LrTrial& trial = range.trials[i];
    const bool is_steepest = range.steepest == static_cast<std::int64_t>(i);
    if (i % every != 0 && !is_steepest && i + 1 != range.trials.size()) continue;
    std::cerr << "lr " << std::scientific << std::setprecision(2) << trial.lr << std::fixed << std::setprecision(4)
              << "  loss " << std::setw(9) << trial.loss << "  smoothed " << std::setw(9) << trial.smoothed
              << (is_steepest ? "  steepest" : "") << "\n";
  }
  if (range.diverged) std::cerr << "the loss diverged there\n";
}

int tune_lr(const Arguments& arguments) {
  HEARTH_CHECK(UsageError, arguments.positional().size() == 2,
               "tune lr: give a config; usage: hearth tune lr CONFIG.json");
  arguments.refuse_others("tune lr", {"--set", "--json", "--steps", "--min", "--max"});
  LrRangeOptions options;
  options.min_lr = arguments.number("--min", options.min_lr);
  options.max_lr = arguments.number("--max", options.max_lr);
  options.steps = arguments.positive("--steps", options.steps);
  Session session(config_with_batch(arguments, 0));
  (void)session.load_start_weights();
  const LrRange range = test_lr_range(session, options);
  print(range);
  const LrTrial* const found = range.steepest ? &range.trials[static_cast<std::size_t>(*range.steepest)] : nullptr;
  if (arguments.has("--json")) {
    Json list = Json::array();
    for (const LrTrial& trial : range.trials)
      list.push_back(Json::object().set("lr", trial.lr).set("loss", trial.loss).set("smoothed", trial.smoothed));
    std::cout << to_text(Json::object()
                             .set("suggested_lr", found != nullptr ? Json(found->lr) : Json())
                             .set("diverged", range.diverged)
                             .set("tried", list))
              << "\n";
    return 0;
  }
  if (found == nullptr)
    std::cout << "no suggestion: the loss falls at none of these rates; use other --min and --max, or more --steps\n";
  else
    std::cout << "suggested optimizer.lr: " << std::setprecision(2) << std::defaultfloat << found->lr << "\n";
  return 0;
}

/// Where a configuration's lock goes: "run.json" has "run.lock.json".
std::string lock_path(const std::string& config) {
  constexpr std::string_view ending = ".json";
  return (config.ends_with(ending) ? config.substr(0, config.size() - ending.size()) : config) + ".lock.json";
}

void print(const TuneDecision& decision) {
  std::cerr << std::left << std::setw(14) << decision.choice << std::setw(22) << decision.variant
            << (decision.taken                                ? "taken: "
                : decision.variant.empty() && !decision.ratio ? "left alone: "
                                                              : "left: ")
            << decision.reason << "\n";
}

/// Whether threads of other programs want the same cores: what is fastest beside them need not be so without.
bool has_neighbours() {
  const int others = other_threads();
  if (others + cpu::threads() <= static_cast<int>(std::thread::hardware_concurrency())) return false;
  std::cerr << join_text("warning   ", others, others == 1 ? " other thread runs" : " other threads run",
                         " on this machine: what is found is for one as busy as now\n");
  return true;
}

/// The search, as a rank of `group` unless it is null; rank 0 tells of it.
int search_run(const Arguments& arguments, TrialOptions options, const std::string& out) {
  const bool tells = options.group == nullptr || options.group->rank() == 0;
  const bool neighbours = options.group == nullptr && has_neighbours();
  auto session = std::make_unique<Session>(load_trial(options), options.group);
  TuneTarget target{.device = device_model(session->device()), .ranks = session->ranks->size()};
  const std::vector<TuneChoice> choices =
      tune_choices(*session, {.max_batch = arguments.positive("--max-batch", TuneLimits{}.max_batch),
                              .cores = std::max(1, cpu::available_cores() / target.ranks),
                              .threads = std::getenv("HEARTH_THREADS") == nullptr ? cpu::threads() : 0,
                              .has_neighbours = neighbours});
  RunTrials trials(options, *session);
  session.reset();
  const TuneResult result = search(choices, trials, [&](const TuneDecision& decision) {
    if (tells) print(decision);
  });
  if (!tells) return 0;
  const Json lock = make_lock(load_config(options.config, options.sets), target, result, trials.receipt());
  write_file_synced(out, to_text(lock, 2) + "\n");
  if (arguments.has("--json")) {
    std::cout << to_text(lock) << "\n";
    return 0;
  }
  const std::string ranks = options.group != nullptr ? join_text("launch -n ", target.ranks, " -- ") : "";
  if (result.overrides.empty())
    std::cout << "nothing is faster than the configuration as it is\n";
  else
    std::cout << join_text(std::fixed, std::setprecision(2), result.speed, " times as fast; hearth ", ranks, "train ",
                           printable(options.config), " --lock ", printable(out), "\n");
  return 0;
}

int tune_run(const Arguments& arguments) {
  HEARTH_CHECK(UsageError, arguments.positional().size() == 1, "tune: \"", arguments.positional()[0],
               "\" is not known; use batch or lr before a config, or a config alone");
  arguments.refuse_others("tune", {"--set", "--json", "--max-batch", "--seconds", "--seeds", "--guard-steps", "--out"});
  const std::string& path = arguments.positional()[0];
  const std::string out = arguments.value("--out").value_or(lock_path(path));
  HEARTH_CHECK(UsageError, !out.empty(), "tune: --out names nothing");
  TrialOptions options{.config = path, .sets = arguments.values("--set")};
  options.seconds = arguments.number("--seconds", options.seconds);
  options.seeds = static_cast<int>(arguments.whole("--seeds", options.seeds, 2));
  options.guard_steps = arguments.positive("--guard-steps", options.guard_steps);
  LoadedConfig loaded = load_config(path, options.sets);
  std::string ranks;
  const std::unique_ptr<Collective> group = join_group(loaded.config, ranks);
  options.group = group.get();
  if (group != nullptr) options.device = loaded.config.device;
  try {
    return search_run(arguments, std::move(options), out);
  } catch (const std::exception& error) {
    // So that the other ranks name this one, and why.
    if (group != nullptr) group->abort(dist::failure_text(error));
    throw;
  }
}

int tune_command(const Arguments& arguments) {
  const std::string& what = arguments.positional()[0];
  if (what == "batch") return tune_batch(arguments);
  if (what == "lr") return tune_lr(arguments);
  return tune_run(arguments);
}

}  // namespace

CommandSpec tune_spec() {
  return {
      "tune",
      "[batch|lr] CONFIG.json",
      1,
      2,
      "Finds what makes a run faster without changing what it learns: precision, batch, recomputation, packing, graph, "
      "workers, threads and, of ranks by `hearth launch`, buckets, overlap and zero, each timed in turn with the "
      "configuration as it is; writes a lock for `hearth train --lock`. batch: the largest batch that fits, and the "
      "one at which samples go by fastest. lr: the learning rate at which the "
      "loss falls fastest, by a short training at rising rates.",
      {set_option(),
       {"--out", "FILE", "the lock (default: CONFIG.lock.json)"},
       {"--max-batch", "N", "no batch of more rows than this (default: 1024)"},
       {"--seconds", "S", "time for each pair that is compared (default: 3)"},
       {"--guard-steps", "N", "steps of these trainings (default: 128, at most an epoch)"},
       {"--seeds", "N", "trainings in f32 that the guard compares with (default: 3)"},
       {"--most", "N", "batch: no batch larger than this"},
       {"--steps", "N",
        "batch: how many steps to time at each size (default: 5); lr: how many to train (default: 100)"},
       {"--min", "LR", "lr: the first rate (default: 1e-7)"},
       {"--max", "LR", "lr: the last rate (default: 1)"},
       {"--json", "", "print as JSON on stdout"}},
      tune_command};
}

}  // namespace hearth::train
