// SPDX-License-Identifier: Apache-2.0
#include "hearth/train/run_folder.h"

#include <filesystem>

namespace hearth::train {

RunFolder::RunFolder(std::string path) : path_(std::move(path)) { make_directories(checkpoints()); }

namespace {

void remove(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  HEARTH_CHECK(FileError, !error, path, ": cannot be removed: ", error.message());
}

}  // namespace

void RunFolder::clear() {
  for (const std::string& name : list_directory(path_))
    if (name == "config.json" || name == "metrics.jsonl" || name == "report.html" || name == "run.json" ||
        name.starts_with("events.out.tfevents."))
      remove(file(name));
  for (const std::string& name : list_directory(checkpoints()))
    if (name == "latest" || name == "best" || name.starts_with("step-") || name.starts_with(".tmp-"))
      remove(checkpoints() + "/" + name);
}

void RunFolder::open(const Json& resolved_config, std::int64_t metrics_bytes, bool tensorboard,
                     std::int64_t first_step) {
  write_file_synced(file("config.json"), to_text(resolved_config, 2) + "\n");
  metrics_ = std::make_unique<MetricsLog>(file("metrics.jsonl"), metrics_bytes);
  if (!tensorboard) return;
  events_ = std::make_unique<TensorBoardWriter>(path_, first_step);
  events_->text("config", 0, "```json\n" + to_text(resolved_config, 2) + "\n```");
}

void RunFolder::add(const Json& record) {
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

}  // namespace hearth::train
