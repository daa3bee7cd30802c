// SPDX-License-Identifier: Apache-2.0
// bench step, bench ops, bench data, bench dist.
#include <iomanip>
#include <iostream>
#include <limits>

#include "core/io/file.h"
#include "core/memory/memory.h"
#include "core/profiler.h"
#include "core/profiler_spans.h"
#include "data/packing/pack_text.h"
#include "train/bench/bench.h"
#include "train/bench/data_bench.h"
#include "train/bench/dist_bench.h"
#include "train/bench/step_bench.h"
#include "train/bench/traced_step.h"
#include "train/cli/commands.h"
#include "train/cli/join_group.h"
#include "train/cli/name_filter.h"
#include "train/profile/host_profile.h"
#include "train/step/ranks.h"

namespace hearth::train {
namespace {

LoadedConfig bench_config(const Arguments& arguments) {
  std::vector<std::string> overrides;
  if (arguments.has("--random-data")) {
    const std::string side = std::to_string(arguments.positive("--image-size", 224));
    overrides.push_back(R"(data={"type":"synthetic","classes":1000,"height":)" + side + R"(,"width":)" + side +
                        R"(,"channels":3,"train_size":512,"test_size":1})");
  }
  for (const std::string& text : arguments.values("--set")) overrides.push_back(text);
  if (const auto device = arguments.value("--device")) overrides.push_back("device=\"" + *device + "\"");
  return load_config(arguments.positional()[1], overrides);
}

/// In "profile" of `line`; printed and kept in a run's folder where that is asked for.
void keep_profile(Json profile, const Arguments& arguments, Json& line) {
  if (arguments.has("--profile")) std::cerr << profile_tables(profile);
  if (const auto run = arguments.value("--report")) write_file_synced(*run + "/device_profile.json", to_text(profile));
  line.set("profile", std::move(profile));
}

/// Three steps by the host's clock. Of a CUDA device they are only shown: they are those of queueing.
void profile_on_host(StepBench& bench, const BenchCase& measured, const Arguments& arguments, Json& line) {
  constexpr int steps = 3;
  double milliseconds = 0;
  profiler::start();
  for (int i = 0; i < steps; ++i) milliseconds += bench.step_ms();
  profiler::stop();
  if (const auto path = arguments.value("--trace")) write_file_synced(*path, profiler::chrome_trace());
  const Ceilings& limit = ceilings(measured.device);
  Json found = host_profile(profiler::spans(), milliseconds, steps,
                            {limit.copy_gbs, matmul_ceiling(limit, measured.dtype), "measured"});
  if (measured.device.is_cpu())
    keep_profile(std::move(found), arguments, line);
  else if (arguments.has("--profile"))
    std::cerr << profile_tables(found);
}

/// The device's own times of a step in "profile" of `line`, and printed; else those of the host.
void profile(StepBench& bench, const BenchCase& measured, const Arguments& arguments, Json& line) {
  if (measured.device.is_cuda()) {
    if (const std::string reason = cuda::why_no_device_trace(); !reason.empty()) {
      std::cerr << "bench step: the device's own times are not to be had: " << reason
                << "\nwhat follows are the host's, of queueing\n";
    } else {
      const Ceilings& limit = ceilings(measured.device);
      const DeviceActivity step = traced_step(bench);
      Json found =
          device_profile(step.spans, step.asked, {limit.copy_gbs, matmul_ceiling(limit, measured.dtype), "measured"});
      if (const auto path = arguments.value("--trace")) write_file_synced(*path, chrome_trace(step.spans, step.asked));
      keep_profile(std::move(found), arguments, line);
      return;
    }
  }
  profile_on_host(bench, measured, arguments, line);
}

// A peer process times its own steps in turn with these; see scripts/bench_cpu.
int serve(StepBench& bench) {
  constexpr auto unlimited = std::numeric_limits<std::streamsize>::max();
  while (std::cin.ignore(unlimited, '\n') && !std::cin.eof()) std::cout << bench.step_ms() << std::endl;
  return 0;
}

/// On a CUDA device five groups of steps are timed, each queued back to back as in a training, and steps one at a time.
void time_steps(StepBench& bench, std::int64_t steps, BenchCase& result) {
  constexpr int groups = 5;
  const bool queues = bench.session().device().is_cuda();
  std::vector<double> single, grouped;
  for (std::int64_t i = 0; i < (queues ? std::min<std::int64_t>(steps, groups) : steps); ++i)
    single.push_back(bench.step_ms());
  for (int i = 0; queues && i < groups; ++i) grouped.push_back(bench.step_ms(steps));
  result.timing = timing_of(queues ? grouped : single);
  if (queues) result.latency_ms = timing_of(single).median_ms;
  result.flops = bench.work().flops;
  result.bytes = bench.work().bytes;
}

int bench_step(const Arguments& arguments) {
  HEARTH_CHECK(UsageError, arguments.positional().size() == 2,
               "bench step: give a config; usage: hearth bench step CONFIG.json");
  if (arguments.has("--serve"))
    arguments.refuse_others("bench step --serve", {"--serve", "--set", "--device", "--random-data", "--image-size"});
  else
    arguments.refuse_others("bench step", {"--set", "--device", "--steps", "--random-data", "--image-size", "--profile",
                                           "--trace", "--report", "--serve", "--json"});
  HEARTH_CHECK(UsageError, arguments.has("--random-data") || !arguments.has("--image-size"),
               "bench step: --image-size is that of --random-data; say both");
  LoadedConfig loaded = bench_config(arguments);
  std::string ranks;
  const std::unique_ptr<Collective> group = join_group(loaded.config, ranks);
  StepBench bench(std::move(loaded), group.get());
  const Session& session = bench.session();
  MemoryResource& memory = memory_of(session.device());
  const std::int64_t steps = arguments.positive("--steps", 20);
  for (int i = 0; i < 3; ++i) (void)bench.step_ms();
  if (arguments.has("--serve")) return serve(bench);

  memory.reset_peak();
  const std::int64_t system_calls = memory.statistics().system_calls;
  BenchCase result;
  time_steps(bench, steps, result);
  const RunConfig& config = session.config();
  result.name = "step/" + config.name;
  result.shape = join_text(bench.batch().tensors().front().tensor.shape());
  result.dtype = config.precision.type();
  result.device = session.device();
  result.batch = bench.rows();
  result.items = static_cast<double>(bench.items());
  result.unit = session.throughput_unit();
  result.peak_bytes = static_cast<double>(memory.statistics().peak);
  result.implementation = bench.replays() ? "graph" : "eager";
  const std::int64_t grown = memory.statistics().system_calls - system_calls;

  Json line = to_json(result);
  line.set("loss", bench.loss());
  if (arguments.has("--profile") || arguments.has("--trace")) profile(bench, result, arguments, line);
  if (arguments.has("--json")) {
    std::cout << to_text(line) << "\n";
    return 0;
  }
  const Ceilings& limits = ceilings(session.device());
  std::cout << to_line(result) << "\n"
            << std::fixed << std::setprecision(1) << result.items / result.timing.median_ms * 1e3 << ' ' << result.unit
            << ", peak memory " << result.peak_bytes / 1e6
            << " MB, memory asked from the system during the timed steps: " << grown
            << " times\nlimits of this machine: copy " << limits.copy_gbs << " GB/s, matrix product f32 "
            << 1e3 * limits.matmul_f32_tflops << " GFLOP/s, bf16 " << 1e3 * limits.matmul_bf16_tflops << " GFLOP/s";
  if (limits.matmul_f16_tflops > 0) std::cout << ", f16 " << 1e3 * limits.matmul_f16_tflops << " GFLOP/s";
  std::cout << "\n";
  return 0;
}

int bench_ops(const Arguments& arguments) {
  HEARTH_CHECK(UsageError, arguments.positional().size() == 1,
               "bench ops: measures single operations, of no config; \"", arguments.positional().back(),
               "\" is too much");
  arguments.refuse_others("bench ops", {"--filter", "--device", "--scale", "--check", "--json"});
  const NameFilter filter(arguments.value("--filter").value_or(""));
  const Device device = Device(arguments.value("--device").value_or("cpu"));
  const std::int64_t scale = arguments.positive("--scale", device.is_cpu() ? 1 : 16);
  bool all_ok = true, any = false;
  for (const OpBench& bench : op_benches(device, scale)) {
    if (!filter.matches(bench.name)) continue;
    any = true;
    std::optional<double> error;
    // Before the clock runs: a fast wrong answer is worth nothing.
    if (arguments.has("--check")) error = bench.error();
    BenchCase measured = bench.run();
    measured.max_error = error;
    measured.ok = !error || *error <= bench.error_bound;
    all_ok = all_ok && measured.ok;
    std::cout << (arguments.has("--json") ? to_text(to_json(measured)) : to_line(measured)) << std::endl;
  }
  HEARTH_CHECK(UsageError, any, "bench ops: --filter ", arguments.value("--filter").value_or(""),
               " matches no case; without it all are measured");
  HEARTH_CHECK(InternalError, all_ok, "bench ops: results lie too far from f64 on the CPU");
  return 0;
}

void print(const DataBench& measured, bool as_json) {
  if (!as_json) {
    std::cout << to_text(measured);
    return;
  }
  for (const Json& line : to_json(measured)) std::cout << to_text(line) << "\n";
}

/// The data as the configuration has them, and packed into a folder.
int bench_packed(const LoadedConfig& loaded, const std::string& folder, Device device, double seconds, bool as_json) {
  const LoadedConfig packed = packed_config(loaded, folder);
  (void)data::pack_text(loaded.config.data, folder);
  const DataBench loose = bench_data(loaded, device, seconds), of_pack = bench_data(packed, device, seconds);
  const PackedSpeedup speedup = speedup_of(of_pack, loose);
  print(loose, as_json);
  print(of_pack, as_json);
  if (as_json)
    std::cout << to_text(Json::object()
                             .set("schema", 1)
                             .set("packed_speedup", Json::object()
                                                        .set("first_epoch", speedup.first_epoch)
                                                        .set("later_epochs", speedup.later_epochs)))
              << "\n";
  else
    std::cout << std::fixed << std::setprecision(2) << "packed: " << speedup.first_epoch
              << " times the samples/s of a first epoch, " << speedup.later_epochs << " times those of later ones\n";
  return 0;
}

int bench_loading(const Arguments& arguments) {
  HEARTH_CHECK(UsageError, arguments.positional().size() == 2,
               "bench data: give a config; usage: hearth bench data CONFIG.json");
  arguments.refuse_others("bench data", {"--set", "--device", "--seconds", "--packed", "--json"});
  const LoadedConfig loaded = bench_config(arguments);
  const auto seconds = static_cast<double>(arguments.positive("--seconds", 3));
  const Device device = device_of_run(loaded.config.device);
  if (const auto folder = arguments.value("--packed"))
    return bench_packed(loaded, *folder, device, seconds, arguments.has("--json"));
  print(bench_data(loaded, device, seconds), arguments.has("--json"));
  return 0;
}

/// The sections of a configuration that say how gradients are summed.
struct TrafficConfig {
  DistOptions dist;
  optim::Optimizers::Component optimizer;
};
void describe(Fields<TrafficConfig>& f) {
  f.object("dist", &TrafficConfig::dist, "Several processes.");
  f.component("optimizer", &TrafficConfig::optimizer, optim::optimizers(), "Whose momentum dgc has.");
}

int bench_ranks(const Arguments& arguments) {
  HEARTH_CHECK(UsageError, arguments.positional().size() == 1,
               "bench dist: replays the traffic of a model that --traffic names, of no config; \"",
               arguments.positional().back(), "\" is too much");
  arguments.refuse_others("bench dist", {"--traffic", "--compute-ms", "--route", "--steps", "--set", "--json"});
  HEARTH_CHECK(UsageError, arguments.has("--traffic") && arguments.has("--compute-ms"),
               "bench dist: whose gradients, and how long does a step compute? hearth bench dist --traffic resnet50 "
               "--compute-ms 100");
  Json root = parse_json(R"({"dist": {}, "optimizer": {"type": "sgd", "lr": 0.1, "momentum": 0.9}})", "bench dist");
  for (const std::string& assignment : arguments.values("--set")) apply_override(root, assignment);
  if (const auto route = arguments.value("--route")) apply_override(root, "dist.route=\"" + *route + "\"");
  const TrafficConfig traffic = parse_fields<TrafficConfig>(root);
  RunConfig config;
  config.device = "cpu";
  config.dist = traffic.dist;
  config.optimizer = traffic.optimizer;
  std::string ranks;
  const std::unique_ptr<Collective> group = join_group(config, ranks);
  HEARTH_CHECK(UsageError, group != nullptr,
               "bench dist: this process is no rank of a run; start it by hearth launch -n N -- bench dist ..., or by "
               "scripts/machines");
  const std::int64_t steps = arguments.positive("--steps", 10);
  const TrafficOptions options{.model = *arguments.value("--traffic"),
                               .compute_ms = arguments.number("--compute-ms", 0),
                               .steps = steps,
                               .parallel = data_parallel_options(config, Device{}, steps),
                               .choice = sum_choice_options(config)};
  const TrafficBench measured = bench_traffic(*group, options);
  if (group->rank() == 0)
    std::cout << (arguments.has("--json") ? to_text(to_json(measured)) + "\n" : to_text(measured));
  return 0;
}

int bench_command(const Arguments& arguments) {
  const std::string& what = arguments.positional()[0];
  if (what == "step") return bench_step(arguments);
  if (what == "ops") return bench_ops(arguments);
  if (what == "data") return bench_loading(arguments);
  if (what == "dist") return bench_ranks(arguments);
  throw UsageError(join_text("bench: \"", what, "\" is not known; use step, ops, data or dist"));
}

}  // namespace

CommandSpec bench_spec() {
  return {
      "bench",
      "step|ops|data|dist [CONFIG.json]",
      1,
      2,
      "Measures: `bench step CONFIG.json` a whole training step, with all of its `train.accumulate` batches, `bench "
      "ops` single operations, `bench data CONFIG.json` loading without a model: the pipeline, each stage, and the "
      "limits of the machine, `bench dist` how long the ranks of a run take to sum a model's gradients.",
      {set_option(),
       {"--filter", "REGEX", "ops: only cases whose name matches"},
       {"--device", "NAME", "cpu or cuda[:N] (default: cpu for ops; for step and data what the config says)"},
       {"--scale", "N", "ops: factor on batches and rows (default: 1; 16 on a CUDA device)"},
       {"--check", "", "ops: compare with f64 on the CPU first; code 70 if a result is too far off"},
       {"--steps", "N",
        "step, dist: how many steps to time (default: 20; 10 of dist); on a CUDA device five groups of so many, each "
        "queued back to "
        "back"},
       {"--random-data", "", "step: random images instead of the config's dataset"},
       {"--image-size", "N", "step: side of the random images (default: 224)"},
       {"--profile", "",
        "step: also list where the time goes, by phase, op and kernel, beside the machine's limits; on a CUDA device "
        "by its own clock (CUPTI)"},
       {"--trace", "FILE", "step: write a Chrome trace"},
       {"--report", "DIR", "step: with --profile, keep these times in a run's folder, for its report"},
       {"--packed", "FOLDER",
        "data: pack text or parallel text into this folder, measure that too, and say how much faster it is"},
       {"--seconds", "N", "data: how long each measurement takes (default: 3)"},
       {"--traffic", "MODEL", "dist: whose gradients: resnet50, bert, vgg16 or swin_t"},
       {"--compute-ms", "MS",
        "dist: what a step computes without communication, a third of it forward; the ranks sleep so long"},
       {"--route", "NAME", "dist: short for --set dist.route=NAME"},
       {"--serve", "", "step: time one step for each line on stdin, printing its milliseconds"},
       {"--json", "", "print as JSON on stdout"}},
      bench_command};
}

}  // namespace hearth::train
