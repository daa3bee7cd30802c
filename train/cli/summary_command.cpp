// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iomanip>
#include <iostream>

#include "autograd/grad_mode.h"
#include "core/text_stream.h"
#include "models/nn/summary.h"
#include "train/cli/commands.h"
#include "train/memory/rank_memory.h"
#include "train/memory/step_memory.h"
#include "train/report/precision_report.h"
#include "train/step/captured_step.h"
#include "train/step/step.h"

namespace hearth::train {
namespace {

std::string count_text(double value) {
  TextStream out;
  out << std::fixed << std::setprecision(2);
  if (value >= 1e9)
    out << value / 1e9 << " G";
  else if (value >= 1e6)
    out << value / 1e6 << " M";
  else if (value >= 1e3)
    out << value / 1e3 << " k";
  else
    out << std::setprecision(0) << value << " ";
  return out.str();
}

/// What a summary consists of.
struct Summary {
  std::vector<nn::ModuleReport> layers;
  std::map<std::string, std::int64_t> kept;  ///< bytes for backward, by path
  std::int64_t parameters = 0;
  std::string device;
  MemoryNeed need;
  std::vector<MemoryNeed> ranks;  ///< of each, for its rows; empty unless asked for
  std::string method;
  MemoryBudget budget;
  std::optional<std::int64_t> largest_batch;
  std::optional<std::string> why_not_replayed;  ///< as why_not_replayed(), for a CUDA device
  std::string shortage;                         ///< why the run does not fit the process's limit; empty if it does

