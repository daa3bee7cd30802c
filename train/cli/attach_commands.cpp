// SPDX-License-Identifier: Apache-2.0
// status, trace: what a run that another process trains is doing.
#include <unistd.h>

#include <cmath>
#include <iomanip>
#include <iostream>
#include <thread>

#include "core/io/file.h"
#include "core/io/printable.h"
#include "core/text_stream.h"
#include "train/attach/attach_client.h"
#include "train/attach/attach_request.h"
#include "train/cli/commands.h"
#include "train/report/report.h"

namespace hearth::train {
namespace {

/// What the files of a run tell, where no process answers: its state, and the last lines of metrics.
Json status_of_files(const std::string& folder, const std::string& why) {
  const RunRecords run = read_run(folder);
  Json status = Json::object();
  const Json* const state = run.info.find("status");
  status.set("status", state == nullptr ? Json("unknown") : *state).set("not_attached", why);
  if (const Json* name = run.config.find("name")) status.set("name", *name);
  for (const Json& record : run.metrics)
    if (const Json* split = record.find("split"); split != nullptr)
      status.set(split->as_string() == "train" ? "training" : "evaluation", record);
  if (const Json* training = status.find("training")) status.set("step", training->at("step"));
  return status;
}

double number_at(const Json& record, const char* key, double otherwise = -1) {
  const Json* const value = record.find(key);
  return value == nullptr ? otherwise : value->as_number();
}

std::string percent_text(double part) { return join_text(std::lround(100 * part), " %"); }

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds));
  constexpr std::int64_t minute = 60, hour = 3600;
  if (whole < 2 * minute) return join_text(whole, " s");
  if (whole < 2 * hour) return join_text(whole / minute, " min");
  return join_text(whole / hour, " h ", whole % hour / minute, " min");
}

/// Its losses and what else was measured of a split, in a line.
std::string metrics_text(const Json& record) {
  TextStream out;
  out << "step " << record.at("step").as_integer();
  for (const char* key : {"loss", "accuracy", "perplexity", "bleu", "chrf", "lr", "grad_norm"})
    if (const Json* value = record.find(key); value != nullptr)
      out << "  " << key << ' ' << std::setprecision(5) << value->as_number();
  return out.str();
}

std::string phases_text(const Json& seconds) {
  double sum = 0;
  for (const JsonMember& phase : seconds.members()) sum += phase.value.as_number();
  std::string text;
  for (const JsonMember& phase : seconds.members())
    if (sum > 0 && phase.value.as_number() >= 0.005 * sum)
      text += (text.empty() ? "" : "  ") + phase.key + " " + percent_text(phase.value.as_number() / sum);
  return text;
}

void print_row(const char* what, const std::string& text) {
  std::cout << std::left << std::setw(12) << what << text << "\n";
}

std::string place_text(const Json& status) {
  const double step = number_at(status, "step", 0), total = number_at(status, "total_steps");
  std::string text = join_text("step ", static_cast<std::int64_t>(step));
  if (total <= 0) return text;
  text += join_text(" of ", static_cast<std::int64_t>(total), " (", percent_text(step / total), "), epoch ", std::fixed,
                    std::setprecision(2), number_at(status, "epoch", 0));
  return text;
}

std::string speed_text(const Json& status, double rate) {
  const double step = number_at(status, "step_seconds", 0);
  return join_text(std::fixed, std::setprecision(1), rate, " ", status.at("unit").as_string(), ", ", 1e3 * step,
                   " ms a step; the steps to come take ",
                   duration_text(step * (number_at(status, "total_steps") - number_at(status, "step"))));
}

void print_training(const Json& training) {
  print_row("training", metrics_text(training));
  if (const Json* phases = training.find("phase_seconds")) print_row("phases", phases_text(*phases));
  if (const Json* advice = training.find("data_advice")) print_row("input", printable(advice->as_string()));
  const double memory = number_at(training, "process_memory"), cpus = number_at(training, "process_cpus");
  if (memory >= 0 && cpus >= 0)
    print_row("process", join_text(std::fixed, std::setprecision(1), cpus, " processors busy, ", 1e-9 * memory, " GB"));
}

