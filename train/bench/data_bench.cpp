// SPDX-License-Identifier: Apache-2.0
#include "train/bench/data_bench.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <iomanip>
#include <mutex>
#include <set>
#include <thread>

#include "core/cpu/cores.h"
#include "core/run_on.h"
#include "core/text_stream.h"
#include "data/images/codecs/decode.h"
#include "data/inspection.h"
#include "train/bench/copy_bench.h"
#include "train/bench/disk_speed.h"

namespace hearth::train {
namespace {

using data::Stage;
using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// At least; the median of these is told.
constexpr int windows = 5;
// Of files that are read, and held in memory to be decoded.
constexpr std::uint64_t most_read_bytes = std::uint64_t{256} << 20, most_held_bytes = std::uint64_t{64} << 20;
constexpr std::int64_t most_held_files = 512;

/// What a loader gave within a time.
struct Taken {
  Timing timing;  // of a batch
  double items = 0, samples = 0, batches = 0, seconds = 0;
  InputUse use;
  data::Batch last;
};

/// Takes batches, of which nothing is made, for so long. Those of the warm-up do not count.
Taken take(data::Loader& loader, double seconds, const data::Dataset& set) {
  for (int i = 0; i <= loader.options().prefetch; ++i) (void)loader.next();
  InputMeter meter(set);
  (void)meter.collect(loader);
  meter.clear();
  Taken taken;
  std::vector<double> of_windows;
  while (taken.seconds < seconds || static_cast<int>(of_windows.size()) < windows) {
    const InputMeter::StepScope step(meter);
    const auto began = Clock::now();
    double batches = 0;
    for (; batches == 0 || seconds_since(began) < seconds / (2 * windows); ++batches) {
      taken.last = loader.next();
      taken.items += static_cast<double>(taken.last.count());
      taken.samples += static_cast<double>(taken.last.size());
    }
    const double passed = seconds_since(began);
    of_windows.push_back(1e3 * passed / batches);
    taken.batches += batches, taken.seconds += passed;
  }
  taken.timing = timing_of(of_windows);
  taken.use = meter.collect(loader);
  return taken;
}

/// Times that f(0), f(1), ... can be called a second by so many threads.
template <class F>
double calls_per_s(int threads, double seconds, const F& f) {
  std::atomic<std::int64_t> calls{0};
  std::exception_ptr fault;
  std::mutex mutex;
  const auto began = Clock::now();
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < threads; ++i)
      callers.emplace_back([&] {
        try {
          do f(calls++);
          while (seconds_since(began) < seconds);
        } catch (...) {
          const std::lock_guard lock(mutex);
          fault = std::current_exception();
        }
      });
  }
  if (fault) std::rethrow_exception(fault);
  return static_cast<double>(calls) / seconds_since(began);
}

DataLimits limits_of(const data::Dataset& set, int threads, double seconds) {
  DataLimits limits;
  const auto held = data::encoded_samples(set, most_held_files, most_held_bytes);
  if (held.empty()) return limits;
  for (const auto& file : held)
    limits.bytes_a_sample += static_cast<double>(file.size()) / static_cast<double>(held.size());
  limits.decode = calls_per_s(threads, seconds / 2, [&](std::int64_t i) {
    thread_local data::Image image;
    try {
      data::decode_image(held[static_cast<std::size_t>(i) % held.size()], set.source(), image);
    } catch (const DataError&) {
      // Sets may pass over files that are broken.
    }
  });
  const std::vector<std::string> files = some_files(set.source(), most_read_bytes);
  if (files.empty()) return limits;
  const DiskSpeed speed = read_speed(files, threads);
  const double samples = static_cast<double>(speed.bytes) / limits.bytes_a_sample;
  limits.disk_warm = samples / speed.warm_seconds;
  if (speed.cold_seconds) limits.disk_cold = samples / *speed.cold_seconds;
  return limits;
}

BenchCase case_of(const std::string& name, const Taken& taken, const Taken& shape_of, Device device,
                  const std::string& unit) {
  BenchCase result;
  const data::Batch::Named& first = shape_of.last.tensors().front();
  result.name = name;
  result.shape = join_text(first.tensor.shape());
  result.dtype = first.tensor.dtype();
  result.device = device;
  result.batch = shape_of.last.size();
  result.timing = taken.timing;
  result.items = taken.items / taken.batches;
  result.unit = unit;
  return result;
}

}  // namespace

Timing time_copy(cpu::Stream&, const data::Batch&, bool) { return {}; }

