// SPDX-License-Identifier: Apache-2.0
// Sequences to token files.
#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/io/file.h"
#include "data/text/text_parts.h"
#include "data/text/token_writer.h"
#include "data/text/tokenize_file.h"

namespace hearth::data {
namespace {

namespace fs = std::filesystem;
using namespace text_parts;

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

/// Removes what an earlier packing left, which would be taken for a part of this one. A folder without ids for training
/// is refused, so that one where this went wrong halfway is: they are removed first and written last.
void begin_folder(const std::string& folder, const Tokenizer& tokenizer, const Tokenizer* source_tokenizer) {
  make_directories(folder);
  for (const char* part : part_names)
    for (const char* ending : {".tokens", ".source.tokens", ".target.tokens"})
      remove_file(fs::path(folder) / (std::string(part) + ending));
  remove_file(fs::path(folder) / "source_tokenizer.json");
  write_tokenizer(tokenizer, (fs::path(folder) / "tokenizer.json").string());
  if (source_tokenizer != nullptr && source_tokenizer->digest() != tokenizer.digest())
    write_tokenizer(*source_tokenizer, (fs::path(folder) / "source_tokenizer.json").string());
}

std::string path_in(const std::string& folder, const std::string& name) { return (fs::path(folder) / name).string(); }

/// What is in memory, or was packed before.
std::vector<PackedFile> pack_parts(const Parts& all, const std::string& folder) {
  begin_folder(folder, *all.tokenizer, all.source_tokenizer.get());
  std::vector<PackedFile> files;
  const auto write = [&](const TokensPointer& tokens, const std::string& name) {
    if (!tokens) return;
    tokens->write(path_in(folder, name));
    files.push_back(
        {path_in(folder, name), tokens->size(), tokens->sequences(), tokens->meaning().characters, tokens->width()});
  };
  for (const std::size_t i : {2, 1, 0}) {
    const std::string name = part_names[i];
    write(all.parts[i].target, name + (all.parts[i].source ? ".target.tokens" : ".tokens"));
    write(all.parts[i].source, name + ".source.tokens");
  }
  return files;
}

/// Files that may be larger than the memory.
std::vector<PackedFile> pack_files(const TextData& options, const std::string& folder) {
  const TokenizerPointer tokenizer = tokenizer_of(options);
  begin_folder(folder, *tokenizer, nullptr);
  const std::vector<std::string>* const parts[] = {&options.train, &options.valid, &options.test};
  std::vector<PackedFile> files;
  for (const std::size_t i : {2, 1, 0}) {
    if (parts[i]->empty()) continue;
    const std::string path = path_in(folder, join_text(part_names[i], ".tokens"));
    TokenWriter writer(path, tokenizer->size(), tokenizer->digest());
    for (const std::string& file : *parts[i]) tokenize_file(*tokenizer, file, options.documents, writer);
    writer.finish();
    files.push_back({path, writer.size(), writer.sequences(), writer.meaning().characters, writer.width()});
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
    files = pack_parts(parts_of(*pairs), folder);
  else
    files = text->packed.empty() ? pack_files(*text, folder) : pack_parts(parts_of(*text), folder);
  std::reverse(files.begin(), files.end());
  return files;
}

}  // namespace hearth::data