void print_status(const Json& status) {
  if (const Json* name = status.find("name")) print_row("run", printable(name->as_string()));
  if (const Json* why = status.find("not_attached"))
    print_row("status", status.at("status").as_string() +
                            "; from its files, as no process answers at its socket: " + printable(why->as_string()));
  else
    print_row("status", join_text(status.at("doing").as_string(), " on ", printable(status.at("device").as_string()),
                                  ", pid ", status.at("pid").as_integer()));
  if (status.find("step") != nullptr) print_row("at", place_text(status));
  if (const double since = number_at(status, "seconds_since_step"); since >= 0)
    print_row("last step", join_text(std::fixed, std::setprecision(1), since, " s ago"));
  if (const double rate = number_at(status, "throughput"); rate > 0) print_row("speed", speed_text(status, rate));
  if (const Json* training = status.find("training")) print_training(*training);
  if (const Json* evaluation = status.find("evaluation"))
    print_row(evaluation->at("split").as_string().c_str(), metrics_text(*evaluation));
  const Json* const ranks = status.find("ranks");
  for (std::size_t i = 0; ranks != nullptr && i < ranks->size(); ++i) {
    const Json& rank = ranks->at(i);
    print_row(i == 0 ? "ranks" : "", join_text("rank ", rank.at("rank").as_integer(), std::fixed, std::setprecision(1),
                                               "  step ", 1e3 * rank.at("step_seconds").as_number(), " ms, of it busy ",
                                               1e3 * rank.at("busy_seconds").as_number(), " ms"));
  }
}

int status_command(const Arguments& arguments) {
  const std::string& folder = arguments.positional()[0];
  const double every = arguments.number("--watch", 0);
  HEARTH_CHECK(UsageError, !arguments.has("--watch") || every >= 0.1, "status: --watch needs at least 0.1 seconds");
  while (true) {
    std::string why;
    Json status = live_status(folder, why);
    const bool lives = !status.is_null();
    if (!lives) status = status_of_files(folder, why);
    if (arguments.has("--json"))
      std::cout << to_text(status) << "\n" << std::flush;
    else
      print_status(status);
    if (every <= 0 || !lives) return 0;
    std::cout << std::flush;
    std::this_thread::sleep_for(std::chrono::duration<double>(every));
    if (!arguments.has("--json")) std::cout << "\n";
  }
}

int trace_command(const Arguments& arguments) {
  const std::string& folder = arguments.positional()[0];
  const std::int64_t steps = arguments.positive("--steps", 5);
  HEARTH_CHECK(UsageError, steps <= most_traced_steps, "trace: --steps ", steps, " is more than ", most_traced_steps);
  const std::string out = arguments.value("--out").value_or("");
  HEARTH_CHECK(UsageError, !out.empty() || !arguments.has("--out"), "trace: --out names nothing");
  std::string path = trace_run(folder, steps, std::chrono::seconds(arguments.positive("--patience", 600)));
  if (!out.empty()) {
    constexpr ReadLimit limit{std::uint64_t{4} << 30, "traces"};
    write_file_synced(out, read_text(path, limit));
    path = out;
  }
  std::cerr << printable(path) << "\n";
  return 0;
}

}  // namespace

CommandSpec status_spec() {
  return {"status",
          "RUN",
          1,
          1,
          "Shows what a run is doing: its step, speed, phases, losses and ranks, while another process trains it.",
          {{"--watch", "SECONDS", "show it again and again, as long as the run trains"},
           {"--json", "", "print as a line of JSON on stdout"}},
          status_command};
}

CommandSpec trace_spec() {
  return {"trace",
          "RUN",
          1,
          1,
          "Has a run that trains write a Chrome trace of its next steps, RUN/trace.json, while it trains on.",
          {{"--steps", "N", "steps to trace (default: 5)"},
           {"--out", "FILE", "copy the trace there"},
           {"--patience", "SECONDS", "wait so long for the trace (default: 600)"}},
          trace_command};
}

}  // namespace hearth::train
