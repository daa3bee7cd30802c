// SPDX-License-Identifier: Apache-2.0
#include "data/text/text_parts.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/nearest.h"
#include "data/loading/order.h"
#include "data/source/source.h"
#include "data/source/source_bytes.h"
#include "data/text/tokenize_file.h"
#include "data/text/tokenizers/tokenizer_files.h"

namespace hearth::data::text_parts {

TokenizerPointer make_tokenizer(const Tokenizers::Component& tokenizer, Corpus sequences) {
  return tokenizer ? tokenizer.make(sequences) : tokenizers().make(Json::object().set("type", "characters"), sequences);
}

std::vector<std::string_view> documents_of(const std::vector<std::string>& files, Documents documents) {
  if (documents == Documents::files) return {files.begin(), files.end()};
  std::vector<std::string_view> found;
  for (const std::string& file : files) {
    bool goes_on = false;  // the paragraph
    for (const std::string_view line : lines_of(file)) {
      if (!line.empty() && goes_on)
        found.back() = {found.back().data(), static_cast<std::size_t>(line.data() + line.size() - found.back().data())};
      else if (!line.empty())
        found.push_back(line);
      goes_on = documents == Documents::paragraphs && !line.empty();
    }
  }
  return found;
}

std::vector<std::string> read_all(const std::vector<std::string>& paths) {
  std::vector<std::string> sequences;
  for (const std::string& path : paths) sequences.push_back(read_corpus(path));
  return sequences;
}

namespace {

Parts tokenized(const TextData& options, Parts result) {
  const std::vector<std::string>* files[] = {&options.train, &options.valid, &options.test};
  for (std::size_t i = 0; i < 3; ++i) {
    if (files[i]->empty()) continue;
    const std::vector<std::string> sequences = read_all(*files[i]);
    const std::vector<std::string_view> views = documents_of(sequences, options.documents);
    if (!result.tokenizer) result.tokenizer = make_tokenizer(options.tokenizer, views);
    result.parts[i].target = tokenize(*result.tokenizer, views, files[i]->front(), options.documents);
  }
  return result;
}

/// Lines and their translations, and the sequences that they are views of.
struct Lines {
  std::vector<std::string> sequences{};
  std::vector<std::string_view> source{};
  std::vector<std::string_view> target{};
  std::string source_name{};
  std::string target_name{};
};

Lines read_lines(const std::vector<std::string>& paths) {
  HEARTH_CHECK(ConfigError, paths.size() <= 2, "parallel_text: ", paths.size(), " files (", paths[0],
               ", ...) for one part; it is one of two columns, or one of lines and one of their translations");
  Lines lines;
  lines.sequences = read_all(paths);
  lines.source_name = paths.front();
  lines.target_name = paths.back();
  if (paths.size() == 2) {
    lines.source = lines_of(lines.sequences[0]);
    lines.target = lines_of(lines.sequences[1]);
    HEARTH_CHECK(DataError, lines.source.size() == lines.target.size(), paths[0], ": ", lines.source.size(),
                 " lines, but ", paths[1], " has ", lines.target.size(), "; each line needs its translation");
    return lines;
  }
  for (const std::string_view line : lines_of(lines.sequences[0])) {
    const std::size_t tab = line.find('\t');
    HEARTH_CHECK(DataError, tab != std::string_view::npos && line.find('\t', tab + 1) == std::string_view::npos,
                 paths[0], ":", lines.source.size() + 1, ": ", std::count(line.begin(), line.end(), '\t'),
                 " tabs; a line is a text, a tab and its translation");
    lines.source.push_back(line.substr(0, tab));
    lines.target.push_back(line.substr(tab + 1));
  }
  return lines;
}

Parts tokenized(const ParallelTextData& options, Parts result) {
  const std::vector<std::string>* files[] = {&options.train, &options.valid, &options.test};
  for (std::size_t i = 0; i < 3; ++i) {
    if (files[i]->empty()) continue;
    const Lines lines = read_lines(*files[i]);
    if (!result.tokenizer && !options.source_tokenizer) {
      std::vector<std::string_view> both = lines.source;
      both.insert(both.end(), lines.target.begin(), lines.target.end());
      result.tokenizer = result.source_tokenizer = make_tokenizer(options.tokenizer, both);
    } else if (!result.tokenizer) {
      result.tokenizer = make_tokenizer(options.tokenizer, lines.target);
      result.source_tokenizer = make_tokenizer(options.source_tokenizer, lines.source);
    }
    result.parts[i].source = tokenize(*result.source_tokenizer, lines.source, lines.source_name);
    result.parts[i].target = tokenize(*result.tokenizer, lines.target, lines.target_name);
  }
  return result;
}

TokensPointer open_packed(const std::string& path, const Tokenizer& tokenizer) {
  if (!find_source(path)) return nullptr;
  TokensPointer tokens = Tokens::open(path);
  HEARTH_CHECK(DataError, tokens->meaning().digest == tokenizer.digest(), path,
               ": made with another tokenizer than the one that reads it; pack the text again");
  return tokens;
}

/// Pairs that packing left out of a part.
void read_left_out(const std::string& folder, std::array<Part, 3>& parts) {
  const std::string path = name_in(folder, left_out_name);
  if (!find_source(path)) return;
  try {
    const Json all = read_manifest_json(path);
    for (std::size_t i = 0; i < 3; ++i) {
      const Json* const of_part = all.find(part_names[i]);
      if (of_part == nullptr) continue;
      for (const Json& text : of_part->at("first").items()) parts[i].left_out.first.push_back(text.as_string());
      parts[i].left_out.count = of_part->at("count").as_integer();
    }
  } catch (const ConfigError& error) {
    throw DataError(error.what());
  }
}

Parts packed_parts(const std::string& folder, bool pairs, Parts result) {
  const bool evaluates = result.tokenizer != nullptr;
  if (!evaluates) {
    const std::string own = name_in(folder, "tokenizer.json"), other = name_in(folder, "source_tokenizer.json");
    HEARTH_CHECK(FileError, find_source(own).has_value(), folder,
                 ": has no tokenizer.json; `hearth data pack` writes such folders");
    result.tokenizer = read_tokenizer(own);
    result.source_tokenizer = find_source(other) ? read_tokenizer(other) : result.tokenizer;
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string name = part_names[i];
    if (pairs) result.parts[i].source = open_packed(name_in(folder, name + ".source.tokens"), *result.source_tokenizer);
    result.parts[i].target =
        open_packed(name_in(folder, name + (pairs ? ".target.tokens" : ".tokens")), *result.tokenizer);
    HEARTH_CHECK(DataError, !pairs || !result.parts[i].source == !result.parts[i].target, folder, ": of ", name,
                 " one side is missing");
  }
  if (pairs) read_left_out(folder, result.parts);
  HEARTH_CHECK(FileError, evaluates || result.parts[0].target != nullptr, folder, ": has no ",
               pairs ? "train.source.tokens" : "train.tokens", "; was it packed from another kind of set?");
  return result;
}

}  // namespace

Parts parts_of(const TextData& options, Parts known) {
  return options.packed.empty() ? tokenized(options, std::move(known))
                                : packed_parts(options.packed, false, std::move(known));
}

Parts parts_of(const ParallelTextData& options, Parts known) {
  return options.packed.empty() ? tokenized(options, std::move(known))
                                : packed_parts(options.packed, true, std::move(known));
}

PairOptions pair_options(const ParallelTextData& options) {
  return {.tokens_per_batch = options.tokens_per_batch,
          .buckets = options.buckets,
          .multiple = options.multiple,
          .longest = options.longest,
          .max_ratio = options.max_ratio.value_or(0)};
}

std::int64_t document_at(const Tokens& tokens, std::int64_t place) {
  std::int64_t document = tokens.sequences();
  while (document > 0 && tokens.begin(document - 1) >= place) --document;
  return document;
}

std::int64_t first_of_valid(const TextData& options, const Tokens& tokens) {
  // The end of a text: what stands beside each other belongs together.
  const std::int64_t place =
      tokens.size() - static_cast<std::int64_t>(options.valid_fraction * static_cast<double>(tokens.size()));
  if (!options.packing) return place;
  const std::int64_t document = document_at(tokens, place);
  HEARTH_CHECK(
      DataError, document > 0 && document < tokens.sequences(), tokens.source(), ": ", tokens.sequences(),
      " documents do not divide into training and validation at a document; give another valid_fraction, 0, or "
      "shorter documents (data.documents)");
  return tokens.begin(document);
}

HeldOutSequences hold_out_sequences(const DataOptions& options, std::int64_t size, const std::string& source) {
  const auto count = static_cast<std::int64_t>(options.valid_fraction * static_cast<double>(size));
  HEARTH_CHECK(DataError, count > 0 && count < size, source, ": holding out ", options.valid_fraction, " of ", size,
               " sequences leaves one split empty; give another valid_fraction, or 0");
  const std::vector<std::int64_t> order = shuffled_order(size, options.split_seed, 0);
  HeldOutSequences held{{order.begin(), order.end() - count}, {order.end() - count, order.end()}};
  std::sort(held.rest.begin(), held.rest.end());
  std::sort(held.held_out.begin(), held.held_out.end());
  return held;
}

void refuse_type(const Datasets::Component& data, const std::vector<std::string>& known) {
  throw ConfigError(fault_text(
      data.node().at("type").position(), "/type",
      join_text("unknown data \"", data.type(), "\"; ", suggest(data.type(), known, "known types of data"))));
}

}  // namespace hearth::data::text_parts
