// SPDX-License-Identifier: Apache-2.0
// bench step, bench ops.
#include <chrono>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <regex>

#include "hearth/core/file.h"
#include "hearth/core/memory.h"
#include "hearth/core/profiler.h"
#include "hearth/train/bench.h"
#include "hearth/train/captured_step.h"
#include "hearth/train/cli/cli.h"

namespace hearth::train {
namespace {

std::int64_t positive(const Arguments& arguments, const char* option, const char* otherwise) {
  const std::string text = arguments.value(option).value_or(otherwise);
  const long long value = std::atoll(text.c_str());
  HEARTH_CHECK(UsageError, value >= 1, "bench: ", option, " ", text, "; it must be a number of at least 1");
  return value;
}

LoadedConfig bench_config(const Arguments& arguments) {
  std::vector<std::string> overrides;
  if (arguments.has("--random-data")) {
    const std::string side = std::to_string(positive(arguments, "--image-size", "224"));
    overrides.push_back(R"(data={"type":"synthetic","classes":1000,"height":)" + side + R"(,"width":)" + side +
                        R"(,"channels":3,"train_size":512,"test_size":1})");
  }
  for (const std::string& text : arguments.values("--set")) overrides.push_back(text);
  return load_config(arguments.positional()[1], overrides);
}

void print_profile() {
  struct Row {
    std::string name;
    profiler::Entry entry;
  };
  std::vector<Row> rows;
  double total = 0;
  for (const auto& [name, entry] : profiler::summary()) {
    rows.push_back({name, entry});
    total += entry.milliseconds;
  }
  std::sort(rows.begin(), rows.end(),
            [](const Row& a, const Row& b) { return a.entry.milliseconds > b.entry.milliseconds; });
  for (const Row& row : rows)
    std::cerr << std::left << std::setw(28) << row.name << std::right << std::setw(7) << row.entry.calls << " calls"
              << std::fixed << std::setprecision(2) << std::setw(11) << row.entry.milliseconds << " ms" << std::setw(7)
              << 100 * row.entry.milliseconds / total << " %" << std::setw(10)
              << (row.entry.flops > 0 ? row.entry.flops / row.entry.milliseconds / 1e6 : 0) << " GFLOP/s\n";
}

// Steps as the config asks for them: one by one, or replayed.
struct Bench {
  explicit Bench(LoadedConfig config) : session(std::move(config)) {
    if (session.config().train.graph && session.device().is_cuda()) captured = std::make_unique<CapturedStep>(session);
  }
  Session session;
  std::unique_ptr<CapturedStep> captured;
};

// Waits for the device, so that the time is that of the whole step.
double step_ms(Bench& bench, const data::Batch& batch) {
  const auto start = std::chrono::steady_clock::now();
  Session& session = bench.session;
  if (bench.captured)
    (void)bench.captured->run(std::span(&batch, 1));
  else
    (void)training_step(session, std::span(&batch, 1));
  ++session.position.step;
  if (session.device().is_cuda()) session.read_interval();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// A peer process times its own steps in turn with these; see scripts/bench_cpu.
int serve(Bench& bench, const data::Batch& batch) {
  for (std::string line; std::getline(std::cin, line);) std::cout << step_ms(bench, batch) << std::endl;
  return 0;
}

int bench_step(const Arguments& arguments) {
  HEARTH_CHECK(UsageError, arguments.positional().size() == 2,
               "bench step: give a config; usage: hearth bench step CONFIG.json");
  Bench bench(bench_config(arguments));
  Session& session = bench.session;
  MemoryResource& memory = memory_of(session.device());
  const std::int64_t steps = positive(arguments, "--steps", "20");
  const data::Batch batch = session.make_train_loader().next();
  for (int i = 0; i < 3; ++i) (void)step_ms(bench, batch);
  if (arguments.has("--serve")) return serve(bench, batch);

  memory.reset_peak();
  const double flops_before = profiler::total_flops();
  const std::int64_t system_calls = memory.statistics().system_calls;
  std::vector<double> all;
  for (std::int64_t i = 0; i < steps; ++i) all.push_back(step_ms(bench, batch));
  BenchCase result;
  const RunConfig& config = session.config();
  result.name = "step/" + config.name;
  result.shape = join_text(batch.images.shape());
  result.dtype = dtype_named(config.precision.dtype);
  result.device = session.device();
  result.batch = batch.size();
  result.timing = timing_of(all);
  result.items = static_cast<double>(batch.size());
  result.flops = (profiler::total_flops() - flops_before) / static_cast<double>(steps);
  result.peak_bytes = static_cast<double>(memory.statistics().peak);
  result.implementation = bench.captured && bench.captured->nodes() > 0 ? "graph" : "eager";
  const std::int64_t grown = memory.statistics().system_calls - system_calls;

  if (arguments.has("--profile") || arguments.has("--trace")) {
    profiler::start();
    for (int i = 0; i < 3; ++i) (void)step_ms(bench, batch);
    profiler::stop();
    if (const auto path = arguments.value("--trace")) write_file_synced(*path, profiler::chrome_trace());
    if (arguments.has("--profile")) print_profile();
  }
  if (arguments.has("--json")) {
    std::cout << to_text(to_json(result)) << "\n";
    return 0;
  }
  const Ceilings& limits = ceilings(session.device());
  std::cout << to_line(result) << "\n"
            << std::fixed << std::setprecision(1) << result.items / result.timing.median_ms * 1e3
            << " images/s, peak memory " << result.peak_bytes / 1e6
            << " MB, memory asked from the system during the timed steps: " << grown
            << " times\nlimits of this machine: copy " << limits.copy_gbs << " GB/s, matrix product f32 "
            << 1e3 * limits.matmul_f32_tflops << " GFLOP/s, bf16 " << 1e3 * limits.matmul_bf16_tflops << " GFLOP/s\n";
  return 0;
}

int bench_ops(const Arguments& arguments) {
  std::regex filter;
  try {
    filter = std::regex(arguments.value("--filter").value_or(""));
  } catch (const std::regex_error& error) {
    throw UsageError(join_text("bench ops: --filter is not a regular expression: ", error.what()));
  }
  const Device device = device_named(arguments.value("--device").value_or("cpu"));
  const std::int64_t scale = positive(arguments, "--scale", device.is_cpu() ? "1" : "16");
  bool all_ok = true;
  for (const OpBench& bench : op_benches(device, scale)) {
    if (!std::regex_search(bench.name, filter)) continue;
    std::optional<double> error;
    // Before the clock runs: a fast wrong answer is worth nothing.
    if (arguments.has("--check")) error = bench.error();
    BenchCase measured = bench.run();
    measured.max_error = error;
    measured.ok = !error || *error <= bench.error_bound;
    all_ok = all_ok && measured.ok;
    std::cout << (arguments.has("--json") ? to_text(to_json(measured)) : to_line(measured)) << std::endl;
  }
  HEARTH_CHECK(InternalError, all_ok, "bench ops: results lie too far from f64 on the CPU");
  return 0;
}

}  // namespace

int bench_command(const Arguments& arguments) {
  const std::string& what = arguments.positional()[0];
  if (what == "step") return bench_step(arguments);
  if (what == "ops") return bench_ops(arguments);
  throw UsageError(join_text("bench: \"", what, "\" is not known; use step or ops"));
}

}  // namespace hearth::train
