// SPDX-License-Identifier: Apache-2.0
// plan: what a run costs before it runs; its former name, summary.
#include <algorithm>
#include <iomanip>
#include <iostream>

#include "data/splits.h"
#include "train/cli/commands.h"
#include "train/plan/audit.h"
#include "train/plan/run_plan.h"
#include "train/report/precision_report.h"

namespace hearth::train {
namespace {

/// The config, on the CPU if it is for a GPU that is not here: a plan can be made without one. With a machine, on the
/// kind of device that it has.
LoadedConfig config_for_here(const Arguments& arguments, const Machine* machine, Device& wanted) {
  std::vector<std::string> overrides = arguments.values("--set");
  if (machine != nullptr) overrides.push_back(join_text("device=\"", machine->device, '"'));
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

/// Whether the data cannot be opened, so that it is they which a plan lacks.
bool lacks_data(const LoadedConfig& loaded) {
  try {
    (void)data::make_data(loaded.config.data);
    return false;
  } catch (const Error&) {
    return true;
  }
}

/// A session of the run. Where its data are not here, the error says what would do.
std::unique_ptr<Session> session_of(const LoadedConfig& loaded) {
  constexpr const char* hint =
      "; a plan needs the data only for the shape and number of samples: with "
      R"(--set 'data={"type":"synthetic","height":224,"width":224,"classes":1000,"train_size":1281167}')"
      " images need no files";
  try {
    return std::make_unique<Session>(loaded);
  } catch (const FileError& error) {
    if (lacks_data(loaded)) throw FileError(join_text(error.what(), hint));
    throw;
  } catch (const DataError& error) {
    if (lacks_data(loaded)) throw DataError(join_text(error.what(), hint));
    throw;
  }
}

int precision_command(const Arguments& arguments) {
  Device wanted;
  const std::unique_ptr<Session> made = session_of(config_for_here(arguments, nullptr, wanted));
  Session& session = *made;
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

int audit_command(const Arguments& arguments) {
  Device wanted;
  std::optional<Machine> machine;
  if (const auto name = arguments.value("--on")) machine = machine_named(*name);
  const std::unique_ptr<Session> session =
      session_of(config_for_here(arguments, machine ? &*machine : nullptr, wanted));
  const std::vector<AuditFinding> found = audit_of(*session, wanted);
  std::cout << (arguments.has("--json") ? to_text(to_json(found), 2) + "\n" : to_text(found));
  const auto file = arguments.value("--expect");
  if (!file) return 0;
  const std::vector<AuditFinding> surprising = unexpected(found, findings_of(read_json(*file)));
  std::string list;
  for (const AuditFinding& finding : surprising)
    list += join_text("\n", finding.kind, " ", finding.op, finding.layer.empty() ? "" : " of " + finding.layer, ": ",
                      finding.what);
  HEARTH_CHECK(ConfigError, surprising.empty(), "plan --audit: ", *file, " does not expect", list);
  return 0;
}

PlanRequest request_of(const Arguments& arguments) {
  PlanRequest request;
  if (const auto machine = arguments.value("--on")) request.machine = machine_named(*machine);
  request.ranks = static_cast<int>(arguments.positive("--ranks", 1));
  if (const auto link = arguments.value("--link")) request.link = parse_link(*link);
  HEARTH_CHECK(UsageError, !request.link || request.ranks > 1,
               "plan: --link joins several ranks; say how many, as in --ranks 8");
  if (arguments.has("--price-per-hour")) request.price_per_hour = arguments.number("--price-per-hour", 0);
  return request;
}

int plan_command(const Arguments& arguments) {
  if (arguments.has("--precision")) {
    arguments.refuse_others("plan --precision", {"--precision", "--set", "--json"});
    return precision_command(arguments);
  }
  if (arguments.has("--audit")) {
    arguments.refuse_others("plan --audit", {"--audit", "--expect", "--on", "--set", "--json"});
    return audit_command(arguments);
  }
  HEARTH_CHECK(UsageError, !arguments.has("--expect"), "plan: --expect is that of --audit; say both");
  const PlanRequest request = request_of(arguments);
  Device wanted;
  const std::unique_ptr<Session> session =
      session_of(config_for_here(arguments, request.machine ? &*request.machine : nullptr, wanted));
  const RunPlan plan = plan_of(*session, wanted, request);
  std::cout << (arguments.has("--json") ? to_text(to_json(plan), 2) + "\n" : to_text(plan));
  HEARTH_CHECK(OutOfMemory, plan.shortage.empty(), plan.shortage);
  return 0;
}

int summary_command(const Arguments& arguments) {
  std::cerr << "hearth: hint: `hearth summary` is now `hearth plan`, which predicts times too; the old name goes with "
               "the next release\n";
  return plan_command(arguments);
}

}  // namespace

CommandSpec plan_spec() {
  return {
      "plan",
      "CONFIG.json",
      1,
      1,
      "Predicts what a run costs before it runs: layers, arithmetic, memory, the largest batch, the time of a step "
      "by phase, communication, hours, energy and price.",
      {set_option(),
       {"--on", "MACHINE",
        "a built-in machine (H200, H100, A100, RTX 4090, ...), or the JSON file of one, in place of this machine"},
       {"--ranks", "N", "the memory of each of N ranks too, with dist.zero and its rows of the batch"},
       {"--link", "RATE", "the time of N ranks too, joined by a link of so much in each direction: 25gbit, 50gbyte"},
       {"--price-per-hour", "PRICE", "of the machine of each rank; the plan says the price of the run"},
       {"--precision", "", "list each op with the types it reads, computes in and gives"},
       {"--audit", "", "list what keeps steps from the machine's speed: sizes, portable ops, casts, copies"},
       {"--expect", "FILE", "with --audit: end with code 2 where something is found that this earlier --json lacks"},
       {"--json", "", "print as JSON on stdout"}},
      plan_command};
}

CommandSpec summary_spec() {
  CommandSpec spec = plan_spec();
  spec.name = "summary";
  spec.summary = "Is now plan.";
  spec.run = summary_command;
  return spec;
}

}  // namespace hearth::train
