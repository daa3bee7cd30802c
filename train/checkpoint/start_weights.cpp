// SPDX-License-Identifier: Apache-2.0
// The weights that a new run starts from.
#include <algorithm>
#include <filesystem>
#include <set>

#include "core/io/json_text.h"
#include "data/dataset.h"
#include "data/text/token_set.h"
#include "data/text/tokenizers/tokenizer_files.h"
#include "models/weights/swin_weights.h"
#include "models/weights/weights_import.h"
#include "train/checkpoint/trained_weights.h"
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

std::string lowered(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

bool are_numbers(const std::vector<std::string>& names) {
  return names == data::numbered_classes(static_cast<std::int64_t>(names.size()));
}

/// What is said of the classes of a head that is loaded, which the run's data name otherwise: the first class would be
/// taken for another. A note where the data have numbers, which tell nothing.
struct ClassFault {
  std::string error{}, note{};
};

ClassFault class_fault(const models::ImportedWeights& weights, const std::vector<std::string>& ours,
                       const std::string& path, bool may_order) {
  const std::vector<std::string>& theirs = weights.classes;
  const auto same = [](const std::string& a, const std::string& b) { return lowered(a) == lowered(b); };
  if (std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(), same)) return {};
  // Their names in the data's spelling, of which the data may lack some.
  std::vector<std::string> ordered = theirs;
  std::size_t found = 0;
  for (std::string& name : ordered)
    if (const auto own = std::find_if(ours.begin(), ours.end(), [&](const auto& each) { return same(each, name); });
        own != ours.end()) {
      name = *own;
      ++found;
    }
  const std::string list = to_text(Json::array_of(ordered));
  if (found != ours.size() && are_numbers(theirs)) return {};
  if (found != ours.size() && ours.size() == theirs.size() && are_numbers(ours))
    return {.note = join_text("the classifier of ", path, " is of the classes ", list,
                              ", and those of the data are numbers; see that they are in this order")};
  const std::string head = weights.class_head.substr(0, weights.class_head.find('.'));
  const auto [a, b] = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end(), same);
  const auto name = [](const auto& at, const auto& all) { return at == all.end() ? "no class" : to_text(Json(*at)); };
  const std::string reinitialize =
      join_text("give the classifier initial values: --set 'weights.reinitialize=[\"", head, "\"]'");
  return {.error = join_text(
              "/data/classes: label ", a - ours.begin(), " is ", name(a, ours), " of ", ours.size(), " classes, and ",
              name(b, theirs), " of ", theirs.size(), " in the classifier of ", path,
              ", whose answers would be taken for others; ",
              found == ours.size() && may_order ? join_text("use --set 'data.classes=", list, "', or ")
              : found == ours.size()
                  ? ""
                  : "where the data only call the same classes otherwise, name a copy of the weights' config.json "
                    "with their names as weights.config; otherwise ",
              reinitialize)};
}

/// ConfigError where the head that scores classes is loaded and the run's data name them otherwise.
void require_same_classes(const Session& session, models::ImportedWeights& imported) {
  const WeightsOptions& options = session.config().weights;
  const auto& entries = session.model_state.entries();
  const bool has_head =
      options.into.empty() && std::any_of(entries.begin(), entries.end(),
                                          [&](const State::Entry& entry) { return entry.name == imported.class_head; });
  const bool starts_anew =
      std::any_of(options.reinitialize.begin(), options.reinitialize.end(),
                  [&](const std::string& beginning) { return imported.class_head.starts_with(beginning); });
  const std::vector<std::string>& ours = session.data.train->class_names();
  if (!has_head || starts_anew || ours.empty()) return;
  const bool may_order = session.resolved().at("data").find("classes") != nullptr;
  ClassFault fault = class_fault(imported, ours, options.path, may_order);
  HEARTH_CHECK(ConfigError, fault.error.empty(), fault.error);
  if (!fault.note.empty()) imported.notes.push_back(std::move(fault.note));
}

/// Whether weights that were taken for Hearth's own have what PyTorch's have: counters of batches, or filters that fit
/// with their axes in its order.
bool seems_of_torch(const std::vector<NamedTensor>& tensors, const models::WeightSet& set) {
  const auto is_filter = [&](const models::Weight& weight) {
    if (weight.value.rank() != 4) return false;
    const auto own = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const NamedTensor& named) { return named.name == weight.name; });
    const Shape theirs = weight.value.shape();
    return own != tensors.end() && own->tensor->shape() != theirs &&
           own->tensor->shape() == Shape{theirs[0], theirs[2], theirs[3], theirs[1]};
  };
  return std::any_of(set.weights.begin(), set.weights.end(),
                     [&](const models::Weight& weight) { return models::counts_batches(weight) || is_filter(weight); });
}

