// SPDX-License-Identifier: Apache-2.0
// Which sets `best` and `latest` of a run are, where the links are lost too.
#include <charconv>
#include <filesystem>
#include <span>

#include "core/io/safetensors.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_files.h"

namespace hearth::train {
namespace {

namespace fs = std::filesystem;

/// The step of the best evaluation that a set knows of; -1 where none is known, or the run keeps no best.
std::int64_t best_step_known(const std::string& set) {
  const Json config = read_json(set + "/" + config_file, small_file);
  const Json* const options = config.find("checkpoint");
  const Json* const keeps = options != nullptr ? options->find("best") : nullptr;
  if (keeps != nullptr && keeps->is_boolean() && !keeps->as_boolean()) return -1;
  const SafetensorsFile state(set + "/" + state_file);
  std::int64_t step = -1;
  const TensorRecord* const record = state.find("position.best_step");
  if (record != nullptr && record->dtype == DType::i64 && record->shape.size() == 1)
    state.read(*record, std::as_writable_bytes(std::span(&step, 1)));
  return step;
}

std::string newest_set_of_run(const std::string& run) {
  const std::string sets = run + "/checkpoints";
  const fs::path latest = set_behind(sets + "/latest");
  std::error_code absent;
  if (fs::is_directory(latest, absent)) return latest.string();
  const CheckpointSearch search = find_newest_complete(sets, required_files());
  HEARTH_CHECK(FileError, !search.newest.empty(), run, ": has no whole checkpoint (yet)");
  return sets + "/" + search.newest;
}

/// Where `best` is lost, as in a copy without links, the newest set tells which it was.
std::string set_of_run(const std::string& run) {
  const std::string sets = run + "/checkpoints";
  const fs::path linked = set_behind(sets + "/best");
  std::error_code absent;
  if (fs::is_directory(linked, absent)) return linked.string();
  const std::string newest = newest_set_of_run(run);
  const std::int64_t step = best_step_known(newest);
  if (step < 0) return newest;
  const std::string best = sets + "/" + checkpoint_name(step);
  HEARTH_CHECK(FileError, file_exists(best + "/manifest.json"), run, ": its best checkpoint, that of step ", step,
               ", is not there any more; name another one of ", sets);
  return best;
}

}  // namespace

bool best_is_lost(const Session& session, const std::string& checkpoint_folder) {
  const Position& position = session.position;
  const fs::path folder(checkpoint_folder);
  if (!session.config().checkpoint.best || position.best_step < 0) return false;
  if (file_exists(folder / checkpoint_name(position.best_step) / "manifest.json")) return false;
  const std::string set = set_behind(folder / "best").filename().string(), prefix = "step-";
  std::int64_t step = -1;
  if (set.starts_with(prefix)) std::from_chars(set.data() + prefix.size(), set.data() + set.size(), step);
  // To the restored set itself where a process was killed before it could save what it had fixed.
  return step >= position.step;
}

void mend_links(const Session& session, const std::string& checkpoint_folder) {
  const auto link = [&](const char* name, std::int64_t step) {
    const std::string set = checkpoint_name(step);
    if (!file_exists(fs::path(checkpoint_folder) / set / "manifest.json")) return;
    if (set_behind(fs::path(checkpoint_folder) / name).filename() != set) point_to(checkpoint_folder, name, set);
  };
  link("latest", session.position.step);
  if (session.config().checkpoint.best && session.position.best_step >= 0) link("best", session.position.best_step);
}

std::string checkpoint_at(const std::string& run_or_checkpoint) {
  for (;;) {
    const fs::path place = set_behind(run_or_checkpoint);
    const bool is_run = file_exists(place / "checkpoints");
    const auto linked = [&] {
      const fs::path sets = place / "checkpoints";
      return is_run ? std::pair(set_behind(sets / "best"), set_behind(sets / "latest"))
                    : std::pair(set_behind(run_or_checkpoint), fs::path());
    };
    const auto before = is_run ? linked() : std::pair(place, fs::path());
    try {
      const std::string set = is_run ? set_of_run(place.string()) : place.string();
      HEARTH_CHECK(FileError, file_exists(set + "/manifest.json"), run_or_checkpoint,
                   ": is neither a run's folder nor a checkpoint (no checkpoints/ and no manifest.json in it)");
      return set;
    } catch (const FileError&) {
      // A trainer that removes a set has led the link to another one before.
      if (linked() == before) throw;
    }
  }
}

}  // namespace hearth::train
