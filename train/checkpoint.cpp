// SPDX-License-Identifier: Apache-2.0
#include "hearth/train/checkpoint.h"

#include <filesystem>

#include "hearth/core/checkpoint_set.h"
#include "hearth/core/safetensors.h"
#include "hearth/data/text/token_set.h"

namespace hearth::train {
namespace {

constexpr const char* model_file = "model.safetensors";
constexpr const char* state_file = "state.safetensors";
constexpr const char* config_file = "config.json";
constexpr const char* metrics_key = "hearth.metrics_bytes";

struct NamedTokenizer {
  const char* file;
  const data::Tokenizer* tokenizer;
};

/// Those of the run's texts; none where it has images.
std::vector<NamedTokenizer> tokenizers_of(const Session& session) {
  std::vector<NamedTokenizer> found;
  const data::TokenDataset* const tokens = session.data.train->tokens();
  if (tokens == nullptr) return found;
  found.push_back({"tokenizer.json", &tokens->tokenizer()});
  const data::Tokenizer* const source = tokens->source_tokenizer();
  if (source != nullptr && source != found.front().tokenizer) found.push_back({"source_tokenizer.json", source});
  return found;
}

/// Ids of another vocabulary would mean other texts to the weights.
void require_own_tokenizers(const Session& session, const std::string& set) {
  for (const auto& [file, tokenizer] : tokenizers_of(session)) {
    const std::string path = set + "/" + file;
    if (!file_exists(path)) continue;
    HEARTH_CHECK(DataError, data::read_tokenizer(path)->digest() == tokenizer->digest(), path,
                 " is not the tokenizer that the run's texts and configuration give now (", tokenizer->size(),
                 " pieces), so that ids would mean something else; bring back the texts that it was trained on");
  }
}

void load_set(Session& session, const std::string& set) {
  require_own_tokenizers(session, set);
  session.model_state.load(set + "/" + model_file);
  const Json saved = read_json(set + "/" + config_file);
  const Json* precision = saved.find("precision");
  const bool same = precision != nullptr && *precision == session.resolved().at("precision");
  // A loss scale belongs to one precision.
  session.training_state.load(set + "/" + state_file, same ? "" : "loss_scale.");
  const auto metadata = SafetensorsFile(set + "/" + state_file).metadata();
  const auto bytes = metadata.find(metrics_key);
  HEARTH_CHECK(FileError, bytes != metadata.end(), set, "/", state_file, ": \"", metrics_key, "\" is missing");
  session.position.metrics_bytes = std::stoll(bytes->second);
  session.after_load();
  session.write_interval();
}

}  // namespace

void save_session(Session& session, const std::string& checkpoint_folder) {
  const CheckpointOptions& options = session.config().checkpoint;
  session.read_interval();
  CheckpointWriter writer(checkpoint_folder, session.position.step);
  session.model_state.save(writer.file(model_file), {{"format", "pt"}});
  session.training_state.save(writer.file(state_file), {{metrics_key, std::to_string(session.position.metrics_bytes)}});
  write_file_synced(writer.file(config_file), to_text(session.resolved(), 2) + "\n");
  for (const auto& [file, tokenizer] : tokenizers_of(session)) data::write_tokenizer(*tokenizer, writer.file(file));
  const std::string name = writer.commit();
  point_to(checkpoint_folder, "latest", name);
  if (options.best && session.position.best_step == session.position.step) point_to(checkpoint_folder, "best", name);
  prune_checkpoints(checkpoint_folder, options.keep);
}

Restored restore_newest(Session& session, const std::string& run_folder, bool other_precision) {
  const std::string folder = run_folder + "/checkpoints";
  Restored result;
  if (!file_exists(folder)) return result;
  const CheckpointSearch found = find_newest_complete(folder);
  for (const DamagedSet& set : found.damaged) result.damaged.push_back(set.name + ": " + set.reason);
  if (found.newest.empty()) return result;
  const std::string set = folder + "/" + found.newest;
  // With the defaults of keys that came after it was written.
  auto differences = differences_that_matter(session.resolved(), load_config(set + "/" + config_file, {}).resolved);
  if (other_precision) std::erase_if(differences, [](const std::string& d) { return d.starts_with("/precision"); });
  if (!differences.empty()) {
    std::string text;
    for (const std::string& difference : differences) text += "; " + difference;
    throw ConfigError(join_text(run_folder, " holds a run with another config: ", text.substr(2),
                                "; use another --out, or --resume never to replace that run, or (where only the "
                                "precision differs) another --out and --resume ",
                                run_folder));
  }
  load_set(session, set);
  result.from = set;
  return result;
}

std::unique_ptr<Session> open_trained(const std::string& run_or_checkpoint, const std::vector<std::string>& overrides) {
  namespace fs = std::filesystem;
  std::string set = run_or_checkpoint;
  if (fs::exists(fs::path(set) / "checkpoints")) {
    const fs::path sets = fs::path(set) / "checkpoints";
    set = fs::exists(sets / "best") ? (sets / "best").string() : (sets / "latest").string();
  }
  HEARTH_CHECK(FileError, fs::exists(fs::path(set) / "manifest.json"), run_or_checkpoint,
               ": is neither a run's folder nor a checkpoint (no checkpoints/ and no manifest.json in it)");
  verify_checkpoint(set);
  auto session = std::make_unique<Session>(load_config(set + "/" + config_file, overrides));
  load_set(*session, set);
  return session;
}

}  // namespace hearth::train
