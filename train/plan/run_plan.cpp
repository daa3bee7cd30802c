// SPDX-License-Identifier: Apache-2.0
#include "train/plan/run_plan.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include "autograd/grad_mode.h"
#include "core/cpu/parallel.h"
#include "core/cuda/stream.h"
#include "core/error.h"
#include "train/checkpoint/run_info.h"
#include "train/memory/rank_memory.h"
#include "train/plan/cost.h"
#include "train/report/precision_report.h"
#include "train/step/captured_step.h"
#include "train/step/step.h"

namespace hearth::train {
namespace {

// Left to the system and to a GPU's runtime.
constexpr double usable_memory = 0.95;
// A recorded step may be lengthened up to this, so that it is like the run's own.
constexpr double longest_recorded_us = 4e5;

/// How the times of ops come about.
struct Basis {
  std::optional<Machine> machine{};  ///< none: they are the recorded ones
  std::string name;
  std::string text;
  std::string why_no_times{};
};

/// The description that `hearth doctor --speed` kept, if it is that of this device: machines may share a folder.
std::optional<Machine> kept_machine(Device device) {
  const std::string file = machine_file(device.type);
  std::error_code unreadable;
  if (file.empty() || !std::filesystem::exists(file, unreadable)) return std::nullopt;
  Machine machine = parse_machine(read_json(file));
  const bool is_this = device.is_cuda()
                           ? machine.is_cuda() && machine.name == cuda::device_info(device).name
                           : !machine.is_cuda() && machine.name == processor_name() && machine.cores == cpu::threads();
  return is_this ? std::optional(std::move(machine)) : std::nullopt;
}

/// The first built-in GPU whose name is part of the device's.
std::optional<Machine> known_gpu(Device device) {
  const std::string name = cuda::device_info(device).name;
  for (const Machine& machine : known_machines())
    if (machine.is_cuda() && name.find(machine.name) != std::string::npos) return machine;
  return std::nullopt;
}

Basis basis_of(Device wanted, Device here, const PlanRequest& request) {
  if (request.machine) return {request.machine, request.machine->name, "its description"};
  if (wanted.type != here.type)
    return {.name = name_of(wanted),
            .text = "no times",
            .why_no_times = join_text(wanted, " is not here; name the machine, as in --on H200")};
  if (std::optional<Machine> kept = kept_machine(wanted)) {
    const std::string name = kept->name;
    return {std::move(kept), name,
            join_text("the speeds that `hearth doctor --speed` kept in ", machine_file(wanted.type))};
  }
  if (wanted.is_cpu()) return {std::nullopt, name_of(wanted), "the times of the ops of these steps"};
  if (std::optional<Machine> known = known_gpu(wanted)) {
    const std::string name = known->name;
    return {std::move(known), name, "the built-in description of this GPU"};
  }
  return {
      .name = name_of(wanted),
      .text = "no times",
      .why_no_times = "this GPU has no built-in description; `hearth doctor --speed` measures it, or name one by --on"};
}

/// Steps of two sizes. Where their times count, the larger is as near to the run's own, of `rows`, as a short time
/// allows; the smaller of a small run is that of a rank.
std::pair<StepOps, StepOps> record_two(Session& session, DeviceType target, bool timed, std::int64_t rows,
                                       std::int64_t rank_rows) {
  MeasuredBatches sizes = batches_to_measure(session);
  // Times of larger steps would say little.
  if (timed && rows >= 4 && rows < sizes.large)
    sizes = {rank_rows < rows ? std::max<std::int64_t>(2, rank_rows) : rows / 2, rows};
  const int repeats = timed ? 4 : 1;
  std::pair<StepOps, StepOps> steps{record_step(session, sizes.small, target, repeats),
                                    record_step(session, sizes.large, target, repeats)};
  while (timed && steps.second.rows < rows && 2 * steps.second.us < longest_recorded_us) {
    const std::int64_t more = std::min(rows, 2 * steps.second.rows);
    try {
      steps.first = std::exchange(steps.second, record_step(session, more, target, repeats));
    } catch (const OutOfMemory&) {
      break;
    }
  }
  return steps;
}

/// Rows times `accumulate` make a step; only the last backward pass has communication beside it.
StepCost cost_of_step(const Session& session, StepOps ops, double recorded_us, const Basis& basis) {
  StepCost cost;
  cost.rows = ops.rows;
  double phases[2] = {0, 0}, update_flops = 0, update_bytes = 0;
  for (StepOp& op : ops.ops) {
    if (!basis.why_no_times.empty()) op.us = 0;
    const bool is_update = op.op == "optimizer";
    (is_update ? cost.ms.update : phases[op.backward]) += 1e-3 * op.us;
    update_flops += is_update ? op.flops() : 0;
    update_bytes += is_update ? op.bytes : 0;
  }
  const auto times = static_cast<double>(session.config().train.accumulate);
  cost.ms.forward = times * phases[0];
  cost.ms.backward = times * phases[1];
  // Between ops: known where the step was timed.
  if (!basis.machine && basis.why_no_times.empty())
    cost.ms.other = std::max(0.0, times * 1e-3 * (recorded_us - ops.us));
  cost.flops = times * (ops.flops() - update_flops) + update_flops;
  cost.bytes = times * (ops.bytes() - update_bytes) + update_bytes;
  cost.launches = ops.launches;
  if (basis.machine && basis.machine->is_cuda() && basis.machine->host_gbs > 0)
    cost.ms.copy = std::max(0.0, 1e-6 * times * ops.input_bytes / basis.machine->host_gbs - cost.ms.sum());
  cost.ops = std::move(ops);
  return cost;
}

StepCost predict(const Session& session, const std::pair<StepOps, StepOps>& recorded, std::int64_t rows,
                 const Basis& basis) {
  StepOps step = step_at(recorded.first, recorded.second, rows);
  double whole = step.us;
  if (basis.machine) {
    step = on_machine(std::move(step), *basis.machine, session.config().precision.dtype);
    whole = step.us;
  } else {
    step.us = 0;
    for (const StepOp& op : step.ops) step.us += op.us;
  }
  return cost_of_step(session, std::move(step), whole, basis);
}

void plan_memory(RunPlan& plan, Session& session, Device wanted, const PlanRequest& request) {
  const bool by_tokens = session.data.rows_by_tokens() > 0;
  const std::int64_t batch = largest_rows(session);
  const StepMemory memory(session, batches_to_measure(session), wanted.type);
  plan.need = memory.at(batch);
  if (wanted.is_cuda()) plan.why_not_replayed = why_not_replayed(session);
  plan.kept = memory.saved_by_layer(batch);
  plan.method = memory.method();
  if (by_tokens) return;
  const bool is_here = !request.machine && wanted == session.device();
  if (is_here)
    plan.budget = memory_budget(wanted);
  else if (request.machine && request.machine->memory_bytes > 0)
    plan.budget.available = std::llround(usable_memory * static_cast<double>(request.machine->memory_bytes));
  else
    return;
  plan.need = memory.at(batch, plan.budget);
  // Larger ones an epoch does not have.
  plan.largest_batch = memory.largest_batch(plan.budget, session.data.train_batches(1));
  if (is_here && plan.budget.limit >= 0) plan.shortage = memory.shortage(batch, plan.budget);
}

RunCost cost_of_run(const Session& session, const RunPlan& plan, const Basis& basis, const PlanRequest& request) {
  const StepCost& step = plan.planned_step();
  RunCost run;
  run.steps = session.plan.total_steps;
  const double epochs =
      session.plan.steps_per_epoch > 0 ? static_cast<double>(run.steps) / session.plan.steps_per_epoch : 0;
  const data::DatasetPointer evaluated = session.validation_part().second;
  if (evaluated)
    run.evaluated_samples = std::floor(epochs / static_cast<double>(session.config().eval.every_epochs)) *
                            static_cast<double>(evaluated->size());
  const double times = static_cast<double>(session.config().train.accumulate);
  const double forward_ms = step.rows > 0 ? step.ms.forward / (times * static_cast<double>(step.rows)) : 0;
  const double ms =
      static_cast<double>(run.steps) * step.ms.sum() + run.evaluated_samples * forward_ms / plan.rank_count;
  run.hours = ms / 3.6e6;
  if (basis.machine && basis.machine->watts > 0) run.kwh = 1e-3 * basis.machine->watts * run.hours * plan.rank_count;
  if (request.price_per_hour) run.price = *request.price_per_hour * run.hours * plan.rank_count;
  return run;
}

/// What throughput counts, of a row.
double items_of_row(const Session& session) {
  const auto first_rows = [&](std::int64_t rows) {
    const std::int64_t few = std::min(rows, session.data.train->size());
    return session.data.train_loader(few, session.config().seed, session.device().type).next();
  };
  data::Batch batch;
  try {
    batch = first_rows(8);
  } catch (const DataError&) {
    batch = first_rows(2);  // an epoch of text may have fewer rows than its windows
  }
  return batch.rows() > 0 ? static_cast<double>(batch.count()) / static_cast<double>(batch.rows()) : 0;
}

}  // namespace

std::int64_t RunPlan::kept_by(const nn::ModuleReport& row) const {
  const auto found = kept.find(row.path.empty() ? "(model)" : row.path);
  return found == kept.end() ? 0 : found->second;
}

double RunPlan::scaling_efficiency() const {
  return ranked && ranked->ms.sum() > 0 ? step.ms.sum() / (rank_count * ranked->ms.sum()) : 1;
}

RunPlan plan_of(Session& session, Device wanted, const PlanRequest& request) {
  RunPlan plan;
  const Basis basis = basis_of(wanted, session.device(), request);
  plan.device = name_of(wanted);
  plan.machine = basis.name;
  plan.why_no_times = basis.why_no_times;
  plan.precision = precision_text(session);
  plan.parameters = session.model->parameter_count();
  {
    const data::Batch input = sample_batch(session, 1, session.device().type).to(session.device());
    const AutocastScope autocast(session.autocast());
    plan.layers = nn::summarize(*session.model, session.task->inputs(session, input));
  }
  plan_memory(plan, session, wanted, request);
  if (request.ranks > 1) plan.ranks = memory_of_ranks(session, wanted.type, request.ranks);

  const std::int64_t rows = largest_rows(session), rank_rows = (rows + request.ranks - 1) / request.ranks;
  const auto recorded = record_two(session, wanted.type, !basis.machine && basis.why_no_times.empty(), rows, rank_rows);
  plan.basis = join_text("ops of steps of ", recorded.first.rows, " and ", recorded.second.rows, " rows on ",
                         session.device(), ", and ", basis.text);
  plan.step = predict(session, recorded, rows, basis);
  plan.unit = session.throughput_unit();
  plan.items = items_of_row(session) * static_cast<double>(rows * session.config().train.accumulate);
  plan.rank_count = request.ranks;
  if (request.ranks > 1 && request.link) {
    plan.link = request.link->text;
    plan.ranked = predict(session, recorded, rank_rows, basis);
    plan.ranked->communication = communication_of(session, plan.ranked->ops, request.ranks, *request.link);
    plan.ranked->ms.communication = plan.ranked->communication->exposed_ms;
  }
  plan.run = cost_of_run(session, plan, basis, request);
  return plan;
}

}  // namespace hearth::train
