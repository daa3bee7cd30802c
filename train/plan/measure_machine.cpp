// SPDX-License-Identifier: Apache-2.0
#include "train/plan/measure_machine.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "core/cpu/parallel.h"
#include "core/creation.h"
#include "core/cuda/emulation.h"
#include "core/cuda/stream.h"
#include "core/profiler.h"
#include "core/run_on.h"
#include "ops/onednn/onednn.h"
#include "ops/ops.h"
#include "train/bench/bench.h"
#include "train/memory/memory_budget.h"
#include "train/plan/cost.h"

namespace hearth::train {
namespace {

// Of `hearth bench ops`: at least one of each class, and of each implementation that reference models use most. Not the
// first convolution of a model, whose backward pass is half of what a bench measures.
constexpr const char* probes[] = {"conv2d/3x3s1/k64",        "conv2d/1x1s1/k256",        "conv2d/3x3s1/k256",
                                  "linear/384to1536",        "linear/768to3072+gelu",    "attention/12x64/causal",
                                  "window_attention/3x32/7", "window_attention/12x32/7", "batch_norm/relu",
                                  "layer_norm/768",          "cross_entropy/8192",       "gelu"};
constexpr std::int64_t gpu_scale = 16;  // of the probes' batches
constexpr int short_calls = 50;

constexpr double Efficiency::*classes[] = {&Efficiency::matmul,    &Efficiency::conv,      &Efficiency::winograd,
                                           &Efficiency::depthwise, &Efficiency::attention, &Efficiency::norm,
                                           &Efficiency::update,    &Efficiency::memory};

/// What calls take beside what they would take at the limits.
struct Reached {
  double ideal_us = 0, us = 0;
  void add(const Reached& call) { ideal_us += call.ideal_us, us += call.us; }
  double part() const { return std::clamp(ideal_us / us, 1e-3, 20.0); }
};

std::string part_name(const StepOp& op, const OpPart& part) {
  return op.op + "/" + part.implementation + (op.backward ? " (backward)" : "");
}

/// The ops of a probe, which runs them over and over: each once, with its least time.
std::vector<StepOp> distinct_ops(const std::vector<StepOp>& calls) {
  std::map<std::tuple<std::string, double, double>, StepOp> least;
  for (const StepOp& call : calls) {
    const auto [place, is_first] = least.try_emplace({call.name(), call.bytes, call.flops()}, call);
    if (!is_first) place->second.us = std::min(place->second.us, call.us);
  }
  std::vector<StepOp> ops;
  for (auto& [key, op] : least) ops.push_back(std::move(op));
  return ops;
}

/// What the host's clock says of a GPU's ops is the time of queueing: they share the time that all take together.
void share_time(std::vector<StepOp>& ops, const Machine& machine, ComputeType type, double us) {
  double sum = 0;
  for (StepOp& op : ops) sum += op.us = predicted_us(op, machine, type);
  for (StepOp& op : ops) op.us *= sum > 0 ? us / sum : 0;
}

std::vector<std::pair<StepOp, ComputeType>> measure_probes(Device device, const Machine& machine) {
  std::vector<std::pair<StepOp, ComputeType>> measured;
  for (const OpBench& bench : op_benches(device, device.is_cuda() && !cuda::is_emulated() ? gpu_scale : 1)) {
    const std::size_t slash = bench.name.rfind('/');
    const std::string name = bench.name.substr(0, slash), dtype = bench.name.substr(slash + 1);
    const bool update = name == "update/adamw";
    if (!update && std::find(std::begin(probes), std::end(probes), name) == std::end(probes)) continue;
    const ComputeType type = dtype == "bf16" ? ComputeType::bf16 : ComputeType::f32;
    if (type == ComputeType::bf16 && machine.peak_tflops.bf16 == 0) continue;
    profiler::start();
    const BenchCase result = bench.run();
    profiler::stop();
    std::vector<StepOp> ops = distinct_ops(ops_of_spans(profiler::spans()));
    // An update's own scope is that of a training step, which is not here.
    if (update) ops = {{.op = "optimizer", .layer = "", .bytes = result.bytes, .us = 1e3 * result.timing.min_ms}};
    if (device.is_cuda() && !update) share_time(ops, machine, type, 1e3 * result.timing.min_ms);
    for (StepOp& op : ops) measured.emplace_back(std::move(op), type);
  }
  return measured;
}

double measured_cache_gbs(double bytes) {
  const auto size = static_cast<std::int64_t>(bytes / 8);  // each thread's part of both arrays
  const Tensor from = Tensor::zeros({size}, DType::f32), to = Tensor::zeros({size}, DType::f32);
  const float* const source = from.data<float>();
  float* const target = to.data<float>();
  const std::int64_t piece = (size + cpu::threads() - 1) / cpu::threads();
  const Timing timing = time_repeated(
      [&] {
        cpu::parallel_for(size, piece, [&](std::int64_t begin, std::int64_t end) {
          std::copy(source + begin, source + end, target + begin);
        });
      },
      {}, 100);
  return 8 * static_cast<double>(size) / timing.min_ms / 1e6;
}

double measured_op_us(Device device) {
  const Tensor x = Tensor::zeros({16}, DType::f32, device);
  const Timing timing = time_repeated(
      [&] {
        for (int i = 0; i < short_calls; ++i) (void)relu(x);
      },
      device, 50);
  return 1e3 * timing.min_ms / short_calls;
}

/// Bytes that move from the host to a GPU in a second.
double measured_host_gbs(Device device) {
  const Tensor host = Tensor::zeros({std::int64_t{1} << 26}, DType::u8);
  const Timing timing = time_repeated([&] { (void)host.to(device); }, device, 100);
  return static_cast<double>(host.byte_size()) / timing.min_ms / 1e6;
}

void measure_caches(Machine& machine) {
  const long level2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (level2 <= 0) return;
  machine.cache_bytes = static_cast<double>(level2) * static_cast<double>(machine.cores);
  machine.cache_gbs = std::max(machine.copy_gbs, measured_cache_gbs(machine.cache_bytes / 2));
}

}  // namespace

void set_efficiencies(Machine& machine, const std::vector<std::pair<StepOp, ComputeType>>& measured) {
  Machine ideal = machine;
  ideal.op_us = 0;
  ideal.ops.clear();
  for (const auto member : classes) ideal.efficiency.*member = 1;  // not `operands`, which is not measured
  std::map<std::string, Reached> ops;
  std::array<Reached, std::size(classes)> of_class;
  for (const auto& [op, type] : measured) {
    // On CPUs the traffic of a product comes on top of its arithmetic, whose part of the peak is wanted.
    const double apart = op.parts.empty() || machine.is_cuda() ? 0 : traffic_us(op, ideal, type);
    const Reached call{predicted_us(op, ideal, type) - apart, op.us - machine.op_us - apart};
    if (call.ideal_us <= 0 || call.us <= 0) continue;
    const OpPart* most = nullptr;
    for (const OpPart& part : op.parts)
      if (most == nullptr || part.flops > most->flops) most = &part;
    ops[(most == nullptr ? op.name() : part_name(op, *most)) + "/" + name_of(type)].add(call);
    const auto* const member = std::find(std::begin(classes), std::end(classes), class_of(op, most, machine.is_cuda()));
    of_class[static_cast<std::size_t>(member - std::begin(classes))].add(call);
  }
  for (const auto& [name, reached] : ops) machine.ops[name] = reached.part();
  for (std::size_t i = 0; i < of_class.size(); ++i)
    if (of_class[i].us > 0) machine.efficiency.*classes[i] = of_class[i].part();
}

Machine measure_machine(Device device, const std::string& name) {
  const Ceilings& limits = ceilings(device);
  Machine machine;
  machine.name = name;
  machine.device = device.is_cuda() ? "cuda" : "cpu";
  machine.cores = device.is_cuda() ? cuda::device_info(device).multiprocessors : cpu::threads();
  machine.memory_bytes = device.is_cuda() ? cuda::device_info(device).memory_bytes
                                          : std::max<std::int64_t>(0, memory_budget(device).bytes());
  machine.peak_tflops = {
      .f32 = limits.matmul_f32_tflops, .bf16 = limits.matmul_bf16_tflops, .f16 = limits.matmul_f16_tflops};
  machine.copy_gbs = limits.copy_gbs;
  machine.source = "measured by hearth doctor --speed";
  machine.op_us = measured_op_us(device);
  if (device.is_cuda())
    machine.host_gbs = measured_host_gbs(device);
  else
    measure_caches(machine);
  set_efficiencies(machine, measure_probes(device, machine));
  return machine;
}

}  // namespace hearth::train