double DataLimits::lowest() const {
  double least = threads;
  for (const auto& limit : {disk_warm, decode})
    if (limit) least = std::min(least, *limit);
  return least;
}

double DataBench::first_epoch_per_s() const {
  const auto samples = static_cast<double>(epoch_samples);
  return samples / (open_seconds + samples / samples_per_s);
}

PackedSpeedup speedup_of(const DataBench& packed, const DataBench& loose) {
  return {packed.first_epoch_per_s() / loose.first_epoch_per_s(), packed.samples_per_s / loose.samples_per_s};
}

LoadedConfig packed_config(const LoadedConfig& loaded, const std::string& folder) {
  const Json& given = loaded.config.data.node();
  const std::string type = given.at("type").as_string();
  HEARTH_CHECK(ConfigError, type == "text" || type == "parallel_text", "/data/type: \"", type,
               "\" is not packed to be measured; text and parallel_text are. Measure a folder that `hearth data pack` "
               "wrote by itself");
  const Json* const before = given.find("packed");
  HEARTH_CHECK(ConfigError, before == nullptr || before->as_string().empty(),
               "/data/packed: the data are packed already");
  // What the folder has.
  const std::set<std::string> left_out{
      "train", "valid", "test", "packed", "tokenizer", "source_tokenizer", "documents", "valid_fraction", "split_seed"};
  Json data = Json::object();
  for (const JsonMember& member : given.members())
    if (!left_out.contains(member.key)) data.set(member.key, member.value);
  data.set("packed", folder);
  LoadedConfig packed = loaded;
  packed.config.data = data::datasets().parse(data);
  packed.config.name += "/packed";
  return packed;
}

DataBench bench_data(const LoadedConfig& loaded, Device device, double seconds) {
  const RunConfig& config = loaded.config;
  const auto began = Clock::now();
  data::DataSplits splits = data::make_data(config.data);
  const double open_seconds = seconds_since(began);
  const data::Dataset& set = *splits.train;
  const std::string unit = join_text(set.unit(), "/s");
  const std::string name = "data/" + config.name;
  const int threads = std::max(splits.options.workers, 1), cores = cpu::available_cores();

  DataBench bench;
  bench.open_seconds = open_seconds;
  Taken piped;
  {
    data::Loader loader = splits.train_loader(config.train.batch_size, config.seed, device.type);
    bench.epoch_samples = loader.samples_per_epoch();
    piped = take(loader, seconds, set);
  }
  bench.pipeline = case_of(name, piped, piped, device, unit);
  bench.pipeline.implementation =
      splits.options.workers == 0 ? "no workers" : join_text(threads, threads == 1 ? " worker" : " workers");
  bench.samples_per_s = piped.samples / piped.seconds;
  bench.use = piped.use;

  splits.options.workers = 0;
  data::Loader loader = splits.train_loader(config.train.batch_size, config.seed, device.type);
  Taken alone = take(loader, seconds, set);
  data::StageTimes times = alone.use.loader.times;
  Timing copies[2];  // from pageable and from pinned memory
  for (const bool pinned : {false, true})
    if (device.is_cuda())
      copies[pinned ? 1 : 0] = with_stream(device, [&](auto& stream) { return time_copy(stream, alone.last, pinned); });
  times[Stage::copy] = alone.batches * copies[config.train.pinned ? 1 : 0].median_ms / 1e3;
  for (const Stage stage : {Stage::read, Stage::decode, Stage::augment, Stage::assemble, Stage::copy}) {
    if (times[stage] <= 0) continue;
    const double ms = 1e3 * times[stage] / alone.batches;
    alone.timing = {ms, ms, ms};
    bench.stages.push_back(case_of(name + "/" + name_of(stage), alone, piped, device, unit));
    bench.stages.back().implementation = "1 thread";
  }
  for (const bool pinned : {true, false}) {
    if (!device.is_cuda()) break;
    alone.timing = copies[pinned ? 1 : 0];
    bench.stages.push_back(case_of(name + (pinned ? "/copy_pinned" : "/copy_pageable"), alone, piped, device, unit));
    bench.stages.back().implementation = pinned ? "pinned memory" : "pageable memory";
  }
  bench.limits = limits_of(*splits.train, std::min(threads, cores), seconds);
  times[Stage::copy] = 0;
  bench.limits.at_once = std::min(threads, cores);
  bench.limits.threads = alone.samples / times.work() * bench.limits.at_once;
  bench.bottleneck = slowest_stage(bench.use);  // the taker does nothing but wait
  return bench;
}