  double flops() const { return layers.empty() ? 0 : layers[0].flops; }
  std::int64_t kept_by(const nn::ModuleReport& row) const {
    const auto found = kept.find(row.path.empty() ? "(model)" : row.path);
    return found == kept.end() ? 0 : found->second;
  }
};

/// The config, on the CPU if it names a GPU that is not here: memory can be estimated without one.
LoadedConfig config_for_here(const Arguments& arguments, Device& wanted) {
  std::vector<std::string> overrides = arguments.values("--set");
  LoadedConfig loaded = load_config(arguments.positional()[0], overrides);
  if (loaded.config.device == "auto") {
    wanted = device_of_run("auto");
    return loaded;
  }
  wanted = Device(loaded.config.device);
  if (wanted.is_cpu() || device_count(DeviceType::cuda) > 0) return loaded;
  overrides.emplace_back("device=\"cpu\"");
  return load_config(arguments.positional()[0], overrides);
}

Summary summarize_run(const Arguments& arguments) {
  Summary summary;
  Device wanted;
  Session session(config_for_here(arguments, wanted));
  const data::Batch input = sample_batch(session, 1, session.device().type).to(session.device());
  summary.device = name_of(wanted);
  summary.parameters = session.model->parameter_count();
  {
    const AutocastScope autocast(session.autocast());
    summary.layers = nn::summarize(*session.model, session.task->inputs(session, input));
  }
  const bool by_tokens = session.data.rows_by_tokens() > 0;
  const std::int64_t batch = largest_rows(session);
  const StepMemory memory(session, batches_to_measure(session), wanted.type);
  summary.need = memory.at(batch);
  if (arguments.has("--ranks"))
    summary.ranks = memory_of_ranks(session, memory, batch, static_cast<int>(arguments.positive("--ranks", 1)));
  if (wanted.is_cuda()) summary.why_not_replayed = why_not_replayed(session);
  summary.kept = memory.saved_by_layer(batch);
  summary.method = memory.method();
  if (wanted == session.device() && !by_tokens) {
    summary.budget = memory_budget(wanted);
    summary.need = memory.at(batch, summary.budget);
    // Larger ones an epoch does not have.
    summary.largest_batch = memory.largest_batch(summary.budget, session.data.train_batches(1));
    if (summary.budget.limit >= 0) summary.shortage = memory.shortage(batch, summary.budget);
  }
  return summary;
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

void print_json(const Summary& summary) {
  Json list = Json::array();
  for (const nn::ModuleReport& row : summary.layers)
    list.push_back(Json::object()
                       .set("path", row.path)
                       .set("type", row.type)
                       .set("output", Json::array_of(std::vector<std::int64_t>(row.output.begin(), row.output.end())))
                       .set("parameters", row.parameters)
                       .set("flops", row.flops)
                       .set("saved_bytes", summary.kept_by(row)));
  Json memory = to_json(summary.need);
  memory.set("device", summary.device).set("method", summary.method);
  if (summary.why_not_replayed)
    memory.set("replayed", summary.why_not_replayed->empty()).set("why_not_replayed", *summary.why_not_replayed);
  if (summary.budget.bytes() >= 0)
    memory.set("available_bytes", summary.budget.bytes())
        .set("largest_batch_size", summary.largest_batch ? Json(*summary.largest_batch) : Json());
  Json all = Json::object()
                 .set("layers", list)
                 .set("parameters", summary.parameters)
                 .set("forward_flops_per_image", summary.flops())
                 .set("batch_size", summary.need.batch)
                 .set("memory", memory);
  Json ranks = Json::array();
  for (const MemoryNeed& need : summary.ranks) ranks.push_back(to_json(need).set("batch_size", need.batch));
  if (!summary.ranks.empty()) all.set("ranks", ranks);
  std::cout << to_text(all, 2) << "\n";
}

void print_layers(const Summary& summary) {
  std::cout << std::left << std::setw(28) << "layer"
            << " " << std::setw(14) << "type"
            << " " << std::setw(22) << "output" << std::right << std::setw(12) << "parameters" << std::setw(12)
            << "FLOP" << std::setw(13) << "kept"
            << "\n";
  for (const nn::ModuleReport& row : summary.layers) {
    const std::string name = std::string(static_cast<std::size_t>(2 * row.depth), ' ') +
                             (row.path.empty() ? "(model)" : row.path.substr(row.path.rfind('.') + 1));
    std::cout << std::left << std::setw(28) << name << " " << std::setw(14) << row.type << " " << std::setw(22)
              << join_text(row.output) << std::right << std::setw(12) << row.parameters << std::setw(12)
              << count_text(row.flops) << std::setw(12) << count_text(static_cast<double>(summary.kept_by(row)))
              << "B\n";
  }
  std::cout << "\nparameters                " << summary.parameters << "\nforward FLOP per image    "
            << count_text(summary.flops()) << "\n";
}

std::string bytes_text(std::int64_t bytes) { return count_text(static_cast<double>(bytes)) + "B"; }

void print_ranks(const Summary& summary) {
  if (summary.ranks.empty()) return;
  std::cout
      << "\nmemory of each of " << summary.ranks.size() << " ranks at " << summary.ranks[0].batch
      << " rows of the batch, estimated\n  rank     parameters  optimizer state  averaged weights    peak in use\n";
  for (std::size_t rank = 0; rank < summary.ranks.size(); ++rank) {
    const MemoryNeed& need = summary.ranks[rank];
    std::cout << std::right << std::setw(6) << rank << std::setw(15) << bytes_text(need.parameters) << std::setw(17)
              << bytes_text(need.optimizer) << std::setw(18) << bytes_text(need.averages) << std::setw(15)
              << bytes_text(need.peak) << "\n";
  }
}

void print_memory(const Summary& summary) {
  const MemoryNeed& need = summary.need;
  std::cout << "\nmemory on " << summary.device << " at batch " << need.batch << ", estimated\n";
  const auto line = [](const char* what, std::int64_t bytes) {
    if (bytes != 0)
      std::cout << "  " << std::left << std::setw(24) << what << std::right << std::setw(10)
                << count_text(static_cast<double>(bytes)) << "B\n";
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
  std::cout << "  a step is largest at " << need.peak_origin << "\n  from " << summary.method << "\n";
  if (summary.why_not_replayed)
    std::cout << "  steps "
              << (summary.why_not_replayed->empty() ? "are recorded and replayed as one graph each"
                                                    : "run one by one, as " + *summary.why_not_replayed)
              << "\n";
  if (summary.budget.bytes() < 0) return;
  std::cout << "  " << summary.device << " grants " << count_text(static_cast<double>(summary.budget.bytes())) << "B: ";
  if (summary.largest_batch)
    std::cout << "batches of up to " << *summary.largest_batch << " fit\n";
  else
    std::cout << "not even a batch of 1 fits\n";
}

int precision_command(const Arguments& arguments) {
  Device wanted;
  Session session(config_for_here(arguments, wanted));
  const std::vector<OpPrecision> rows = precision_of_ops(session);
  const auto text_of = [](const std::vector<std::string>& types) {
    std::string text;
    for (const std::string& type : types) text += (text.empty() ? "" : ", ") + (type.empty() ? "-" : type);
    return text;
  };
  if (arguments.has("--json")) {
    Json list = Json::array();
    for (const OpPrecision& row : rows)
      list.push_back(Json::object()
                         .set("layer", row.layer)
                         .set("op", row.op)
                         .set("policy", row.policy)
                         .set("runs_in", row.runs_in)
                         .set("reads", Json::array_of(row.reads))
                         .set("gives", row.gives));
    std::cout << to_text(Json::object()
                             .set("precision", hearth::to_json(session.config().precision))
                             .set("device", name_of(session.device()))
                             .set("wanted_device", name_of(wanted))
                             .set("ops", list),
                         2)
              << "\n";
    return 0;
  }
  if (wanted != session.device())
    std::cout << wanted << " is not here; these are the ops and types of " << session.device()
              << ", which normalises images before a step and knows no tf32\n\n";
  std::cout << "precision " << precision_text(session) << "\n\n"
            << std::left << std::setw(28) << "layer" << std::setw(18) << "op" << std::setw(15) << "policy"
            << std::setw(9) << "runs in" << std::setw(7) << "gives"
            << "reads\n";
  for (const OpPrecision& row : rows)
    std::cout << std::setw(28) << row.layer << std::setw(18) << row.op << std::setw(15) << row.policy << std::setw(9)
              << row.runs_in << std::setw(7) << row.gives << text_of(row.reads) << "\n";
  return 0;
}

int summary_command(const Arguments& arguments) {
  if (arguments.has("--precision")) return precision_command(arguments);
  const Summary summary = summarize_run(arguments);
  if (arguments.has("--json")) {
    print_json(summary);
  } else {
    print_layers(summary);
    print_memory(summary);
    print_ranks(summary);
  }
  HEARTH_CHECK(OutOfMemory, summary.shortage.empty(), summary.shortage);
  return 0;
}

}  // namespace

CommandSpec summary_spec() {
  return {"summary",
          "CONFIG.json",
          1,
          1,
          "Lists layers, output shapes, parameters, arithmetic, the memory of a run and the largest batch that fits.",
          {set_option(),
           {"--ranks", "N", "the memory of each of N ranks too, with dist.zero and its rows of the batch"},
           {"--precision", "", "list each op with the types it reads, computes in and gives"},
           {"--json", "", "print as JSON on stdout"}},
          summary_command};
}

}  // namespace hearth::train
