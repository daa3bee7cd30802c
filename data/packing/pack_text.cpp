// SPDX-License-Identifier: Apache-2.0
#include "data/packing/pack_text.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/io/file.h"
#include "data/packing/pack_folder.h"
#include "data/text/batches/pair_limits.h"
#include "data/text/text_parts.h"
#include "data/text/token_writer.h"
#include "data/text/tokenize_file.h"
#include "data/text/tokenizers/tokenizer_files.h"

namespace hearth::data {
namespace {

namespace fs = std::filesystem;
using namespace text_parts;

constexpr const char* whole_name = "whole.tokens";

/// FileError if the file is there and stays.
void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  HEARTH_CHECK(FileError, !error, path.string(), ": cannot be removed: ", error.message());
}

/// The tokenizer of a text: where it is made from the training text, that is held in memory meanwhile.
TokenizerPointer tokenizer_of(const TextData& options) {
  const Json* const path = options.tokenizer ? options.tokenizer.node().find("path") : nullptr;
  if (path != nullptr && path->is_string() && !path->as_string().empty()) return options.tokenizer.make({});
  const std::vector<std::string> files = read_all(options.train);
  return make_tokenizer(options.tokenizer, documents_of(files, options.documents));
}

/// In a folder whose pack is not finished.
constexpr const char* unfinished_name = "unfinished-pack";

/// Refuses a folder that holds something else. Removes what a packing that was interrupted left, which would be taken
/// for a part of this one.
void begin_folder(const std::string& folder, const Tokenizer& tokenizer, const Tokenizer* source_tokenizer) {
  make_directories(folder);
  remove_leftovers(folder, {unfinished_name, "tokenizer.json", "source_tokenizer.json", left_out_name});
  HEARTH_CHECK(UsageError, file_exists(fs::path(folder) / unfinished_name) || list_directory(folder).empty(), folder,
               ": is not empty; remove the folder, or name another");
  write_file_synced(fs::path(folder) / unfinished_name, "");
  for (const char* part : part_names)
    for (const char* ending : {".tokens", ".source.tokens", ".target.tokens"})
      remove_file(fs::path(folder) / (std::string(part) + ending));
  for (const char* name : {"source_tokenizer.json", whole_name, left_out_name}) remove_file(fs::path(folder) / name);
  write_tokenizer(tokenizer, (fs::path(folder) / "tokenizer.json").string());
  if (source_tokenizer != nullptr && source_tokenizer->digest() != tokenizer.digest())
    write_tokenizer(*source_tokenizer, (fs::path(folder) / "source_tokenizer.json").string());
}

std::string path_in(const std::string& folder, const std::string& name) { return (fs::path(folder) / name).string(); }

PackedFile finished(TokenWriter& writer, const std::string& path) {
  writer.finish();
  return {path, writer.size(), writer.sequences(), writer.meaning().characters, writer.width()};
}

/// Ids first..last - 1, at most 2^16 at once.
void append_ids(const Tokens& tokens, std::int64_t first, std::int64_t last, TokenWriter& writer) {
  std::vector<std::int32_t> ids;
  while (first < last) {
    ids.resize(static_cast<std::size_t>(std::min<std::int64_t>(last - first, 1 << 16)));
    const auto count = static_cast<std::int64_t>(ids.size());
    tokens.copy(first, count, ids.data());
    writer.append(ids);
    first += count;
  }
}

/// A part of a token stream; a sequence that it begins or ends in has the rest elsewhere. Nobody wrote down its
/// characters.
PackedFile write_range(const Tokens& tokens, std::int64_t first, std::int64_t last, const std::string& path) {
  TokenWriter writer(path, tokens.meaning().vocabulary, tokens.meaning().digest);
  for (std::int64_t i = 0; i < tokens.sequences() && tokens.begin(i) < last; ++i) {
    if (tokens.end(i) <= first) continue;
    append_ids(tokens, std::max(first, tokens.begin(i)), std::min(last, tokens.end(i)), writer);
    writer.end_sequence();
  }
  return finished(writer, path);
}

PackedFile write_sequences(const Tokens& tokens, const std::vector<std::int64_t>& which, const std::string& path,
                           std::int64_t characters = 0) {
  TokenWriter writer(path, tokens.meaning().vocabulary, tokens.meaning().digest);
  writer.add_characters(characters);
  for (const std::int64_t i : which) {
    append_ids(tokens, tokens.begin(i), tokens.end(i), writer);
    writer.end_sequence();
  }
  return finished(writer, path);
}

/// The validation and training splits that valid_fraction makes of one part.
void write_splits(const TextData& options, const Part& part, const std::string& folder,
                  std::vector<PackedFile>& files) {
  const Tokens& tokens = *part.target;
  const std::int64_t cut = first_of_valid(options, tokens);
  files.push_back(write_range(tokens, cut, tokens.size(), path_in(folder, "valid.tokens")));
  files.push_back(write_range(tokens, 0, cut, path_in(folder, "train.tokens")));
}

/// Those of the pairs that a run takes. The characters of a part of the sequences nobody wrote down.
void write_pairs(const ParallelTextData& options, const Part& part, const std::vector<std::int64_t>& pairs,
                 const std::string& name, const std::string& folder, std::vector<PackedFile>& files) {
  PairsWithin within =
      pairs_within(*part.source, *part.target, pairs, pair_options(options), options.on_long == OnFault::skip);
  const bool is_whole = static_cast<std::int64_t>(within.pairs.size()) == part.target->sequences();
  for (const auto& [tokens, side] :
       {std::pair{part.target.get(), ".target.tokens"}, {part.source.get(), ".source.tokens"}})
    files.push_back(write_sequences(*tokens, within.pairs, path_in(folder, name + side),
                                    is_whole ? tokens->meaning().characters : 0));
  Warnings left_out = part.left_out;
  left_out.add(within.left_out);
  files.back().left_out.count = left_out.count;
  files[files.size() - 2].left_out = std::move(left_out);
}

void write_splits(const ParallelTextData& options, const Part& part, const std::string& folder,
                  std::vector<PackedFile>& files) {
  const HeldOutSequences held = hold_out_sequences(options, part.target->sequences(), part.target->source());
  write_pairs(options, {part.source, part.target, {}}, held.held_out, "valid", folder, files);
  write_pairs(options, part, held.rest, "train", folder, files);
}

std::vector<std::int64_t> all_of(const Tokens& tokens) {
  std::vector<std::int64_t> every(static_cast<std::size_t>(tokens.sequences()));
  std::iota(every.begin(), every.end(), std::int64_t{0});
  return every;
}

void write_part(const TextData&, const Part& part, const std::string& name, const std::string& folder,
                std::vector<PackedFile>& files) {
  files.push_back(write_sequences(*part.target, all_of(*part.target), path_in(folder, name + ".tokens"),
                                  part.target->meaning().characters));
}

void write_part(const ParallelTextData& options, const Part& part, const std::string& name, const std::string& folder,
                std::vector<PackedFile>& files) {
  write_pairs(options, part, all_of(*part.target), name, folder, files);
}

/// Tells runs of what the pack left out.
void write_left_out(const std::vector<PackedFile>& files, const std::string& folder) {
  Json all = Json::object();
  for (const char* part : part_names)
    for (const PackedFile& file : files)
      if (!file.left_out.first.empty() && file.path == path_in(folder, join_text(part, ".target.tokens")))
        all.set(part,
                Json::object().set("count", file.left_out.count).set("first", Json::array_of(file.left_out.first)));
  if (all.size() > 0) write_file_synced(path_in(folder, left_out_name), to_text(all, 1) + "\n");
}

/// What is in memory, or was packed before.
template <class T>
std::vector<PackedFile> pack_parts(const T& options, const std::string& folder) {
  const Parts all = parts_of(options);
  begin_folder(folder, *all.tokenizer, all.source_tokenizer.get());
  std::vector<PackedFile> files;
  const bool holds_out = !all.parts[1].target && options.valid_fraction > 0;
  for (const std::size_t i : {2, 1, 0}) {
    if (i == 0 && holds_out) {
      write_splits(options, all.parts[0], folder, files);
      continue;
    }
    if (all.parts[i].target) write_part(options, all.parts[i], part_names[i], folder, files);
  }
  write_left_out(files, folder);
  return files;
}

/// A file that is removed at the end, whatever happens.
struct TemporaryFile {
  explicit TemporaryFile(std::string file) : path(std::move(file)) {}
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string path;
};

/// Files that may be larger than the memory. Where a split is held out of the training text, its ids are in a file of
/// their own meanwhile.
std::vector<PackedFile> pack_files(const TextData& options, const std::string& folder) {
  const TokenizerPointer tokenizer = tokenizer_of(options);
  begin_folder(folder, *tokenizer, nullptr);
  const std::vector<std::string>* const parts[] = {&options.train, &options.valid, &options.test};
  const auto write = [&](std::size_t part, const std::string& path) {
    TokenWriter writer(path, tokenizer->size(), tokenizer->digest());
    for (const std::string& file : *parts[part]) tokenize_file(*tokenizer, file, options.documents, writer);
    return finished(writer, path);
  };
  std::vector<PackedFile> files;
  for (const std::size_t i : {2, 1, 0}) {
    if (i == 0 && options.valid.empty() && options.valid_fraction > 0) {
      const TemporaryFile whole(path_in(folder, whole_name));
      (void)write(0, whole.path);
      write_splits(options, {.target = Tokens::open(whole.path)}, folder, files);
    } else if (!parts[i]->empty()) {
      files.push_back(write(i, path_in(folder, join_text(part_names[i], ".tokens"))));
    }
  }
  return files;
}

}  // namespace

std::vector<PackedFile> pack_text(const Datasets::Component& data, const std::string& folder) {
  const TextData* const text = data.options<TextData>();
  const auto* const pairs = data.options<ParallelTextData>();
  if (text == nullptr && pairs == nullptr) refuse_type(data, {"text", "parallel_text"});
  std::vector<PackedFile> files;
  if (pairs != nullptr)
    files = pack_parts(*pairs, folder);
  else
    files = text->packed.empty() ? pack_files(*text, folder) : pack_parts(*text, folder);
  std::reverse(files.begin(), files.end());
  remove_file(fs::path(folder) / unfinished_name);
  return files;
}

}  // namespace hearth::data