/// The folder of a run or a checkpoint stands for the weights that it is evaluated with.
models::ImportedWeights import_start_weights(const WeightsOptions& options) {
  const models::ImportOptions from{
      .from = options.from, .config = options.config, .rules = {options.reinitialize, options.unused}};
  if (options.from == models::WeightFormat::hearth)
    if (const auto trained = find_trained_weights(options.path)) return import_trained_weights(*trained, from);
  return models::import_weights(options.path, from);
}

/// Leaves the tensors of the part `into` of the model, with their names in it, and returns how many others there were.
std::size_t keep_part(std::vector<NamedTensor>& tensors, const std::string& into) {
  if (into.empty()) return 0;
  const std::string beginning = into + ".";
  std::set<std::string> parts;
  for (const NamedTensor& named : tensors) parts.insert(named.name.substr(0, named.name.find('.')));
  const std::size_t others =
      std::erase_if(tensors, [&](const NamedTensor& named) { return !named.name.starts_with(beginning); });
  HEARTH_CHECK(ConfigError, !tensors.empty(), "/weights/into: the model has no part \"", into,
               "\" with weights; name one of, or a part of one of, ",
               to_text(Json::array_of(std::vector<std::string>(parts.begin(), parts.end()))));
  for (NamedTensor& named : tensors) named.name = named.name.substr(beginning.size());
  return others;
}

}  // namespace

LoadedWeights Session::load_start_weights() {
  const WeightsOptions& options = loaded_.config.weights;
  if (options.path.empty()) return {};
  models::ImportedWeights imported = import_start_weights(options);
  HEARTH_CHECK(FileError, imported.report.fits(), models::faults_with_reason(imported.report, options.path + ": "));
  if (!imported.model.is_null() && options.into.empty())
    models::require_same_model(loaded_.config.model.node(), imported.model, options.path);
  require_same_classes(*this, imported);
  if (options.from == models::WeightFormat::timm_swin && data.train->images() != nullptr) {
    const data::ImageShape images = data.input_shape();
    if (std::string text = models::timm_difference(imported.weights, images.height, images.width); !text.empty())
      imported.notes.push_back(options.path + ": " + text);
  }
  if (const auto& own = data.image_options.normalize; own.mean == imported.image_mean && own.std == imported.image_std)
    std::erase_if(imported.notes, [](const std::string& note) { return note.ends_with(models::normalize_reminder); });
  // Parameters and buffers; what ranks have a part of each is loaded whole.
  std::vector<NamedTensor> tensors;
  std::vector<State::Entry::HostBytes> whole(model_state.entries().size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const State::Entry& entry = model_state.entries()[i];
    if (entry.shards != nullptr) whole[i] = entry.read();
    tensors.push_back({entry.name, entry.shards != nullptr ? &whole[i].copy : entry.tensor});
  }
  const std::size_t untouched = keep_part(tensors, options.into);
  const models::NameReport loaded =
      models::load_weights(tensors, imported.weights, {options.reinitialize, imported.unused});
  HEARTH_CHECK(FileError, loaded.fits(), models::faults_with_reason(loaded, options.path + ": "),
               options.from == models::WeightFormat::hearth && seems_of_torch(tensors, imported.weights)
                   ? "\n" + options.path +
                         ": seems to have PyTorch's filters, [K, C, R, S], or batch norms; use --set weights.from=torch"
                   : std::string());
  for (std::size_t i = 0; i < whole.size(); ++i)
    if (whole[i].copy.defined()) model_state.entries()[i].write(whole[i].bytes);
  after_load();
  if (ema) ema->restart();
  LoadedWeights result{std::move(imported.report.left_out), std::move(imported.notes)};
  result.left_out.insert(result.left_out.end(), loaded.left_out.begin(), loaded.left_out.end());
  if (untouched > 0)
    result.left_out.push_back(
        join_text(untouched, " tensors outside of ", options.into, ", which have their initial values"));
  if (const auto tokenizers = data.tokenizers(); !tokenizers.empty())
    if (std::string note = other_tokenizer(*tokenizers[0], options.path); !note.empty())
      result.notes.push_back(std::move(note));
  return result;
}

}  // namespace hearth::train
