// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "core/io/safetensors.h"
#include "data/described.h"
#include "data/fingerprint.h"
#include "data/table/table.h"
#include "data/text/token_set.h"
#include "data/text/tokenizers/tokenizer_files.h"
#include "models/weights/non_finite.h"
#include "train/checkpoint/bad_samples.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/checkpoint_set.h"
#include "train/checkpoint/residuals.h"
#include "train/evaluation_hooks.h"

namespace hearth::train {
namespace {

constexpr const char* data_file = "data.json";
constexpr const char* tokenizer_file = "tokenizer.json";
constexpr const char* source_tokenizer_file = "source_tokenizer.json";
constexpr const char* metrics_note = "metrics_bytes";
constexpr const char* stop_note = "stop_reason";
constexpr const char* bad_samples_note = "bad_samples";
constexpr const char* sums_note = "sums";
// Of an interval, of several ranks: each goes on with its own, as sums in another order have other bits.
constexpr const char* loss_sums_note = "loss_sums";
// Whose faults are kept.
constexpr std::int64_t bad_samples_noted = 1000;

struct NamedTokenizer {
  const char* file;
  const data::Tokenizer* tokenizer;
};

/// Those of the run's sequences; none where it has images.
std::vector<NamedTokenizer> tokenizers_of(const Session& session) {
  std::vector<NamedTokenizer> found;
  const char* file = tokenizer_file;
  for (const data::Tokenizer* const tokenizer : session.data.tokenizers()) {
    found.push_back({file, tokenizer});
    file = source_tokenizer_file;
  }
  return found;
}

/// Ids of another vocabulary would mean other sequences to the weights.
void require_own_tokenizers(const Session& session, const std::string& set) {
  for (const auto& [file, tokenizer] : tokenizers_of(session)) {
    const std::string path = set + "/" + file;
    if (!file_exists(path)) continue;
    HEARTH_CHECK(DataError, data::read_tokenizer(path)->digest() == tokenizer->digest(), path,
                 " is not the tokenizer that the run's sequences and configuration give now (", tokenizer->size(),
                 " pieces), so that ids would mean something else; bring back the sequences that it was trained on");
  }
}

/// data.json: data::DataFacts but for the tokenizers, which have files of their own.
Json facts_as_json(const Session& session) {
  const data::DataFacts facts = data::facts_of(session.data);
  Json json = Json::object();
  json.set("kind", facts.kind).set("classes", Json::array_of(facts.classes));
  if (facts.table != nullptr) return json.set("table", data::to_json(*facts.table));
  if (!facts.has_pixels()) return json.set("length", facts.length);
  if (facts.kind == "boxes") json.set("category_ids", Json::array_of(facts.category_ids));
  const std::vector<std::int64_t> shape{facts.image.height, facts.image.width, facts.image.channels};
  return json.set("mean", Json::array_of(facts.normalize.mean))
      .set("std", Json::array_of(facts.normalize.std))
      .set("image", Json::array_of(shape))
      .set("shrink_to", facts.shrink_to);
}

/// The same, and what tells the samples of each split from others.
Json facts_to_keep(Session& session) { return facts_as_json(session).set("splits", session.data_fingerprint()); }

/// What facts_to_keep() of the session that wrote the set gave; an empty object where an older version wrote it.
Json facts_in(const std::string& set) {
  const std::string path = set + "/" + data_file;
  // As large as the data has classes and columns; the manifest vouches for it.
  return file_exists(path) ? read_json(path, {std::uint64_t{1} << 30, "facts of the data"}) : Json::object();
}

template <class T>
std::vector<T> numbers_in(const Json& list) {
  std::vector<T> numbers;
  for (const Json& number : list.items()) numbers.push_back(static_cast<T>(number.as_number()));
  return numbers;
}

/// Nothing where an older version wrote the set, which did not tell enough. FileError for what it cannot be.
std::optional<data::DataFacts> known_facts(const std::string& set) {
  const Json json = facts_in(set);
  if (!json.find("kind")) return std::nullopt;
  data::DataFacts facts;
  try {
    facts.kind = json.at("kind").as_string();
    for (const Json& name : json.at("classes").items()) facts.classes.push_back(name.as_string());
    if (facts.has_pixels()) {
      if (const Json* const ids = json.find("category_ids")) facts.category_ids = numbers_in<std::int64_t>(*ids);
      const std::vector<int> shape = numbers_in<int>(json.at("image"));
      HEARTH_CHECK(FileError, shape.size() == 3, set, "/", data_file, ": /image: ", shape.size(), " numbers, not 3");
      facts.image = {shape[0], shape[1], shape[2]};
      facts.shrink_to = static_cast<int>(json.at("shrink_to").as_integer());
      facts.normalize = {numbers_in<double>(json.at("mean")), numbers_in<double>(json.at("std"))};
    } else if (facts.kind == "table") {
      facts.table = std::make_shared<data::TableFacts>(data::table_facts_of(json.at("table")));
    } else {
      facts.length = json.at("length").as_integer();
    }
  } catch (const ConfigError& error) {
    throw FileError(join_text(set, "/", data_file, ": ", error.what()));
  }
  if (facts.has_pixels() || facts.kind == "table" || facts.kind == "samples") return facts;
  facts.tokenizer = facts.source_tokenizer = data::read_tokenizer(set + "/" + tokenizer_file);
  const std::string source = set + "/" + source_tokenizer_file;
  if (file_exists(source)) facts.source_tokenizer = data::read_tokenizer(source);
  if (facts.kind != "parallel_text") facts.source_tokenizer = nullptr;
  return facts;
}

/// Labels of other classes would mean something else to the weights.
void require_own_classes(const Session& session, const std::string& set) {
  const Json facts = facts_in(set);
  const Json* const saved = facts.find("classes");
  if (saved == nullptr) return;
  std::vector<std::string> before;
  for (const Json& name : saved->items()) before.push_back(name.as_string());
  const std::string fault = data::classes_differ(before, data::facts_of(session.data).classes);
  HEARTH_CHECK(DataError, fault.empty(), set, ": ", fault);
}

/// What is different in the data now, a phrase each. Facts that an older version did not keep are equal to any.
std::vector<std::string> changes_of_data(Session& session, const std::string& set) {
  const Json before = facts_in(set), now = facts_to_keep(session);
  std::vector<std::string> changes;
  if (before.find("splits") && now.find("splits"))
    changes = data::fingerprint_changes(before.at("splits"), now.at("splits"), session.data.train->class_names());
  for (const char* key : {"mean", "std"})
    if (before.find(key) && now.find(key) && before.at(key) != now.at(key))
      changes.push_back(join_text("the ", key, " of the training images' channels was ", to_text(before.at(key)),
                                  " and is ", to_text(now.at(key))));
  if (before.find("table") && now.find("table") && before.at("table") != now.at("table"))
    changes.push_back("columns of the table, or what was learned of them, are not what they were");
  return changes;
}

/// Whether a difference of configurations, which begins with its key, is where files of data lie.
bool is_place_of_data(const std::string& difference) {
  const std::string key = difference.substr(0, difference.find(' '));
  if (!key.starts_with("/data/")) return false;
  const std::string last = key.substr(key.rfind('/') + 1);
  return last == "path" || last == "train" || last == "valid" || last == "test" || last == "packed";
}

bool has_dynamic_scale(const PrecisionOptions& precision) {
  return precision.dtype == ComputeType::f16 && precision.loss_scale.value_or(0) == 0;
}

/// Whether the run goes on with the loss scale of one that had this precision: a dynamic one fits gradients, whatever
/// the level.
bool keeps_scale(const PrecisionOptions& now, const PrecisionOptions& saved) {
  return saved == now || (has_dynamic_scale(saved) && has_dynamic_scale(now));
}

/// What the first versions did not keep: evaluations of the test split, and the step of the last evaluation.
std::vector<std::string> later_state() { return {"position.test_", "position.evaluated_step", "position.best_value"}; }

/// Of metrics.jsonl when the set was written.
std::int64_t metrics_bytes_of(const std::string& set) {
  const Json notes = notes_of_checkpoint(set);
  const Json* const noted = notes.find(metrics_note);
  if (noted != nullptr) {
    HEARTH_CHECK(FileError, noted->is_integer() && noted->as_integer() >= 0, set, "/manifest.json: ", metrics_note,
                 " is ", to_text(*noted), ", no number of bytes");
    return noted->as_integer();
  }
  // Earlier versions kept it with the tensors.
  const auto metadata = SafetensorsFile(set + "/" + state_file).metadata();
  const auto kept = metadata.find("hearth.metrics_bytes");
  std::int64_t bytes = -1;
  if (kept != metadata.end()) {
    const char* const end = kept->second.data() + kept->second.size();
    const auto [stop, error] = std::from_chars(kept->second.data(), end, bytes);
    if (error != std::errc{} || stop != end) bytes = -1;
  }
  HEARTH_CHECK(FileError, bytes >= 0, set, ": tells no number of bytes of metrics.jsonl");
  return bytes;
}

/// Why a hook ended the run with this set; "" where none did.
std::string stop_reason_of(const std::string& set) {
  const Json notes = notes_of_checkpoint(set);
  const Json* const noted = notes.find(stop_note);
  if (noted == nullptr) return "";
  HEARTH_CHECK(FileError, noted->is_string(), set, "/manifest.json: ", stop_note, " is ", to_text(*noted), ", no text");
  return noted->as_string();
}

/// A set that nothing could go on from must not take the position of a good one.
void require_finite(const State& state, const Session& session) {
  for (const State::Entry& entry : state.entries()) {
    if (entry.tensor == nullptr) continue;
    NonFinite found;
    entry.visit([&](std::span<const std::byte> part) {
      const NonFinite more = count_non_finite(entry.dtype, part);
      found.nan += more.nan, found.infinite += more.infinite;
    });
    HEARTH_CHECK(
        DivergedError, !found.any(), "\"", entry.name, "\" is not finite at step ", session.position.step, " (",
        found.text(),
        "), so that no checkpoint is written; the one before stays the latest; lower the learning rate, warm up "
        "longer, or clip the gradients");
  }
}

/// The configuration of a set, with the defaults of keys that came after it was written.
LoadedConfig config_of_set(const std::string& set, std::vector<std::string> overrides = {}) {
  const std::string path = set + "/" + config_file;
  // An average that was written down as a number began with smaller decays.
  const Json saved = read_json(path, small_file);
  const Json* const train = saved.find("train");
  const Json* const ema = train != nullptr ? train->find("ema") : nullptr;
  if (ema != nullptr && ema->is_number())
    overrides.insert(overrides.begin(), join_text("train.ema={\"decay\":", to_text(*ema), ",\"warmup\":true}"));
  return load_config(path, overrides);
}

/// The rank's own of the sums that were noted, where as many ranks go on; else rank 0 has the whole.
void restore_loss_sums(Session& session, const Json* noted) {
  if (noted == nullptr || !noted->is_array()) return;
  const auto rank = static_cast<std::size_t>(session.ranks->rank()),
             ranks = static_cast<std::size_t>(session.ranks->size());
  if (noted->size() != ranks) return;
  for (const Json& sum : noted->items())
    if (!sum.is_number()) return;
  session.sums.loss.fill_(noted->items()[rank].as_number());
}

/// `step` is that of the manifest, `saved` the precision of the run that wrote the set.
void load_set(Session& session, const std::string& set, std::int64_t step, const PrecisionOptions& saved) {
  require_own_tokenizers(session, set);
  require_own_classes(session, set);
  session.model_state.load(set + "/" + model_file);
  std::vector<std::string> optional = later_state();
  // A run may go on with early stopping or without.
  optional.push_back(join_text("hooks.", early_stopping_hook, "."));
  // One process alone compresses nothing, and ranks may go on where it ended.
  optional.emplace_back("compress.");
  // It may pass over bad samples from now on, or no more.
  optional.emplace_back(quarantine_state);
  // Runs without hysteresis count no overflows.
  optional.emplace_back(keeps_scale(session.config().precision, saved) ? "loss_scale.overflows" : "loss_scale.");
  session.training_state.load(set + "/" + state_file, optional);
  const Position& position = session.position;
  HEARTH_CHECK(FileError, position.step == step && position.best_step >= -1 && position.best_step <= step, set, "/",
               state_file, ": is the state after step ", position.step, ", the best of which is that of step ",
               position.best_step, ", in a checkpoint of step ", step, "; resume from another one");
  // Of an earlier version, which compared by nothing else.
  const std::string name = session.monitored();
  if (session.data.valid && position.best_step >= 0 && (name == "loss" || name == "accuracy"))
    session.position.best_value = name == "loss" ? position.best_loss : position.best_accuracy;
  session.position.metrics_bytes = metrics_bytes_of(set);
  session.position.stop_reason = stop_reason_of(set);
  const Json notes = notes_of_checkpoint(set);
  restore_bad_samples(session.data, notes.find(bad_samples_note));
  session.after_load();
  session.write_interval();
  restore_loss_sums(session, notes.find(loss_sums_note));
  if (session.sum_choice) session.sum_choice->restore(notes.find(sums_note));
}

/// What a schedule over all steps makes of another number of them; "" where the rate goes on as it was.
std::string change_of_rate(const Session& session, const RunConfig& saved) {
  const TrainOptions& train = saved.train;
  const std::int64_t steps =
      train.steps ? *train.steps
                  : optim::steps_of_epochs(static_cast<double>(*train.epochs), session.plan.steps_per_epoch);
  if (steps == session.plan.total_steps) return "";
  const std::int64_t step = session.position.step;
  const double before = saved.schedule.make({steps, session.plan.steps_per_epoch})->factor(std::min(step, steps));
  const double now = session.schedule->factor(step);
  if (before == now) return "";
  return join_text("the run is of ", session.plan.total_steps, " steps now and was of ", steps, ", so the schedule ",
                   saved.schedule.type(), " goes on at ", now, " of the learning rate, where it was at ", before);
}

}  // namespace

void save_session(Session& session, const std::string& checkpoint_folder) {
  const CheckpointOptions& options = session.config().checkpoint;
  // Ranks read it together.
  if (session.ranks->alone()) session.read_interval();
  require_finite(session.model_state, session);
  require_finite(session.training_state, session);
  CheckpointWriter writer(checkpoint_folder, session.position.step);
  session.model_state.save(writer.file(model_file), {{"format", "pt"}});
  session.training_state.save(writer.file(state_file));
  writer.note(metrics_note, session.position.metrics_bytes);
  if (const std::string& reason = session.position.stop_reason; !reason.empty()) writer.note(stop_note, reason);
  if (Json bad = bad_samples_to_json(session.data, bad_samples_noted); !bad.is_null())
    writer.note(bad_samples_note, std::move(bad));
  if (session.sum_choice && session.sum_choice->is_made()) writer.note(sums_note, session.sum_choice->made());
  if (!session.ranks->alone()) writer.note(loss_sums_note, Json::array_of(session.ranks->loss_sums()));
  write_file_synced(writer.file(config_file), to_text(session.resolved(), 2) + "\n");
  for (const auto& [file, tokenizer] : tokenizers_of(session)) data::write_tokenizer(*tokenizer, writer.file(file));
  write_file_synced(writer.file(data_file), to_text(facts_to_keep(session), 2) + "\n");
  const std::string name = writer.commit();
  point_to(checkpoint_folder, "latest", name);
  if (options.best && session.position.best_step == session.position.step) point_to(checkpoint_folder, "best", name);
  // What a run kept before it was told not to would no longer be the best.
  if (!options.best) std::filesystem::remove(std::filesystem::path(checkpoint_folder) / "best");
  prune_checkpoints(checkpoint_folder, options.keep);
}

void read_for_checkpoint(const Session& session) {
  require_finite(session.model_state, session);
  require_finite(session.training_state, session);
  session.model_state.read_shards();
  session.training_state.read_shards();
}

Restored restore_newest(Session& session, const std::string& run_folder, Allowed allowed) {
  const std::string folder = run_folder + "/checkpoints";
  Restored result;
  if (!file_exists(folder)) return result;
  const CheckpointSearch found = find_newest_complete(folder, required_files());
  for (const DamagedSet& set : found.damaged) result.damaged.push_back(set.name + ": " + set.reason);
  if (found.newest.empty()) {
    std::string reasons;
    for (const std::string& text : result.damaged) reasons += "; " + text;
    HEARTH_CHECK(FileError, reasons.empty(), folder, ": none of the checkpoints can be read", reasons,
                 "; put one of them right, or start afresh by --resume never, which deletes them");
    return result;
  }
  const std::string set = folder + "/" + found.newest;
  const LoadedConfig saved = config_of_set(set);
  auto differences = differences_that_matter(session.resolved(), saved.resolved);
  if (allowed.other_precision)
    std::erase_if(differences, [](const std::string& d) { return d.starts_with("/precision"); });
  // Where data lies changes nothing: what tells it from other data is compared below.
  if (facts_in(set).find("splits")) std::erase_if(differences, is_place_of_data);
  if (!differences.empty()) {
    std::string text;
    for (const std::string& difference : differences) text += "; " + difference;
    throw ConfigError(join_text(run_folder, " holds a run with another config: ", text.substr(2),
                                "; use another --out, there with --set weights.path=", run_folder,
                                " to train its weights on under this config, or --resume never to replace that run, or "
                                "(where only the precision differs) another --out and --resume ",
                                run_folder));
  }
  require_own_classes(session, set);
  require_same_residuals(session, set + "/" + state_file);
  const std::vector<std::string> changes = changes_of_data(session, set);
  if (!changes.empty()) {
    std::string text = "the data has changed";
    for (std::size_t i = 0; i < changes.size(); ++i) text += (i == 0 ? ": " : "; ") + changes[i];
    HEARTH_CHECK(
        DataError, allowed.changed_data, set, ": ", text,
        "; bring the data back, or go on with what is there now by --changed-data, or start afresh by --resume "
        "never");
    result.warnings.push_back(text);
  }
  load_set(session, set, found.step, saved.config.precision);
  if (const std::string change = change_of_rate(session, saved.config); !change.empty())
    result.warnings.push_back(change);
  // Numbers of samples mean others by now.
  if (!changes.empty()) clear_bad_samples(session.data);
  // What ended it may be patient for longer now.
  const auto early_stopping = [](const Json& resolved) { return resolved.at("train").at("early_stopping"); };
  if (early_stopping(session.resolved()) != early_stopping(saved.resolved)) session.position.stop_reason.clear();
  result.from = set;
  return result;
}

namespace {

/// The config of a set, normalising as the run did where neither it nor the overrides say how.
LoadedConfig config_in(const std::string& set, std::vector<std::string> overrides) {
  const data::Datasets::Component data = config_of_set(set, overrides).config.data;
  const std::optional<data::ImageOptions> given = data.make(data::Opening::options_only).image_options;
  if (!given) return config_of_set(set, overrides);
  const Json facts = facts_in(set);
  const auto complete = [&](const char* key, const std::vector<double>& values) {
    if (values.empty() && facts.find(key))
      overrides.push_back(join_text("data.normalize.", key, "=", to_text(facts.at(key))));
  };
  complete("mean", given->normalize.mean);
  complete("std", given->normalize.std);
  return config_of_set(set, overrides);
}

/// FileError for a checkpoint that is not whole.
void require_whole(const std::string& set, const std::string& run_or_checkpoint) {
  try {
    verify_checkpoint(set, required_files());
  } catch (const FileError& error) {
    if (set_behind(run_or_checkpoint) == set) throw;
    throw FileError(join_text(error.what(), "; it is the best or the newest of the run; name another one of ",
                              run_or_checkpoint, "/checkpoints"));
  }
}

/// The data that a configuration names; errors say whose it is.
data::DataSplits configured_data(const data::Datasets::Component& data, const std::optional<data::DataFacts>& facts) {
  const auto explained = [](const Error& error) {
    std::error_code unknown;
    return join_text(error.what(), "; this is the data that the run's configuration names, relative paths from ",
                     std::filesystem::current_path(unknown).string(), "; --data names other data");
  };
  try {
    return facts ? data::data_as_trained(data, *facts) : data::make_data(data);
  } catch (const DataError& error) {
    throw DataError(explained(error));
  } catch (const FileError& error) {
    throw FileError(explained(error));
  }
}

std::unique_ptr<Session> trained_session(const std::string& set, LoadedConfig loaded, data::DataSplits data) {
  HEARTH_CHECK(ConfigError, !loaded.config.train.ema.decay || config_of_set(set).config.train.ema.decay,
               "/train/ema: the run kept no average of its weights, so that there is none to compute with; leave it "
               "out");
  auto session = std::make_unique<Session>(std::move(loaded), std::move(data));
  require_own_tokenizers(*session, set);
  require_own_classes(*session, set);
  session->model_state.load(set + "/" + model_file);
  std::vector<std::string> optional = later_state();
  optional.emplace_back(quarantine_state);
  // Numbers of bad samples may mean those of other data. An evaluation tries all samples of its own.
  session->training_state.load_part(set + "/" + state_file, optional);
  clear_bad_samples(session->data);
  session->after_load();
  return session;
}

/// f(set) of the checkpoint that a path stands for; again where that was removed meanwhile, as a trainer removes the
/// sets before its newest.
template <class F>
std::unique_ptr<Session> with_set_of(const std::string& run_or_checkpoint, const F& f) {
  for (;;) {
    const std::string set = checkpoint_at(run_or_checkpoint);
    try {
      require_whole(set, run_or_checkpoint);
      return f(set);
    } catch (const FileError&) {
      if (file_exists(set + "/manifest.json") || checkpoint_at(run_or_checkpoint) == set) throw;
    }
  }
}

std::unique_ptr<Session> evaluated_session(const std::string& set, const std::vector<std::string>& overrides,
                                           const std::string& data_path) {
  LoadedConfig loaded = config_in(set, overrides);
  const std::optional<data::DataFacts> facts = known_facts(set);
  if (data_path.empty()) {
    data::DataSplits data = configured_data(loaded.config.data, facts);
    return trained_session(set, std::move(loaded), std::move(data));
  }
  HEARTH_CHECK(FileError, facts.has_value(), set,
               ": an earlier version wrote it, without what --data needs; give the data by --set data.path=...");
  data::DataSplits data = data::evaluation_data(loaded.config.data, *facts, data_path);
  return trained_session(set, std::move(loaded), std::move(data));
}

}  // namespace

std::unique_ptr<Session> open_trained(const std::string& run_or_checkpoint, const std::vector<std::string>& overrides) {
  return with_set_of(run_or_checkpoint, [&](const std::string& set) {
    const std::optional<data::DataFacts> facts = known_facts(set);
    // What samples of a program's own are like only their dataset tells.
    if (!facts || facts->kind == "samples") return evaluated_session(set, overrides, "");
    LoadedConfig loaded = config_of_set(set, overrides);
    data::DataSplits data = data::described_data(loaded.config.data, *facts);
    return trained_session(set, std::move(loaded), std::move(data));
  });
}

std::unique_ptr<Session> open_for_evaluation(const std::string& run_or_checkpoint,
                                             const std::vector<std::string>& overrides, const std::string& data_path) {
  return with_set_of(run_or_checkpoint,
                     [&](const std::string& set) { return evaluated_session(set, overrides, data_path); });
}

}  // namespace hearth::train
