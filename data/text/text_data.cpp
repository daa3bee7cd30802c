// SPDX-License-Identifier: Apache-2.0
#include "data/text/text_data.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>

#include "core/error.h"
#include "data/class_names.h"
#include "data/source/source.h"
#include "data/text/labelled.h"
#include "data/text/text_parts.h"
#include "data/text/tokenize_file.h"

namespace hearth::data {
namespace {

namespace fs = std::filesystem;
using namespace text_parts;

/// Lines of `label<tab>text`.
struct LabelledLines {
  std::vector<std::string> sequences{};  // of files
  std::vector<std::string_view> labels{};
  std::vector<std::string_view> lines{};
  std::vector<std::string> places{};  // file and line of each, for messages
};

LabelledLines read_labelled(const std::vector<std::string>& paths) {
  LabelledLines result;
  result.sequences = read_all(paths);
  for (std::size_t file = 0; file < paths.size(); ++file) {
    std::int64_t number = 0;
    for (const std::string_view line : lines_of(result.sequences[file])) {
      result.places.push_back(join_text(paths[file], ":", ++number));
      const std::size_t tab = line.find('\t');
      HEARTH_CHECK(DataError,
                   tab != std::string_view::npos && tab > 0 && line.find('\t', tab + 1) == std::string_view::npos,
                   result.places.back(), ": ", std::count(line.begin(), line.end(), '\t'), " tabs",
                   tab == 0 ? " and no label" : "", "; a line is a label, a tab and a text");
      result.labels.push_back(line.substr(0, tab));
      result.lines.push_back(line.substr(tab + 1));
    }
  }
  return result;
}

std::vector<std::int64_t> numbers_of(const LabelledLines& lines, const std::vector<std::string>& classes) {
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < lines.labels.size(); ++i) {
    const auto found = std::find(classes.begin(), classes.end(), lines.labels[i]);
    HEARTH_CHECK(DataError, found != classes.end(), lines.places[i], ": the label \"", lines.labels[i],
                 "\" is none of the ", classes.size(),
                 " classes, which are those of the training text or of \"classes\"");
    numbers.push_back(found - classes.begin());
  }
  return numbers;
}

/// The classes of a set whose training text have these labels.
std::vector<std::string> classes_of(const std::vector<std::string_view>& labels,
                                    const std::vector<std::string>& given) {
  if (!given.empty()) return distinct_classes(given);
  std::vector<std::string> sorted(labels.begin(), labels.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  refuse_alike_classes("the labels", sorted, "name all in data.classes if they are two");
  return sorted;
}

/// Tokens of lines, none of which makes an empty row.
TokensPointer tokenized(const Tokenizer& tokenizer, const LabelledLines& lines, const std::string& source) {
  TokensPointer tokens = tokenize(tokenizer, lines.lines, source);
  for (std::size_t i = 0; i < lines.places.size(); ++i)
    HEARTH_CHECK(DataError, tokenizer.special().begin >= 0 || tokens->length(static_cast<std::int64_t>(i)) > 0,
                 lines.places[i], ": a text without ids, and the tokenizer has none to begin or end it");
  return tokens;
}

Splits splits_of(const TextData& options, const Parts& all) {
  const WindowOptions windows{options.length, options.mask_probability};
  const auto windows_of = [&](const TokensPointer& tokens) -> DatasetPointer {
    if (!tokens) return nullptr;
    if (options.packing) return packed_documents(all.tokenizer, tokens, 0, tokens->sequences(), windows);
    return text_windows(all.tokenizer, tokens, 0, tokens->size(), windows);
  };
  Splits splits;
  splits.valid = windows_of(all.parts[1].target);
  splits.test = windows_of(all.parts[2].target);
  const TokensPointer& train = all.parts[0].target;
  if (!train) return splits;
  const bool cut = !splits.valid && options.valid_fraction > 0;
  if (!cut) {
    splits.train = windows_of(train);
    return splits;
  }
  const std::int64_t end = first_of_valid(options, *train);
  if (options.packing) {
    const std::int64_t document = document_at(*train, end);
    splits.train = packed_documents(all.tokenizer, train, 0, document, windows);
    splits.valid = packed_documents(all.tokenizer, train, document, train->sequences(), windows);
    return splits;
  }
  splits.train = text_windows(all.tokenizer, train, 0, end, windows);
  splits.valid = text_windows(all.tokenizer, train, end, train->size(), windows);
  return splits;
}

Splits splits_of(const ParallelTextData& options, const Parts& all) {
  const auto pairs_of = [&](const Part& part, std::vector<std::int64_t> pairs) -> DatasetPointer {
    return text_pairs(all.source_tokenizer, part.source, all.tokenizer, part.target, std::move(pairs),
                      pair_options(options), options.on_long == OnFault::skip, part.left_out);
  };
  Splits splits;
  std::array<DatasetPointer*, 3> places{&splits.train, &splits.valid, &splits.test};
  for (std::size_t i = 0; i < 3; ++i) {
    const Part& part = all.parts[i];
    if (!part.target) continue;
    std::vector<std::int64_t> pairs(static_cast<std::size_t>(part.target->sequences()));
    std::iota(pairs.begin(), pairs.end(), std::int64_t{0});
    if (i == 0 && !all.parts[1].target && options.valid_fraction > 0) {
      HeldOutSequences held = hold_out_sequences(options, part.target->sequences(), part.target->source());
      pairs = std::move(held.rest);
      splits.valid = pairs_of(part, std::move(held.held_out));
    }
    *places[i] = pairs_of(part, std::move(pairs));
  }
  return splits;
}

/// Of sequences with a label each; `known` is what need not be made of the training text.
Splits labelled_splits(const LabelledTextData& options, const KnownText& known) {
  const std::vector<std::string>* files[] = {&options.train, &options.valid, &options.test};
  Splits splits;
  DatasetPointer* const places[] = {&splits.train, &splits.valid, &splits.test};
  std::vector<std::string> classes = known.classes;
  TokenizerPointer tokenizer = known.tokenizer;
  for (std::size_t i = 0; i < 3; ++i) {
    if (files[i]->empty()) continue;
    const LabelledLines lines = read_labelled(*files[i]);
    if (!tokenizer) {
      tokenizer = make_tokenizer(options.tokenizer, lines.lines);
      classes = classes_of(lines.labels, options.classes);
    }
    const auto set = std::make_shared<LabelledText>(
        tokenizer, tokenized(*tokenizer, lines, files[i]->front()), numbers_of(lines, classes), classes,
        LabelledOptions{.length = options.length, .tokens_per_batch = options.tokens_per_batch});
    *places[i] = set;
    if (i != 0 || !options.valid.empty() || options.valid_fraction == 0) continue;
    HeldOutSequences held = hold_out_sequences(options, set->size(), set->source());
    splits.train = set->subset(std::move(held.rest));
    splits.valid = set->subset(std::move(held.held_out));
  }
  return splits;
}

/// `files` as they are in a folder, by their names; none where none is there.
std::vector<std::string> found_in(const std::string& folder, const std::vector<std::string>& files) {
  std::vector<std::string> found;
  for (const std::string& file : files) found.push_back(name_in(folder, fs::path(file).filename().string()));
  const bool any =
      std::any_of(found.begin(), found.end(), [](const std::string& file) { return find_source(file).has_value(); });
  return any ? found : std::vector<std::string>{};
}

bool is_folder(const std::string& path) {
  const std::optional<SourceEntry> there = find_source(path);
  return there && there->kind == SourceEntry::Kind::folder;
}

/// Makes a node's options name what is at `path`, and no training text.
template <class T>
void lead_to(T& options, const std::string& path) {
  std::string wanted;
  options.train.clear();
  if (!is_folder(path)) {
    options.valid.clear();
    options.test = {path};
  } else {
    for (std::vector<std::string>* files : {&options.valid, &options.test}) {
      for (const std::string& file : *files) wanted += " " + fs::path(file).filename().string();
      *files = found_in(path, *files);
    }
  }
  HEARTH_CHECK(FileError, !options.valid.empty() || !options.test.empty(), path, ": has none of the files",
               wanted.empty() ? " that `hearth data pack` writes" : wanted,
               " of the splits valid and test; give a folder that holds them, or a file of sequences");
}

template <class T>
Splits token_splits_at(T options, const std::string& path, const KnownText& known) {
  const Parts tokenizers{known.tokenizer, known.source_tokenizer, {}};
  options.packed = is_folder(path) ? path : "";
  if (!options.packed.empty()) {
    const Splits packed = splits_of(options, parts_of(options, tokenizers));
    if (packed.valid || packed.test) return {nullptr, packed.valid, packed.test};
    options.packed.clear();
  }
  lead_to(options, path);
  return splits_of(options, parts_of(options, tokenizers));
}

}  // namespace

Splits text_data(const TextData& options) { return splits_of(options, parts_of(options)); }
Splits parallel_text_data(const ParallelTextData& options) { return splits_of(options, parts_of(options)); }
Splits labelled_text_data(const LabelledTextData& options) { return labelled_splits(options, {}); }

Splits text_splits_at(const Datasets::Component& data, const std::string& path, const KnownText& known) {
  if (const TextData* const text = data.options<TextData>()) return token_splits_at(*text, path, known);
  if (const auto* const pairs = data.options<ParallelTextData>()) return token_splits_at(*pairs, path, known);
  const auto* const labelled = data.options<LabelledTextData>();
  if (labelled == nullptr) refuse_type(data, {"text", "parallel_text", "labelled_text"});
  LabelledTextData options = *labelled;
  lead_to(options, path);
  return labelled_splits(options, known);
}

std::int64_t tokens_per_batch(const Datasets::Component& data) {
  if (const auto* const pairs = data.options<ParallelTextData>()) return pairs->tokens_per_batch;
  const auto* const labelled = data.options<LabelledTextData>();
  return labelled != nullptr ? labelled->tokens_per_batch : 0;
}

std::string describe_token_batches(const Datasets::Component& data) {
  const std::int64_t tokens = tokens_per_batch(data);
  if (tokens == 0) return "";
  return join_text("up to ", tokens, data.options<ParallelTextData>() != nullptr ? " tokens a side" : " tokens");
}

}  // namespace hearth::data
