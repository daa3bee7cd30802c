// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <set>

#include "core/cpu/cores.h"
#include "core/cpu/free_memory.h"
#include "core/cpu/isa.h"
#include "core/cpu/parallel.h"
#include "core/io/printable.h"
#include "data/text/text_data.h"
#include "train/checkpoint/trained_weights.h"
#include "train/cli/commands.h"
#include "train/cli/join_group.h"
#include "train/cli/near_device.h"
#include "train/memory/step_memory.h"
#include "train/report/precision_report.h"
#include "train/signals.h"
#include "train/trainer.h"
#include "train/tune/lock_file.h"

namespace hearth::train {
namespace {

/// Writes a line in one piece, so that an error on the way leaves no half of it before its own message.
template <class... Parts>
void print_line(const Parts&... parts) {
  std::cerr << join_text(parts..., "\n");
}

/// The learning rate and how it was scaled to the batch.
std::string describe_lr(const Session& session) {
  const TrainOptions& train = session.config().train;
  const LrScalingOptions& scaling = train.lr_scaling;
  std::string text = join_text(session.base_lr());
  if (scaling.rule != optim::LrScaling::none)
    text += join_text(" = ", session.optimizer->base_lr(), " x ", lr_factor(train), ", ",
                      scaling.rule == optim::LrScaling::linear ? "linear" : "sqrt", " from ", *scaling.reference_batch,
                      " to ", train.batch_size * train.accumulate, " samples an update");
  return text;
}

/// A run's config.json has the default, which nobody has to take back.
void refuse_unused_batch_size(const RunConfig& config) {
  const std::int64_t tokens = data::tokens_per_batch(config.data), rows = config.train.batch_size;
  HEARTH_CHECK(ConfigError, tokens == 0 || rows == TrainOptions{}.batch_size, "/train/batch_size: ", rows,
               " samples, but batches are filled up to /data/tokens_per_batch, ", tokens,
               " ids; leave batch_size out, or tokens_per_batch");
}

/// What an update sees: "64 x 3", "4096 tokens".
std::string describe_update(const RunConfig& config) {
  const std::int64_t batches = config.train.accumulate;
  std::string text = data::describe_token_batches(config.data);
  if (text.empty()) text = join_text(config.train.batch_size);
  if (batches > 1) text += join_text(" x ", batches);
  return text;
}

void print_plan(const Session& session, const std::string& folder, const std::string& ranks,
                const std::string& of_weights) {
  const RunConfig& config = session.config();
  print_line("run       ", config.name, " -> ", printable(folder));
  const std::vector<int> numbers = cpu::allowed_cores();
  const std::string cores = cpu::describe_cores(numbers);
  const SwitchScope switches(session.switches());
  print_line("device    ", session.device(), ", ", cpu::threads(), cpu::threads() == 1 ? " thread" : " threads",
             cores.empty() ? "" : (numbers.size() == 1 ? " on core " : " on cores ") + cores, ", ",
             name_of(cpu::isa()));
  if (!ranks.empty()) print_line("ranks     ", ranks);
  print_line("model     ", config.model.type(), ", ", session.model->parameter_count(), " parameters");
  if (!of_weights.empty()) print_line("          ", printable(of_weights));
  print_line("data      ", config.data.type(), ", ", session.data.train->size(), " training ",
             session.task->describe());
  print_line("precision ", precision_text(session), config.train.deterministic ? ", deterministic" : "");
  print_line("plan      ", session.plan.total_steps, " steps of ", describe_update(config), ", ",
             session.plan.steps_per_epoch, " an epoch");
  print_line("rate      ", describe_lr(session), ", ", config.schedule.type());
  print_line("best      ", session.data.valid
                               ? join_text("by ", session.best_by())
                               : "the last checkpoint, as there is no valid split; data.valid_fraction sets one aside");
}

/// What the data leaves out, once for each position that it was read from.
void print_warnings(const data::DataSplits& data) {
  constexpr std::int64_t most = 5;
  std::set<std::string> seen;
  for (const data::DatasetPointer& set : {data.train, data.valid, data.test}) {
    if (!set || !seen.insert(set->source()).second) continue;
    for (const data::Warnings& warnings : {set->warnings(), set->unreadable()}) {
      const std::int64_t shown = std::min(most, static_cast<std::int64_t>(warnings.first.size()));
      for (std::int64_t i = 0; i < shown; ++i) print_line("warning   ", warnings.first[static_cast<std::size_t>(i)]);
      if (warnings.count > shown)
        print_line("          and ", warnings.count - shown, " more; `hearth data inspect` names the first 20");
    }
  }
}

/// Tells of rows of an embedding that no piece of the tokenizer leads to: those that pad a vocabulary, or a tokenizer
/// that lacks what was added to another.
void print_unused_rows(const Session& session) {
  const char* key = "vocabulary";
  for (const data::Tokenizer* const tokenizer : session.data.tokenizers()) {
    const Json* const rows = session.resolved().at("model").find(key);
    if (rows != nullptr && rows->is_integer() && rows->as_integer() > tokenizer->size())
      print_line("warning   /model/", key, ": ", rows->as_integer(), " rows for the ", tokenizer->size(),
                 " pieces of the tokenizer; the others are of no text, unless pieces that were added are missing");
    key = "source_vocabulary";
  }
}

void start_from_weights(Session& session) {
  const LoadedWeights loaded = session.load_start_weights();
  if (!session.ranks->writes()) return;
  if (const WeightsOptions& options = session.config().weights; !options.path.empty()) {
    const auto trained = find_trained_weights(options.path);
    print_line("weights   ", printable(options.path), " (", name_of(options.from), ")",
               trained && trained->averaged ? ", the moving average (train.ema) of that run" : "");
  }
  for (const std::string& name : loaded.left_out) print_line("          not loaded: ", printable(name));
  for (const std::string& note : loaded.notes) print_line("          warning: ", printable(note));
}

/// What the run came to, by the metrics of run.json; "" without an evaluation.
std::string final_line(const Json& metrics) {
  if (!metrics.find("loss")) return "";
  const auto percent = [&](const char* key) {
    return join_text(std::fixed, std::setprecision(2), 100 * metrics.at(key).as_number(), " %");
  };
  std::string text = join_text("final ", metrics.at("split").as_string(), " loss ", to_text(metrics.at("loss")));
  if (metrics.find("accuracy")) text += "  accuracy " + percent("accuracy");
  const std::string by = metrics.at("best_by").as_string(), of_valid = "valid ",
                    chosen = by.substr(std::min(by.size(), of_valid.size()));
  if (by == "valid accuracy")
    text += join_text("  best ", percent("best_accuracy"), " at step ", metrics.at("best_step").as_integer());
  else if (by.starts_with(of_valid))
    text += join_text("  best ", chosen, " ", to_text(metrics.at("best_" + chosen)), " at step ",
                      metrics.at("best_step").as_integer());
  if (!metrics.find("test_accuracy")) return text;
  text += "  test accuracy " + percent("test_accuracy");
  const Json* const step = metrics.find("test_step");
  if (step != nullptr && step->as_integer() != metrics.at("step").as_integer())
    text += join_text(" (of step ", step->as_integer(), ")");
  return text;
}

/// Trains, as a rank of `group` unless it is null.
int train(const Arguments& arguments, LoadedConfig loaded, Collective* group, const std::string& ranks) {
  const std::string path = arguments.value("--out").value_or("runs/" + loaded.config.name);
  require_apart(path, arguments.positional()[0]);
  const std::string of_weights = loaded.of_weights;
  Session session(std::move(loaded), group);
  const bool writes = group == nullptr || group->rank() == 0;
  if (writes) {
    print_plan(session, path, ranks, of_weights);
    print_warnings(session.data);
    print_unused_rows(session);
  }
  // Where the system would end the process without a word, or the run would end within.
  if (session.device().is_cpu() && (cpu::group_memory() || cpu::limited_memory()) && group == nullptr)
    require_run_fits(session, memory_budget(session.device()));
  if (arguments.has("--dry-run")) {
    start_from_weights(session);
    return 0;
  }

  RunFolder folder(path, writes);
  std::ostream nowhere(nullptr);
  Progress progress(writes ? std::cerr : nowhere, writes ? terminal_of(STDERR_FILENO) : Terminal{});
  Trainer trainer(session, folder, progress);
  const std::string resume = arguments.value("--resume").value_or("auto");
  const bool resumed =
      resume != "never" && trainer.resume(resume == "auto" ? path : resume, arguments.has("--changed-data"));
  HEARTH_CHECK(FileError, resumed || resume == "auto" || resume == "never", "--resume ", resume,
               ": there is no complete checkpoint below it");
  if (!resumed) {
    start_from_weights(session);
    folder.clear();
  }

  const TrainResult result = trainer.run(arguments.command_line());
  if (result.stop_signal != 0) {
    progress.line(join_text("stopped by signal ", result.stop_signal, " after step ", session.position.step,
                            resume == "auto" ? "; the same command goes on from there"
                                             : "; the same command without --resume goes on from there"));
    return 128 + result.stop_signal;
  }
  if (result.already_done)
    progress.line(join_text("the run was finished before",
                            result.stop_reason.empty() ? "" : " (" + result.stop_reason + ")",
                            "; use --resume never to train it again"));
  const std::string summary = final_line(result.metrics);
  if (!summary.empty()) progress.line(summary);
  if (session.config().log.report) progress.line("report " + folder.file("report.html"));
  return 0;
}

int train_command(const Arguments& arguments) {
  // Messages into a pipe whose reader has gone end no training.
  survive(SIGPIPE);
  std::vector<std::string> overrides = arguments.values("--set");
  if (const auto device = arguments.value("--device")) overrides.push_back("device=\"" + *device + "\"");
  constexpr std::pair<const char*, const char*> shorthands[] = {{"--epochs", "train.epochs="},
                                                                {"--lr", "optimizer.lr="},
                                                                {"--batch-size", "train.batch_size="},
                                                                {"--seed", "seed="}};
  for (const auto& [option, path] : shorthands)
    if (const auto value = arguments.value(option)) overrides.push_back(path + *value);
  LoadedConfig loaded = load_config(arguments.positional()[0], overrides);
  if (const auto lock = arguments.value("--lock")) {
    const std::vector<std::string> words =
        words_of_lock(read_json(*lock), loaded,
                      {.device = device_model(device_of_run(loaded.config.device)), .ranks = ranks_of(loaded.config)});
    overrides.insert(overrides.end(), words.begin(), words.end());
    loaded = load_config(arguments.positional()[0], overrides);
  }
  refuse_unused_batch_size(loaded.config);
  std::string ranks;
  const std::unique_ptr<Collective> group = join_group(loaded.config, ranks);
  if (group == nullptr) move_near(device_of_run(loaded.config.device));
  if (group == nullptr || group->rank() == 0)
    for (const std::string& hint : loaded.hints) print_line("warning   ", hint);
  try {
    return train(arguments, std::move(loaded), group.get(), ranks);
  } catch (const std::exception& error) {
    // So that the other ranks name this one, and why.
    if (group != nullptr) group->abort(dist::failure_text(error));
    throw;
  }
}

}  // namespace

CommandSpec train_spec() {
  return {
      "train",
      "CONFIG.json",
      1,
      1,
      "Trains the run that a JSON file describes.",
      {set_option(),
       {"--out", "DIR", "folder of the run (default: runs/<name>)"},
       {"--resume", "auto|never|DIR",
        "auto (default): continue the folder's run if there is one; never: start afresh, deleting that run's files; "
        "DIR: continue from another run's folder, deleting this one's"},
       {"--changed-data", "", "continue although samples were added, removed or changed since the checkpoint"},
       {"--device", "auto|cpu|cuda[:N]", "where to compute (default: what the config says)"},
       {"--epochs", "N", "as --set train.epochs=N"},
       {"--lr", "X", "as --set optimizer.lr=X"},
       {"--batch-size", "N", "as --set train.batch_size=N"},
       {"--seed", "N", "as --set seed=N"},
       {"--lock", "FILE",
        "obey what `hearth tune` found; refused on another machine or version, for another run or number of ranks"},
       {"--dry-run", "", "build everything, print the plan and stop"}},
      train_command};
}

}  // namespace hearth::train
