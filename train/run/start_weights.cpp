// SPDX-License-Identifier: Apache-2.0
// The weights that a new run starts from.
#include <algorithm>
#include <filesystem>

#include "core/io/json_text.h"
#include "data/text/token_set.h"
#include "models/weights/weights_import.h"
#include "train/run/trained_weights.h"
#include "train/session.h"

namespace hearth::train {
namespace {

/// What is said if ids of the run mean something else to weights with a tokenizer beside them; "" if they do not, or if
/// there is no tokenizer that can be read.
std::string other_tokenizer(const data::Tokenizer& own, const std::string& weights) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path folder = fs::is_directory(weights, ignored) ? fs::path(weights) : fs::path(weights).parent_path();
  if (const auto trained = find_trained_weights(weights)) folder = trained->checkpoint;
  const std::string path = (folder / "tokenizer.json").string();
  if (!fs::is_regular_file(path, ignored)) return "";
  data::TokenizerPointer theirs;
  try {
    theirs = data::read_tokenizer(path);
  } catch (const Error&) {
    return "";  // of a kind that is missing here
  }
  const std::string begins = "the run's tokenizer is not " + path + ", with which the weights were trained: ";
  for (std::int32_t id = 0; id < std::min(own.size(), theirs->size()); ++id)
    if (own.piece(id) != theirs->piece(id))
      return join_text(begins, "id ", id, " is ", to_text(Json(own.piece(id))), " and was ",
                       to_text(Json(theirs->piece(id))));
  // Equal pieces, but perhaps other rules: letters of both cases, accents, digits, spaces.
  constexpr const char* probe = "The  Queen's caf\u00e9, 1234 NA\u00cfVE";
  const auto ids_of = [&](const data::Tokenizer& tokenizer) {
    try {
      return tokenizer.encode(probe);
    } catch (const DataError&) {
      return std::vector<std::int32_t>{};  // it has no such characters
    }
  };
  return ids_of(own) == ids_of(*theirs) ? std::string() : begins + "the same text gives other ids";
}

/// The folder of a run or a checkpoint stands for the weights that it is evaluated with.
models::ImportedWeights import_start_weights(const WeightsOptions& options) {
  const models::ImportOptions from{.from = options.from, .config = options.config};
  if (options.from == models::WeightFormat::hearth)
    if (const auto trained = find_trained_weights(options.path)) return import_trained_weights(*trained, from);
  return models::import_weights(options.path, from);
}

}  // namespace

LoadedWeights Session::load_start_weights() {
  const WeightsOptions& options = loaded_.config.weights;
  if (options.path.empty()) return {};
  models::ImportedWeights imported = import_start_weights(options);
  set_switches();  // the session that gave an average may have set others
  HEARTH_CHECK(FileError, imported.report.fits(), imported.report.faults(options.path + ": "));
  if (!imported.model.is_null()) models::require_same_model(loaded_.config.model.node(), imported.model, options.path);
  // Parameters and buffers; what ranks have a part of each is loaded whole.
  std::vector<NamedTensor> tensors;
  std::vector<State::Entry::HostBytes> whole(model_state.entries().size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const State::Entry& entry = model_state.entries()[i];
    if (entry.shards != nullptr) whole[i] = entry.read();
    tensors.push_back({entry.name, entry.shards != nullptr ? &whole[i].copy : entry.tensor});
  }
  const models::NameReport loaded =
      models::load_weights(tensors, imported.weights, {options.reinitialize, options.unused});
  HEARTH_CHECK(FileError, loaded.fits(), loaded.faults(options.path + ": "));
  for (std::size_t i = 0; i < whole.size(); ++i)
    if (whole[i].copy.defined()) model_state.entries()[i].write(whole[i].bytes);
  after_load();
  if (ema) ema->restart();
  LoadedWeights result{std::move(imported.report.left_out), std::move(imported.notes)};
  result.left_out.insert(result.left_out.end(), loaded.left_out.begin(), loaded.left_out.end());
  if (const auto tokenizers = data.tokenizers(); !tokenizers.empty())
    if (std::string note = other_tokenizer(*tokenizers[0], options.path); !note.empty())
      result.notes.push_back(std::move(note));
  return result;
}

}  // namespace hearth::train
