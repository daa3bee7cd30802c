// SPDX-License-Identifier: Apache-2.0
#include "train/plan/cost.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>

namespace hearth::train {
namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// The machine's own figure for one of these names, the first first, of the type or of any.
std::optional<double> rate_of(const Machine& machine, std::initializer_list<std::string> names, ComputeType type) {
  for (const std::string& name : names)
    for (const std::string& key : {name + "/" + name_of(type), name})
      if (const auto found = machine.ops.find(key); found != machine.ops.end()) return found->second;
  return std::nullopt;
}

std::string in_backward(const std::string& name, bool backward) { return backward ? name + " (backward)" : name; }

double arithmetic_us(const StepOp& op, const Machine& machine, ComputeType type) {
  double us = 0;
  for (const OpPart& part : op.parts) {
    // "linear:onednn" runs as "conv2d:unfolded" too, so that both names count.
    const std::string& by = part.implementation;
    const double efficiency =
        rate_of(machine, {in_backward(op.op + "/" + by, op.backward), in_backward(by, op.backward), by, op.name()},
                type)
            .value_or(machine.efficiency.*class_of(op, &part, machine.is_cuda()));
    us += 1e-6 * part.flops / (machine.peak(type) * efficiency);
  }
  return us;
}

}  // namespace

double traffic_us(const StepOp& op, const Machine& machine, ComputeType type) {
  const double cached = machine.cache_gbs > 0 ? std::min(op.bytes, machine.cache_bytes) : 0;
  const double us =
      1e-3 * (op.bytes - cached) / machine.copy_gbs + (cached > 0 ? 1e-3 * cached / machine.cache_gbs : 0);
  const std::optional<double> known = op.parts.empty() ? rate_of(machine, {op.name()}, type) : std::nullopt;
  return us / known.value_or(machine.efficiency.*class_of(op, nullptr, machine.is_cuda()));
}

double Efficiency::*class_of(const StepOp& op, const OpPart* part, bool cuda) {
  if (part == nullptr) {
    if (!op.parts.empty()) return &Efficiency::operands;
    if (op.op == "optimizer") return &Efficiency::update;
    return contains(op.op, "norm") && op.op != "normalize_images" ? &Efficiency::norm : &Efficiency::memory;
  }
  if (contains(op.op, "attention")) return &Efficiency::attention;
  if (contains(part->implementation, "depthwise")) return &Efficiency::depthwise;
  // A GPU has implementations of its own, whatever the step was recorded with.
  if (!cuda && contains(part->implementation, "winograd")) return &Efficiency::winograd;
  return contains(op.op, "conv") || op.op == "residual_block" ? &Efficiency::conv : &Efficiency::matmul;
}

double predicted_us(const StepOp& op, const Machine& machine, ComputeType type) {
  const double arithmetic = arithmetic_us(op, machine, type), traffic = traffic_us(op, machine, type);
  const double us = machine.is_cuda() ? std::max(arithmetic, traffic) : arithmetic + traffic;
  return us > 0 ? us + machine.op_us : 0;  // what makes a view costs nothing
}

StepOps on_machine(StepOps step, const Machine& machine, ComputeType type) {
  step.us = 0;
  for (StepOp& op : step.ops) {
    op.us = predicted_us(op, machine, type);
    step.us += op.us;
  }
  return step;
}

}  // namespace hearth::train
