// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/io/descriptor.h"
#include "core/io/printable.h"
#include "train/checkpoint/run_info.h"
#include "train/report/metrics_log.h"
#include "train/report/tensorboard.h"

namespace hearth::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* run_files[] = {"config.json",     "metrics.jsonl",       "report.html", "run.json",
                                     "step_trace.json", "device_profile.json", "trace.json"};

bool is_event_file(const std::string& name) { return name.starts_with("events.out.tfevents."); }

bool is_checkpoint(const std::string& name) {
  return name == "latest" || name == "best" || name.starts_with("step-") || name.starts_with(".tmp-");
}

/// Paths in a folder under the names that a run gives its files.
std::vector<std::string> named_as_of_a_run(const std::string& folder) {
  std::vector<std::string> found;
  for (const char* name : run_files)
    if (file_exists(folder + "/" + name)) found.push_back(folder + "/" + name);
  for (const std::string& name : list_directory(folder))
    if (is_event_file(name)) found.push_back(folder + "/" + name);
  for (const std::string& name : list_directory(folder + "/checkpoints"))
    if (is_checkpoint(name)) found.push_back(folder + "/checkpoints/" + name);
  return found;
}

}  // namespace

bool holds_run(const std::string& folder) {
  if (!status_in(folder + "/run.json").empty()) return true;
  if (!file_exists(folder + "/checkpoints")) return false;
  for (const std::string& name : list_directory(folder + "/checkpoints"))
    if (name.starts_with("step-") && file_exists(folder + "/checkpoints/" + name + "/manifest.json")) return true;
  return false;
}

void require_apart(const std::string& folder, const std::string& config_path) {
  for (const std::string name : run_files) {
    std::error_code absent;
    HEARTH_CHECK(
        UsageError,
        !fs::equivalent(config_path, folder + "/" + name, absent) || (name == "config.json" && holds_run(folder)),
        "--out ", folder, ": the run would replace its own configuration ", config_path,
        "; give another --out, or move that file");
  }
}

FileLock::FileLock(const std::string& path)
    : descriptor_(above_standard_streams(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644))) {
  HEARTH_CHECK(FileError, descriptor_ >= 0, path, ": cannot be opened: ", std::strerror(errno));
  int locked = 0;
  do {
    locked = ::flock(descriptor_, LOCK_EX | LOCK_NB);
  } while (locked != 0 && errno == EINTR);
  held_ = locked == 0 || errno != EWOULDBLOCK;
  char text[512] = "";
  if (held_) {
    // For whoever finds it held; a refusal changes nothing.
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    const std::string own = join_text("pid ", getpid(), " on ", host);
    [[maybe_unused]] const bool written =
        ::ftruncate(descriptor_, 0) == 0 && ::write(descriptor_, own.data(), own.size()) > 0;
  } else if (::pread(descriptor_, text, sizeof text - 1, 0) > 0) {
    holder_ = printable(text);
  }
}

FileLock::~FileLock() { ::close(descriptor_); }

RunFolder::~RunFolder() = default;

RunFolder::RunFolder(std::string path, bool writes) : path_(std::move(path)) {
  HEARTH_CHECK(UsageError, !path_.empty(), "the run's folder has an empty name; give one, or leave --out away");
  if (!writes) return;
  make_directories(checkpoints());
  lock_ = std::make_unique<FileLock>(file(".lock"));
  HEARTH_CHECK(FileError, lock_->held(), path_, ": another process",
               lock_->holder().empty() ? "" : " (" + lock_->holder() + ")",
               " trains into this folder; wait for its end or stop it, or give another --out");
}

void RunFolder::clear() {
  if (!writes()) return;
  const std::vector<std::string> found = named_as_of_a_run(path_);
  HEARTH_CHECK(FileError, found.empty() || holds_run(path_), path_, ": holds no run, but ", found.front(),
               " that a run would replace; give another --out, or move that file");
  // The last is what tells that the others are a run's.
  const std::string last = file("run.json");
  for (const std::string& path : found)
    if (path != last) remove_tree(path);
  remove_tree(last);
}

std::string RunFolder::open(const Json& resolved_config, std::int64_t metrics_bytes, bool tensorboard,
                            std::int64_t first_step) {
  if (!writes()) return "";
  // The first, as writing the other makes both names durable.
  metrics_ = std::make_unique<MetricsLog>(file("metrics.jsonl"), metrics_bytes);
  write_file_synced(file("config.json"), to_text(resolved_config, 2) + "\n");
  if (!tensorboard) return metrics_->lost();
  events_ = std::make_unique<TensorBoardWriter>(path_, first_step);
  events_->text("config", 0, "```json\n" + to_text(resolved_config, 2) + "\n```");
  return metrics_->lost();
}

void RunFolder::add(const Json& record) {
  if (!writes()) return;
  HEARTH_CHECK(UsageError, metrics_ != nullptr, "run folder ", path_, ": add before open");
  metrics_->add(record);
  if (!events_) return;
  const std::int64_t step = record.at("step").as_integer();
  const std::string split = record.at("split").as_string();
  for (const JsonMember& member : record.members())
    if (member.value.is_number() && member.key != "step" && member.key != "epoch")
      events_->scalar(split + "/" + member.key, step, member.value.as_number());
}

std::int64_t RunFolder::metrics_bytes() const { return metrics_ ? metrics_->bytes() : 0; }

void RunFolder::sync_metrics() {
  if (metrics_) metrics_->sync();
}

}  // namespace hearth::train
