// SPDX-License-Identifier: Apache-2.0
#include "hearth/train/checkpoint.h"

#include <algorithm>
#include <filesystem>

#include "hearth/core/checkpoint_set.h"
#include "hearth/core/safetensors.h"
#include "hearth/data/text/token_set.h"

namespace hearth::train {
namespace {

constexpr const char* model_file = "model.safetensors";
constexpr const char* state_file = "state.safetensors";
constexpr const char* config_file = "config.json";
constexpr const char* data_file = "data.json";
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

/// What labels stand for; nothing for the ids of a text, which are its tokenizer's.
std::vector<std::string> classes_of(const Session& session) {
  const data::Dataset& train = *session.data.train;
  if (train.tokens() != nullptr && train.tokens()->labelled() == nullptr) return {};
  return train.class_names();
}

/// What the weights take for granted of the data: the names behind the labels, and by what images were normalised.
Json facts_of_data(const Session& session) {
  const data::ChannelStatistics& statistics = session.data.options.normalize;
  Json facts = Json::object();
  facts.set("classes", Json::array_of(classes_of(session)));
  if (session.data.train->tokens() != nullptr) return facts;
  return facts.set("mean", Json::array_of(statistics.mean)).set("std", Json::array_of(statistics.std));
}

/// As facts_of_data() of the session that wrote the set; an empty object where an older version wrote it.
Json facts_in(const std::string& set) {
  const std::string path = set + "/" + data_file;
  return file_exists(path) ? read_json(path) : Json::object();
}

/// Labels of other classes would mean something else to the weights. Numbers are no names.
void require_own_classes(const Session& session, const std::string& set) {
  const Json facts = facts_in(set);
  const Json* const saved = facts.find("classes");
  const std::vector<std::string> now = classes_of(session);
  if (saved == nullptr || now == data::numbered_classes(static_cast<std::int64_t>(now.size()))) return;
  std::vector<std::string> before;
  for (const Json& name : saved->items()) before.push_back(name.as_string());
  if (before == now || before == data::numbered_classes(static_cast<std::int64_t>(before.size()))) return;
  const auto [a, b] = std::mismatch(before.begin(), before.end(), now.begin(), now.end());
  const auto name = [](const auto& at, const auto& all) { return at == all.end() ? "no class" : "\"" + *at + "\""; };
  throw DataError(join_text(set, ": label ", a - before.begin(), " was ", name(a, before), " of ", before.size(),
                            " classes in training and is ", name(b, now), " of ", now.size(),
                            " in the data now; bring back the names and the order of the classes"));
}

bool has_dynamic_scale(const Json& precision) {
  const Json* const scale = precision.find("loss_scale");
  const bool fixed = scale != nullptr && scale->is_number();
  return precision.at("dtype").as_string() == "f16" && !fixed;
}

/// Whether the run goes on with the loss scale of one that had this precision: a dynamic one fits gradients, whatever
/// the level.
bool keeps_scale(const Json& now, const Json* saved) {
  return saved != nullptr && (*saved == now || (has_dynamic_scale(*saved) && has_dynamic_scale(now)));
}

void load_set(Session& session, const std::string& set) {
  require_own_tokenizers(session, set);
  require_own_classes(session, set);
  session.model_state.load(set + "/" + model_file);
  const Json saved = read_json(set + "/" + config_file);
  const bool keeps = keeps_scale(session.resolved().at("precision"), saved.find("precision"));
  session.training_state.load(set + "/" + state_file, keeps ? "" : "loss_scale.");
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
  write_file_synced(writer.file(data_file), to_text(facts_of_data(session), 2) + "\n");
  const std::string name = writer.commit();
  point_to(checkpoint_folder, "latest", name);
  if (options.best && session.position.best_step == session.position.step) point_to(checkpoint_folder, "best", name);
  prune_checkpoints(checkpoint_folder, options.keep);
}

void mend_links(const Session& session, const std::string& checkpoint_folder) {
  namespace fs = std::filesystem;
  const auto link = [&](const char* name, std::int64_t step) {
    const std::string set = checkpoint_name(step);
    std::error_code absent;
    if (!file_exists(fs::path(checkpoint_folder) / set / "manifest.json")) return;
    if (fs::read_symlink(fs::path(checkpoint_folder) / name, absent) != set) point_to(checkpoint_folder, name, set);
  };
  link("latest", session.position.step);
  if (session.config().checkpoint.best && session.position.best_step >= 0) link("best", session.position.best_step);
}

Restored restore_newest(Session& session, const std::string& run_folder, bool other_precision) {
  const std::string folder = run_folder + "/checkpoints";
  Restored result;
  if (!file_exists(folder)) return result;
  const CheckpointSearch found = find_newest_complete(folder);
  for (const DamagedSet& set : found.damaged) result.damaged.push_back(set.name + ": " + set.reason);
  if (found.newest.empty()) {
    std::string reasons;
    for (const std::string& text : result.damaged) reasons += "; " + text;
    HEARTH_CHECK(FileError, reasons.empty(), folder, ": none of the checkpoints can be read", reasons,
                 "; put one of them right, or start afresh by --resume never, which deletes them");
    return result;
  }
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
  const Json before = facts_in(set), now = facts_of_data(session);
  for (const char* key : {"mean", "std"})
    if (before.find(key) && now.find(key) && before.at(key) != now.at(key))
      result.warnings.push_back(join_text("the ", key, " of the training images' channels was ",
                                          to_text(before.at(key)), " and is ", to_text(now.at(key)),
                                          " now; the data was changed"));
  result.from = set;
  return result;
}

namespace {

/// The config of a set, normalising as the run did where neither it nor the overrides say how.
LoadedConfig config_in(const std::string& set, std::vector<std::string> overrides) {
  const std::string path = set + "/" + config_file;
  LoadedConfig loaded = load_config(path, overrides);
  const Json* const normalize = loaded.resolved.at("data").find("normalize");
  const Json facts = facts_in(set);
  for (const char* key : {"mean", "std"}) {
    const Json* const given = normalize != nullptr ? normalize->find(key) : nullptr;
    if (given != nullptr && given->is_array() && given->size() == 0 && facts.find(key))
      overrides.push_back(join_text("data.normalize.", key, "=", to_text(facts.at(key))));
  }
  return load_config(path, overrides);
}

std::string set_of_run(const std::string& run) {
  const std::string sets = run + "/checkpoints";
  for (const char* link : {"/best", "/latest"})
    if (file_exists(sets + link)) return sets + link;
  const CheckpointSearch found = find_newest_complete(sets);
  HEARTH_CHECK(FileError, !found.newest.empty(), run, ": has no whole checkpoint (yet)");
  return sets + "/" + found.newest;
}

}  // namespace

std::unique_ptr<Session> open_trained(const std::string& run_or_checkpoint, const std::vector<std::string>& overrides) {
  std::string set = run_or_checkpoint;
  if (file_exists(set + "/checkpoints")) set = set_of_run(set);
  HEARTH_CHECK(FileError, file_exists(set + "/manifest.json"), run_or_checkpoint,
               ": is neither a run's folder nor a checkpoint (no checkpoints/ and no manifest.json in it)");
  verify_checkpoint(set);
  auto session = std::make_unique<Session>(config_in(set, overrides));
  load_set(*session, set);
  return session;
}

}  // namespace hearth::train
