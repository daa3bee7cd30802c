// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint/run_info.h"

#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "core/build.h"
#include "core/cpu/cores.h"
#include "core/cpu/isa.h"
#include "core/cpu/parallel.h"
#include "core/io/file.h"
#include "ops/onednn/onednn.h"

namespace hearth::train {
namespace {

namespace fs = std::filesystem;

/// The text of a file; "" where it cannot be read.
std::string text_of(const fs::path& path) {
  try {
    return read_text(path, {std::uint64_t{64} << 20, "files of a repository"});
  } catch (const Error&) {
    return "";
  }
}

std::string first_line(const fs::path& path) {
  const std::string text = text_of(path);
  return text.substr(0, text.find('\n'));
}

// The repository of a working tree: `.git` itself, or where a `.git` file ("gitdir: PATH") of a linked tree points.
fs::path repository_at(const fs::path& folder) {
  const fs::path git = folder / ".git";
  std::error_code ignored;
  if (fs::is_directory(git, ignored)) return git;
  const std::string line = first_line(git);
  constexpr std::string_view prefix = "gitdir: ";
  return line.starts_with(prefix) ? folder / line.substr(prefix.size()) : fs::path();
}

// A packed reference stands as "<commit> <name>" in one file.
std::string packed_reference(const fs::path& git, const std::string& name) {
  std::istringstream in(text_of(git / "packed-refs"));
  for (std::string line; std::getline(in, line);)
    if (line.size() > 41 && line.substr(41) == name) return line.substr(0, 40);
  return "";
}

}  // namespace

std::string status_in(const std::string& path) {
  if (!file_exists(path)) return "";
  try {
    return read_json(path, small_file).at("status").as_string();
  } catch (const ConfigError&) {
    return "";
  }
}

Json cost_in(const std::string& path) {
  if (status_in(path).empty()) return {};
  const Json info = read_json(path, small_file);
  const Json* const cost = info.find("cost");
  return cost != nullptr ? *cost : Json();
}

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) {
      const std::size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  return "unknown";
}

std::string git_revision(const std::string& directory) {
  std::error_code ignored;
  const fs::path start = fs::absolute(directory, ignored);
  for (fs::path folder = start; !folder.empty(); folder = folder.parent_path()) {
    const fs::path git = repository_at(folder);
    if (!git.empty()) {
      const std::string head = first_line(git / "HEAD");
      constexpr std::string_view prefix = "ref: ";
      if (!head.starts_with(prefix)) return head;
      const std::string name = head.substr(prefix.size());
      // A linked tree keeps its HEAD to itself and shares the references.
      const std::string common = first_line(git / "commondir");
      const fs::path shared = common.empty() ? git : git / common;
      const std::string loose = first_line(shared / name);
      return loose.empty() ? packed_reference(shared, name) : loose;
    }
    if (folder == folder.parent_path()) break;
  }
  return "";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Json software_versions() {
  return Json::object()
      .set("hearth", build::version)
      .set("compiler", build::compiler)
      .set("build", build::type)
      .set("library", cpu::dnn::library());
}

Json machine_facts() {
  return Json::object()
      .set("processor", processor_name())
      .set("threads", cpu::threads())
      .set("cores", cpu::available_cores())
      .set("instructions", name_of(cpu::isa()));
}

RunInfo::RunInfo(std::string path, RunFacts facts)
    : path_(std::move(path)), facts_(std::move(facts)), started_(utc_now()), clock_start_(Clock::now()) {}

double RunInfo::seconds() const { return std::chrono::duration<double>(Clock::now() - clock_start_).count(); }

void RunInfo::write(const std::string& status, const RunOutcome& outcome) const {
  Json info = Json::object();
  info.set("name", facts_.name)
      .set("status", status)
      .set("started", started_)
      .set("written", utc_now())
      .set("seconds", seconds())
      .set("seed", facts_.seed)
      .set("device", facts_.device)
      .set("command", facts_.command_line)
      .set("git", git_revision("."))
      .set("versions", software_versions())
      .set("machine", machine_facts())
      .set("metrics", outcome.metrics);
  for (const auto& [key, value] : {std::pair("profile", &outcome.profile),
                                   {"bad_samples", &outcome.bad_samples},
                                   {"cost", &outcome.cost},
                                   {"topology", &outcome.topology}})
    if (value->is_object()) info.set(key, *value);
  write_file_synced(path_, to_text(info, 2) + "\n");
}

}  // namespace hearth::train