namespace {

double percent_of_limit(const DataBench& measured) { return 100 * measured.samples_per_s / measured.limits.lowest(); }

/// Of the stage that a case is of.
double share_of(const DataBench& measured, const BenchCase& stage) {
  for (const Stage one : {Stage::read, Stage::decode, Stage::augment, Stage::assemble})
    if (stage.name == measured.pipeline.name + "/" + name_of(one)) return measured.use.share(one);
  return 0;
}

double per_s(const BenchCase& one) { return one.items / one.timing.median_ms * 1e3; }

/// Of a stage on one thread; null where there is nothing to compare with.
Json percent_of_limit(const DataBench& measured, const BenchCase& stage) {
  const DataLimits& limits = measured.limits;
  const double samples = static_cast<double>(stage.batch) / stage.timing.median_ms * 1e3 * limits.at_once;
  for (const auto& [name, limit] : {std::pair{Stage::read, limits.disk_warm}, {Stage::decode, limits.decode}})
    if (limit && stage.name == measured.pipeline.name + "/" + name_of(name)) return Json(100 * samples / *limit);
  return Json();
}

}  // namespace

std::vector<Json> to_json(const DataBench& measured) {
  const auto optional = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
  const DataLimits& limits = measured.limits;
  Json stages = Json::object();
  for (const Stage stage : {Stage::read, Stage::decode, Stage::augment, Stage::assemble})
    stages.set(name_of(stage), measured.use.share(stage));
  Json line = to_json(measured.pipeline);
  line.set("percent_of_limit", percent_of_limit(measured))
      .set("stages", std::move(stages))
      .set("limits", Json::object()
                         .set("unit", "samples/s")
                         .set("threads", limits.threads)
                         .set("decode", optional(limits.decode))
                         .set("disk_warm", optional(limits.disk_warm))
                         .set("disk_cold", optional(limits.disk_cold))
                         .set("bytes_a_sample", limits.bytes_a_sample))
      .set("samples_per_s", measured.samples_per_s)
      .set("open_seconds", measured.open_seconds)
      .set("first_epoch_samples_per_s", measured.first_epoch_per_s())
      .set("bottleneck", name_of(measured.bottleneck.stage))
      .set("note", measured.bottleneck.blame);
  std::vector<Json> lines{std::move(line)};
  for (const BenchCase& stage : measured.stages) {
    Json one = to_json(stage);
    one.set("percent_of_limit", percent_of_limit(measured, stage));
    lines.push_back(std::move(one));
  }
  return lines;
}

std::string to_text(const DataBench& measured) {
  const BenchCase& pipeline = measured.pipeline;
  const DataLimits& limits = measured.limits;
  TextStream out;
  out << pipeline.name << "  " << pipeline.shape << " " << name_of(pipeline.dtype) << "  " << std::fixed
      << std::setprecision(1) << per_s(pipeline) << ' ' << pipeline.unit << " with " << pipeline.implementation << "  "
      << std::setprecision(3) << pipeline.timing.median_ms << " ms a batch (min " << pipeline.timing.min_ms << ")  "
      << std::setprecision(1) << percent_of_limit(measured) << " % of the limit\n";
  for (const BenchCase& stage : measured.stages) {
    const std::string name = stage.name.substr(stage.name.rfind('/') + 1);
    out << "  " << std::left << std::setw(14) << name << std::right << std::setw(14) << per_s(stage) << ' '
        << stage.unit << (name.starts_with("copy_") ? " from " + stage.implementation : " alone on one thread");
    if (!name.starts_with(name_of(Stage::copy)))
      out << ", " << std::setw(5) << 100 * share_of(measured, stage) << " % of the workers' time";
    out << "\n";
  }
  out << "limits, samples/s: all stages on as many threads " << limits.threads;
  if (limits.decode) out << ", decoding alone " << *limits.decode;
  const auto disk = [&](const char* how, double rate) {
    out << ", reading alone " << how << ' ' << rate << " (" << rate * limits.bytes_a_sample / 1e6 << " MB/s)";
  };
  if (limits.disk_warm) disk("from memory", *limits.disk_warm);
  if (limits.disk_cold) disk("from the disk", *limits.disk_cold);
  if (limits.disk_warm && !limits.disk_cold) out << ", from the disk: the system keeps the files in memory";
  out << "\nopening the data: " << std::setprecision(3) << measured.open_seconds
      << " s; a first epoch with it: " << std::setprecision(1) << measured.first_epoch_per_s() << " samples/s";
  out << "\nbottleneck: " << measured.bottleneck.blame << "\n";
  return out.str();
}

}  // namespace hearth::train
