// SPDX-License-Identifier: Apache-2.0
// A plan as JSON, and as text for people.
#include <algorithm>
#include <iomanip>
#include <string>

#include "core/error.h"
#include "core/text_stream.h"
#include "train/plan/run_plan.h"

namespace hearth::train {
namespace {

// Of a text's list of layers by their compute for each byte sent.
constexpr std::size_t listed_layers = 8;

std::string count_text(double value) {
  TextStream out;
  out << std::fixed << std::setprecision(2);
  if (value >= 1e12)
    out << value / 1e12 << " T";
  else if (value >= 1e9)
    out << value / 1e9 << " G";
  else if (value >= 1e6)
    out << value / 1e6 << " M";
  else if (value >= 1e3)
    out << value / 1e3 << " k";
  else
    out << std::setprecision(0) << value << " ";
  return out.str();
}

std::string bytes_text(std::int64_t bytes) { return count_text(static_cast<double>(bytes)) + "B"; }

std::string fixed_text(double value, int digits) {
  TextStream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

Json to_json(const MemoryNeed& need) {
  return Json::object()
      .set("parameter_bytes", need.parameters)
      .set("gradient_bytes", need.gradients)
      .set("optimizer_bytes", need.optimizer)
      .set("average_bytes", need.averages)
      .set("buffer_bytes", need.buffers)
      .set("other_bytes", need.other)
      .set("input_bytes", need.inputs)
      .set("saved_bytes", need.kept)
      .set("working_bytes", need.working)
      .set("evaluation_bytes", need.evaluation)
      .set("peak_bytes", need.peak)
      .set("reserved_bytes", need.reserved)
      .set("peak_at", join_text(need.peak_origin));
}

Json layers_json(const RunPlan& plan) {
  Json list = Json::array();
  for (const nn::ModuleReport& row : plan.layers)
    list.push_back(Json::object()
                       .set("path", row.path)
                       .set("type", row.type)
                       .set("output", Json::array_of(std::vector<std::int64_t>(row.output.begin(), row.output.end())))
                       .set("parameters", row.parameters)
                       .set("flops", row.flops)
                       .set("saved_bytes", plan.kept_by(row)));
  return list;
}

Json memory_json(const RunPlan& plan) {
  Json memory = to_json(plan.need);
  memory.set("device", plan.device).set("method", plan.method);
  if (plan.why_not_replayed)
    memory.set("replayed", plan.why_not_replayed->empty()).set("why_not_replayed", *plan.why_not_replayed);
  if (plan.budget.bytes() >= 0)
    memory.set("available_bytes", plan.budget.bytes())
        .set("largest_batch_size", plan.largest_batch ? Json(*plan.largest_batch) : Json());
  return memory;
}

/// Null where times are not predicted.
Json phases_json(const RunPlan& plan, const StepCost& step) {
  if (!plan.why_no_times.empty()) return {};
  return Json::object()
      .set("data", Json())  // `hearth bench data` measures it
      .set("copy", step.ms.copy)
      .set("forward", step.ms.forward)
      .set("backward", step.ms.backward)
      .set("communication", step.ms.communication)
      .set("update", step.ms.update)
      .set("other", step.ms.other);
}

Json step_json(const RunPlan& plan, const StepCost& step, double items) {
  const double ms = step.ms.sum();
  return Json::object()
      .set("rows", step.rows)
      .set("flops", step.flops)
      .set("bytes", step.bytes)
      .set("op_calls", step.ops.ops.size())
      .set("launches", step.launches > 0 ? Json(step.launches) : Json())
      .set("phase_milliseconds", phases_json(plan, step))
      .set("milliseconds", ms > 0 ? Json(ms) : Json())
      .set("per_s", ms > 0 ? Json(1e3 * items / ms) : Json())
      .set("unit", plan.unit);
}

/// Ops of equal name together, the slowest first.
Json ops_json(const StepOps& step) {
  struct Row {
    std::int64_t calls = 0;
    double us = 0, flops = 0, bytes = 0;
  };
  std::map<std::string, Row> rows;
  for (const StepOp& op : step.ops) {
    Row& row = rows[op.name()];
    ++row.calls;
    row.us += op.us;
    row.flops += op.flops();
    row.bytes += op.bytes;
  }
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  Json list = Json::array();
  for (const auto& [name, row] : sorted)
    list.push_back(Json::object()
                       .set("name", name)
                       .set("calls", row.calls)
                       .set("us", row.us)
                       .set("flops", row.flops)
                       .set("bytes", row.bytes));
  return list;
}

Json scaling_json(const RunPlan& plan) {
  const Communication& sent = *plan.ranked->communication;
  Json layers = Json::array();
  for (const LayerTraffic& layer : sent.layers)
    layers.push_back(Json::object()
                         .set("path", layer.layer)
                         .set("parameters", layer.parameters)
                         .set("bytes", layer.bytes)
                         .set("flops", layer.flops)
                         .set("flops_per_byte", layer.bytes > 0 ? layer.flops / layer.bytes : 0));
  return Json::object()
      .set("ranks", plan.rank_count)
      .set("link", plan.link)
      .set("buckets", sent.buckets)
      .set("sent_bytes", sent.bytes)
      .set("link_milliseconds", sent.milliseconds)
      .set("exposed_milliseconds", sent.exposed_ms)
      .set("efficiency", plan.why_no_times.empty() ? Json(plan.scaling_efficiency()) : Json())
      .set("step", step_json(plan, *plan.ranked, plan.items))
      .set("layers", layers);
}

Json run_json(const RunPlan& plan) {
  const bool timed = plan.why_no_times.empty();
  return Json::object()
      .set("steps", plan.run.steps)
      .set("evaluated_samples", plan.run.evaluated_samples)
      .set("flops", plan.planned_step().flops * static_cast<double>(plan.run.steps) * plan.rank_count)
      .set("hours", timed ? Json(plan.run.hours) : Json())
      .set("kwh", timed && plan.run.kwh ? Json(*plan.run.kwh) : Json())
      .set("price", timed && plan.run.price ? Json(*plan.run.price) : Json());
}

void write_layers(TextStream& out, const RunPlan& plan) {
  out << std::left << std::setw(28) << "layer"
      << " " << std::setw(14) << "type"
      << " " << std::setw(22) << "output" << std::right << std::setw(12) << "parameters" << std::setw(12) << "FLOP"
      << std::setw(13) << "kept"
      << "\n";
  for (const nn::ModuleReport& row : plan.layers) {
    const std::string name = std::string(static_cast<std::size_t>(2 * row.depth), ' ') +
                             (row.path.empty() ? "(model)" : row.path.substr(row.path.rfind('.') + 1));
    out << std::left << std::setw(28) << name << " " << std::setw(14) << row.type << " " << std::setw(22)
        << join_text(row.output) << std::right << std::setw(12) << row.parameters << std::setw(12)
        << count_text(row.flops) << std::setw(12) << bytes_text(plan.kept_by(row)) << "\n";
  }
  out << "\nparameters                " << plan.parameters << "\nforward FLOP per image    " << count_text(plan.flops())
      << "\n";
}

void write_memory(TextStream& out, const RunPlan& plan) {
  const MemoryNeed& need = plan.need;
  out << "\nmemory on " << plan.device << " at batch " << need.batch << ", estimated\n";
  const auto line = [&](const char* what, std::int64_t bytes) {
    if (bytes != 0)
      out << "  " << std::left << std::setw(24) << what << std::right << std::setw(11) << bytes_text(bytes) << "\n";
  };
  line("parameters", need.parameters);
  line("gradients", need.gradients);
  line("optimizer state", need.optimizer);
  line("averaged weights", need.averages);
  line("buffers", need.buffers);
  line("other, fixed", need.other);
  line("input batches", need.inputs);
  line("kept for backward", need.kept);
  line("working memory", need.working);
  line("an evaluation's own", need.evaluation);
  line("peak in use", need.peak);
  line("held from the system", need.reserved);
  out << "  a step is largest at " << need.peak_origin << "\n  from " << plan.method << "\n";
  if (plan.why_not_replayed)
    out << "  steps "
        << (plan.why_not_replayed->empty() ? "are recorded and replayed as one graph each"
                                           : "run one by one, as " + *plan.why_not_replayed)
        << "\n";
  if (plan.budget.bytes() < 0) return;
  out << "  " << plan.device << " grants " << bytes_text(plan.budget.bytes()) << ": ";
  if (plan.largest_batch)
    out << "batches of up to " << *plan.largest_batch << " fit\n";
  else
    out << "not even a batch of 1 fits\n";
}

void write_ranks(TextStream& out, const RunPlan& plan) {
  if (plan.ranks.empty()) return;
  out << "\nmemory of each of " << plan.ranks.size() << " ranks at " << plan.ranks[0].batch
      << " rows of the batch, estimated\n  rank     parameters      gradients  optimizer state  averaged weights    "
         "peak in use\n";
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const MemoryNeed& need = plan.ranks[rank];
    out << std::right << std::setw(6) << rank << std::setw(15) << bytes_text(need.parameters) << std::setw(15)
        << bytes_text(need.gradients) << std::setw(17) << bytes_text(need.optimizer) << std::setw(18)
        << bytes_text(need.averages) << std::setw(15) << bytes_text(need.peak) << "\n";
  }
}

void write_phases(TextStream& out, const PhaseTimes& ms) {
  const auto line = [&](const char* name, double value) {
    out << "  " << std::left << std::setw(24) << name << std::right << std::setw(10) << fixed_text(value, 2) << " ms "
        << std::setw(5) << fixed_text(ms.sum() > 0 ? 100 * value / ms.sum() : 0, 1) << " %\n";
  };
  line("copy to the device", ms.copy);
  line("forward", ms.forward);
  line("backward", ms.backward);
  line("communication, exposed", ms.communication);
  line("update", ms.update);
  line("other", ms.other);
}

void write_step(TextStream& out, const RunPlan& plan, const StepCost& step) {
  const double ms = step.ms.sum();
  out << "  arithmetic, memory traffic" << std::right << std::setw(12) << count_text(step.flops) << "FLOP, "
      << count_text(step.bytes) << "B in " << step.ops.ops.size() << " op calls";
  if (step.launches > 0) out << ", " << step.launches << " launches";
  out << "\n";
  if (!plan.why_no_times.empty()) {
    out << "  no times: " << plan.why_no_times << "\n";
    return;
  }
  write_phases(out, step.ms);
  out << "  " << std::left << std::setw(24) << "a step" << std::right << std::setw(10) << fixed_text(ms, 2) << " ms, "
      << fixed_text(ms > 0 ? 1e3 * plan.items / ms : 0, 1) << " " << plan.unit << "\n";
}

void write_scaling(TextStream& out, const RunPlan& plan) {
  if (!plan.ranked) return;
  const Communication& sent = *plan.ranked->communication;
  out << "\na step of each of " << plan.rank_count << " ranks over " << plan.link << ", " << plan.ranked->rows
      << " rows each, predicted\n";
  write_step(out, plan, *plan.ranked);
  out << "  gradients" << std::right << std::setw(27) << count_text(sent.bytes) << "B sent by each rank in "
      << sent.buckets << " buckets, " << fixed_text(sent.milliseconds, 2) << " ms of the link\n";
  if (plan.why_no_times.empty())
    out << "  scaling efficiency      " << std::setw(10) << fixed_text(100 * plan.scaling_efficiency(), 1) << " %\n";
  std::vector<LayerTraffic> layers = sent.layers;
  std::stable_sort(layers.begin(), layers.end(),
                   [](const LayerTraffic& a, const LayerTraffic& b) { return a.flops * b.bytes < b.flops * a.bytes; });
  if (layers.size() > listed_layers) layers.resize(listed_layers);
  out << "  layers with the least arithmetic for a byte sent\n";
  for (const LayerTraffic& layer : layers)
    out << "    " << std::left << std::setw(32) << layer.layer << std::right << std::setw(11) << count_text(layer.bytes)
        << "B" << std::setw(11) << fixed_text(layer.bytes > 0 ? layer.flops / layer.bytes : 0, 1) << " FLOP a byte\n";
}

void write_run(TextStream& out, const RunPlan& plan) {
  out << "\nthe run: " << plan.run.steps << " steps";
  if (plan.run.evaluated_samples > 0) out << ", " << fixed_text(plan.run.evaluated_samples, 0) << " samples evaluated";
  if (plan.why_no_times.empty()) {
    out << ", " << fixed_text(plan.run.hours, plan.run.hours < 1 ? 4 : 2) << " hours";
    if (plan.run.kwh) out << ", " << fixed_text(*plan.run.kwh, *plan.run.kwh < 1 ? 4 : 2) << " kWh";
    if (plan.run.price) out << ", price " << fixed_text(*plan.run.price, 2);
  }
  out << "\n  not predicted: loading and decoding, which run ahead of the steps (`hearth bench data` measures them), "
         "and "
         "checkpoints\n";
}

}  // namespace

Json to_json(const RunPlan& plan) {
  Json all = Json::object()
                 .set("layers", layers_json(plan))
                 .set("parameters", plan.parameters)
                 .set("forward_flops_per_image", plan.flops())
                 .set("batch_size", plan.need.batch)
                 .set("precision", plan.precision)
                 .set("memory", memory_json(plan))
                 .set("machine", plan.machine)
                 .set("basis", plan.basis)
                 .set("why_no_times", plan.why_no_times)
                 .set("step", step_json(plan, plan.step, plan.items))
                 .set("ops", ops_json(plan.step.ops));
  Json ranks = Json::array();
  for (const MemoryNeed& need : plan.ranks) ranks.push_back(to_json(need).set("batch_size", need.batch));
  if (!plan.ranks.empty()) all.set("ranks", ranks);
  if (plan.ranked) all.set("scaling", scaling_json(plan));
  return all.set("run", run_json(plan));
}

std::string to_text(const RunPlan& plan) {
  TextStream out;
  write_layers(out, plan);
  write_memory(out, plan);
  write_ranks(out, plan);
  out << "\na step on " << plan.machine << " at batch " << plan.step.rows << ", " << plan.precision << ", predicted\n";
  write_step(out, plan, plan.step);
  out << "  from " << plan.basis << "\n";
  write_scaling(out, plan);
  write_run(out, plan);
  return out.str();
}

}  // namespace hearth::train
