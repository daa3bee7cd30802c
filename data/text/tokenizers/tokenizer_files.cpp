// SPDX-License-Identifier: Apache-2.0
// Reading tokenizer.json, vocab.txt, vocab.json with merges.txt, and SentencePiece models. What a file asks for and
// this library does not do is refused by name: ids that are nearly right are worse than none.
#include "data/text/tokenizers/tokenizer_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/error.h"
#include "data/source/source_bytes.h"
#include "data/text/tokenizers/bpe.h"
#include "data/text/tokenizers/sentencepiece.h"
#include "data/text/tokenizers/special.h"
#include "data/text/tokenizers/word_level.h"
#include "data/text/tokenizers/wordpiece.h"
#include "data/text/unicode.h"

namespace hearth::data {
namespace {

namespace fs = std::filesystem;

/// One node of a tokenizer.json, and where it is.
struct Section {
  const Json* node;
  std::string where;

  bool absent() const { return node == nullptr || node->is_null(); }
  Section operator[](const char* key) const { return {node == nullptr ? nullptr : node->find(key), where + "/" + key}; }
  std::string text(const char* otherwise = "") const {
    if (absent()) return otherwise;
    HEARTH_CHECK(DataError, node->is_string(), where, ": ", node->describe(), "; a string was expected");
    return node->as_string();
  }
  bool flag(bool otherwise) const {
    if (absent()) return otherwise;
    HEARTH_CHECK(DataError, node->is_boolean(), where, ": ", node->describe(), "; true or false was expected");
    return node->as_boolean();
  }
  std::int64_t integer(std::int64_t otherwise) const {
    if (absent()) return otherwise;
    HEARTH_CHECK(DataError, node->is_integer(), where, ": ", node->describe(), "; an integer was expected");
    return node->as_integer();
  }
  const std::vector<Json>& items() const {
    HEARTH_CHECK(DataError, !absent() && node->is_array(), where, ": an array was expected");
    return node->items();
  }
  /// DataError unless the key is absent, null, or `harmless`.
  void require_unset(const char* key, const Json& harmless) const {
    const Section part = (*this)[key];
    HEARTH_CHECK(DataError, part.absent() || *part.node == harmless, part.where, ": ", part.node->describe(),
                 " is not supported");
  }
};

Vocabulary vocabulary_of(const Section& model) {
  const Section vocabulary = model["vocab"];
  HEARTH_CHECK(DataError, !vocabulary.absent(), vocabulary.where, ": missing");
  return Vocabulary(*vocabulary.node, vocabulary.where);
}

std::vector<AddedToken> added_tokens(const Section& document) {
  std::vector<AddedToken> tokens;
  const Section list = document["added_tokens"];
  if (list.absent()) return tokens;
  for (const Json& node : list.items()) {
    const Section entry{&node, list.where};
    AddedToken& token = tokens.emplace_back();
    token.content = entry["content"].text();
    const std::int64_t id = entry["id"].integer(-1);
    HEARTH_CHECK(DataError, id >= 0 && id <= INT32_MAX, list.where, ": '", token.content, "' has the id ", id);
    token.id = static_cast<std::int32_t>(id);
    token.special = entry["special"].flag(false);
    token.lstrip = entry["lstrip"].flag(false);
    token.rstrip = entry["rstrip"].flag(false);
    HEARTH_CHECK(DataError, !entry["single_word"].flag(false), list.where, ": '", token.content,
                 "' is single_word, which is not supported");
    HEARTH_CHECK(DataError, !entry["normalized"].flag(false) || document["normalizer"].absent(), list.where, ": '",
                 token.content, "' is looked for in the normalised text, which is not supported");
  }
  return tokens;
}

void require_type(const Section& part, const char* wanted) {
  const std::string type = part["type"].text("null");
  HEARTH_CHECK(DataError, type == wanted, part.where, ": ", type, " is not supported; ", wanted, " is");
}

TokenizerPointer parse_bpe(const Section& document) {
  const Section model = document["model"], cutting = document["pre_tokenizer"], normalizer = document["normalizer"];
  HEARTH_CHECK(DataError, normalizer.absent(), normalizer.where, ": ", normalizer["type"].text(),
               " is not supported before byte-level BPE");
  require_type(cutting, "ByteLevel");
  HEARTH_CHECK(DataError, cutting["use_regex"].flag(true), cutting.where, ": use_regex false is not supported");
  model.require_unset("dropout", Json(0.0));
  model.require_unset("continuing_subword_prefix", "");
  model.require_unset("end_of_word_suffix", "");
  model.require_unset("byte_fallback", false);
  std::vector<BytePairTokenizer::Merge> merges;
  const Section list = model["merges"];
  for (const Json& node : list.items()) {
    if (node.is_array() && node.size() == 2 && node.at(0).is_string() && node.at(1).is_string()) {
      merges.emplace_back(node.at(0).as_string(), node.at(1).as_string());
      continue;
    }
    HEARTH_CHECK(DataError, node.is_string(), list.where, ": merge ", merges.size() + 1, " is ", node.describe());
    const std::string& both = node.as_string();
    const std::size_t blank = both.find(' ');
    HEARTH_CHECK(DataError, blank != std::string::npos, list.where, ": merge ", merges.size() + 1, ", '", both,
                 "', is not two pieces");
    merges.emplace_back(both.substr(0, blank), both.substr(blank + 1));
  }
  return std::make_shared<BytePairTokenizer>(
      vocabulary_of(model), merges, added_tokens(document),
      BpeOptions{cutting["add_prefix_space"].flag(true), model["ignore_merges"].flag(false), model["unk_token"].text(),
                 model["fuse_unk"].flag(false)},
      document.where);
}

TokenizerPointer parse_wordpiece(const Section& document) {
  const Section model = document["model"], normalizer = document["normalizer"];
  require_type(document["pre_tokenizer"], "BertPreTokenizer");
  require_type(normalizer, "BertNormalizer");
  WordPieceOptions options;
  options.clean_text = normalizer["clean_text"].flag(true);
  options.handle_chinese_chars = normalizer["handle_chinese_chars"].flag(true);
  options.lower_case = normalizer["lowercase"].flag(true);
  const Section accents = normalizer["strip_accents"];
  if (!accents.absent()) options.strip_accents = accents.flag(true);
  options.prefix = model["continuing_subword_prefix"].text("##");
  options.unknown = model["unk_token"].text("[UNK]");
  options.longest_word = model["max_input_chars_per_word"].integer(100);
  return std::make_shared<WordPieceTokenizer>(vocabulary_of(model), added_tokens(document), options, document.where);
}

bool cuts_characters(const Section& cutting) {
  return cutting["type"].text() == "Split" && cutting["pattern"]["Regex"].text() == "[\\s\\S]" &&
         cutting["behavior"].text() == "Isolated" && !cutting["invert"].flag(false);
}

TokenizerPointer parse_word_level(const Section& document) {
  const Section cutting = document["pre_tokenizer"], normalizer = document["normalizer"];
  Vocabulary vocabulary = vocabulary_of(document["model"]);
  std::vector<AddedToken> added = added_tokens(document);
  add_tokens(vocabulary, added, document.where);
  const std::string unknown = document["model"]["unk_token"].text("<unk>");
  if (cuts_characters(cutting) && normalizer.absent())
    return std::make_shared<CharacterTokenizer>(std::move(vocabulary), std::move(added), unknown);
  WordOptions options;
  if (!normalizer.absent()) {
    require_type(normalizer, "Lowercase");
    options.lower_case = true;
  }
  if (cutting["type"].text() == "Sequence") {
    const Section steps = cutting["pretokenizers"];
    HEARTH_CHECK(DataError, steps.items().size() == 2, steps.where,
                 ": only white space, then punctuation, is supported");
    require_type({&steps.items()[0], steps.where}, "WhitespaceSplit");
    const Section signs{&steps.items()[1], steps.where};
    require_type(signs, "Punctuation");
    signs.require_unset("behavior", "Isolated");
    options.punctuation = true;
  } else {
    require_type(cutting, "WhitespaceSplit");
  }
  return std::make_shared<WordTokenizer>(std::move(vocabulary), std::move(added), unknown, options);
}

Json read_document(const std::string& path) {
  try {
    return parse_json(read_source_text(path, tokenizer_limit), path);
  } catch (const ConfigError& error) {
    // A bad data file, not a bad run configuration.
    throw DataError(error.what());
  }
}

std::vector<std::string> lines_of(const std::string& path) {
  const std::string text = read_source_text(path, tokenizer_limit);
  unicode::require_utf8(text, path);
  std::vector<std::string> lines;
  const std::string_view mark = "\xef\xbb\xbf";
  for (std::size_t at = text.starts_with(mark) ? mark.size() : 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(std::move(line));
    at = end + 1;
  }
  return lines;
}

/// What transformers writes beside a vocabulary: tokenizer_config.json, special_tokens_map.json, added_tokens.json.
/// What they say of ids is read or refused by name.
class Companions {
 public:
  explicit Companions(const std::string& vocabulary) : folder_(fs::path(vocabulary).parent_path()) {
    config_ = document("tokenizer_config.json");
    refuse_unless_empty("never_split");
    const Section basic = config()["do_basic_tokenize"];
    HEARTH_CHECK(DataError, basic.flag(true), basic.where, ": false is not supported");
  }

  /// tokenizer_config.json; absent keys where there is none.
  Section config() const { return {config_ ? &*config_ : nullptr, name_of("tokenizer_config.json")}; }

  /// The tokens that stand whole: those of the files, and the usual ones that the vocabulary has. `folds_case`: the
  /// tokenizer changes letters before it looks for tokens that are not special.
  std::vector<AddedToken> tokens(const Vocabulary& vocabulary, const std::vector<AddedToken>& usual, bool folds_case) {
    for (const AddedToken& token : usual)
      if (const auto id = vocabulary.find(token.content)) put(token).id = *id;
    if (const Section decoder = config()["added_tokens_decoder"]; !decoder.absent())
      for (const JsonMember& member : decoder.node->members())
        put_described({&member.value, decoder.where + "/" + member.key}, to_id(member.key, decoder), folds_case);
    if (const std::optional<Json> added = document("added_tokens.json"))
      for (const JsonMember& member : added->members())
        put_plain(member.key, {&member.value, name_of("added_tokens.json") + "/" + member.key}, folds_case);
    const std::optional<Json> map = document("special_tokens_map.json");
    put_special({map ? &*map : nullptr, name_of("special_tokens_map.json")}, vocabulary);
    put_special(config(), vocabulary);
    return std::move(tokens_);
  }

 private:
  std::string name_of(const char* name) const { return (folder_ / name).string(); }

  std::optional<Json> document(const char* name) const {
    if (!find_source(name_of(name))) return std::nullopt;
    Json read = read_document(name_of(name));
    HEARTH_CHECK(DataError, read.is_object(), name_of(name), ": ", read.describe(), "; an object was expected");
    return read;
  }

  void refuse_unless_empty(const char* key) const {
    const Section part = config()[key];
    HEARTH_CHECK(DataError, part.absent() || (part.node->is_array() && part.node->size() == 0), part.where, ": ",
                 part.absent() ? "" : part.node->describe(), " is not supported");
  }

  static std::int32_t to_id(const std::string& text, const Section& where) {
    std::int32_t id = -1;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    HEARTH_CHECK(DataError, error == std::errc() && stop == text.data() + text.size() && id >= 0, where.where, ": '",
                 text, "' is no id");
    return id;
  }

  AddedToken& put(const AddedToken& token) {
    const auto known = std::ranges::find(tokens_, token.content, &AddedToken::content);
    if (known != tokens_.end()) return *known;
    return tokens_.emplace_back(token);
  }

  /// Case or accents that the tokenizer takes off before it looks for such a token would hide it.
  static void require_plain(const std::string& content, const Section& where, bool folds_case) {
    const bool is_plain = std::ranges::all_of(
        content, [](char c) { return static_cast<unsigned char>(c) < 128 && (c < 'A' || c > 'Z'); });
    HEARTH_CHECK(
        DataError, !folds_case || is_plain, where.where, ": '", content,
        "' is looked for in the normalised text, which is not supported; write the tokenizer as tokenizer.json, "
        "or mark the token as special");
  }

  /// Those that an object gives; the others stay.
  static void read_attributes(const Section& part, AddedToken& token) {
    token.lstrip = part["lstrip"].flag(token.lstrip);
    token.rstrip = part["rstrip"].flag(token.rstrip);
    HEARTH_CHECK(DataError, !part["single_word"].flag(false), part.where, ": '", token.content,
                 "' is single_word, which is not supported");
  }

  void put_described(const Section& entry, std::int32_t id, bool folds_case) {
    const std::string content = entry["content"].text();
    AddedToken& token = put({content, id});
    HEARTH_CHECK(DataError, token.id == id, entry.where, ": '", content, "' has the id ", token.id, " elsewhere");
    token.special = entry["special"].flag(false);
    token.lstrip = token.rstrip = false;
    read_attributes(entry, token);
    if (!token.special && entry["normalized"].flag(true)) require_plain(content, entry, folds_case);
  }

  void put_plain(const std::string& content, const Section& entry, bool folds_case) {
    const std::int64_t id = entry.integer(-1);
    HEARTH_CHECK(DataError, id >= 0 && id <= INT32_MAX, entry.where, ": ", id, " is no id");
    const bool is_new = std::ranges::find(tokens_, content, &AddedToken::content) == tokens_.end();
    AddedToken& token = put({.content = content, .id = static_cast<std::int32_t>(id), .special = false});
    HEARTH_CHECK(DataError, token.id == id, entry.where, ": ", id, ", and ", token.id, " elsewhere");
    if (is_new) require_plain(content, entry, folds_case);
  }

  /// "mask_token", "additional_special_tokens" and the like: a string, an object with its attributes, or a list of
  /// them.
  void put_special(const Section& root, const Vocabulary& vocabulary) {
    for (const char* key : {"unk_token", "bos_token", "eos_token", "sep_token", "cls_token", "pad_token", "mask_token"})
      if (const Section part = root[key]; !part.absent()) mark_special(part, vocabulary);
    if (const Section list = root["additional_special_tokens"]; !list.absent())
      for (const Json& node : list.items()) mark_special({&node, list.where}, vocabulary);
  }

  void mark_special(const Section& part, const Vocabulary& vocabulary) {
    const bool has_attributes = part.node->is_object();
    const std::string content = has_attributes ? part["content"].text() : part.text();
    const auto known = std::ranges::find(tokens_, content, &AddedToken::content);
    const auto id = vocabulary.find(content);
    HEARTH_CHECK(DataError, known != tokens_.end() || id, part.where, ": '", content,
                 "' is in neither the vocabulary nor added_tokens.json");
    AddedToken& token = known != tokens_.end() ? *known : put({content, *id});
    token.special = true;
    if (has_attributes) read_attributes(part, token);
  }

  fs::path folder_;
  std::optional<Json> config_;
  std::vector<AddedToken> tokens_;
};

/// What a vocab.txt does not tell.
WordPieceOptions wordpiece_options(const Section& config, std::optional<bool> lower_case) {
  WordPieceOptions options;
  options.lower_case = lower_case.value_or(config["do_lower_case"].flag(options.lower_case));
  options.handle_chinese_chars = config["tokenize_chinese_chars"].flag(options.handle_chinese_chars);
  if (const Section accents = config["strip_accents"]; !accents.absent()) options.strip_accents = accents.flag(true);
  return options;
}

TokenizerPointer read_vocab_json(const std::string& path) {
  const std::string beside = (fs::path(path).parent_path() / "merges.txt").string();
  std::vector<BytePairTokenizer::Merge> merges;
  std::size_t number = 0;
  for (const std::string& line : lines_of(beside)) {
    ++number;
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const std::size_t blank = line.find(' ');
    HEARTH_CHECK(DataError, blank != std::string::npos && line.find(' ', blank + 1) == std::string::npos, beside, ":",
                 number, ": '", line, "' is not two pieces");
    merges.emplace_back(line.substr(0, blank), line.substr(blank + 1));
  }
  Vocabulary vocabulary(read_document(path), path);
  Companions companions(path);
  const BpeOptions options{.add_prefix_space = companions.config()["add_prefix_space"].flag(false)};
  // RoBERTa and its relatives take the blank before a mask, whatever their files say.
  std::vector<AddedToken> added = companions.tokens(
      vocabulary, {{"<pad>"}, {"<unk>"}, {"<s>"}, {"</s>"}, {.content = "<mask>", .lstrip = true}, {"<|endoftext|>"}},
      false);
  return std::make_shared<BytePairTokenizer>(std::move(vocabulary), merges, std::move(added), options, path);
}

}  // namespace

TokenizerPointer parse_tokenizer(const Json& document, const std::string& name) {
  HEARTH_CHECK(DataError, document.is_object(), name, ": not a tokenizer.json");
  const Section root{&document, name};
  const Section type = root["model"]["type"];
  // Files written before the type was named.
  const std::string model = !type.absent() ? type.text() : !root["model"]["merges"].absent() ? "BPE" : "";
  if (model == "BPE") return parse_bpe(root);
  if (model == "WordPiece") return parse_wordpiece(root);
  if (model == "WordLevel") return parse_word_level(root);
  if (model == "SentencePiece") {
    const Section bytes = root["model"]["bytes"];
    return sentencepiece_tokenizer(bytes_of_digits(bytes.text(), bytes.where), name);
  }
  throw DataError(join_text(type.where, ": the model '", model,
                            "' is not supported; BPE, WordPiece, WordLevel and SentencePiece are"));
}

TokenizerPointer read_vocab_txt(const std::string& path, std::optional<bool> lower_case) {
  Vocabulary vocabulary(lines_of(path), path);
  Companions companions(path);
  const WordPieceOptions options = wordpiece_options(companions.config(), lower_case);
  std::vector<AddedToken> added =
      companions.tokens(vocabulary, {{"[PAD]"}, {"[UNK]"}, {"[CLS]"}, {"[SEP]"}, {"[MASK]"}}, options.lower_case);
  return std::make_shared<WordPieceTokenizer>(std::move(vocabulary), std::move(added), options, path);
}

TokenizerPointer read_tokenizer(const std::string& path, std::optional<bool> lower_case) {
  std::string file = path;
  const std::optional<SourceEntry> there = find_source(path);
  if (there && there->kind == SourceEntry::Kind::folder) {
    for (const char* name : {"tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model"}) {
      if (!find_source(name_in(path, name))) continue;
      file = name_in(path, name);
      break;
    }
    HEARTH_CHECK(FileError, file != path, path,
                 ": holds none of tokenizer.json, vocab.json, vocab.txt and tokenizer.model");
  }
  const fs::path name(file);
  if (name.extension() == ".txt") return read_vocab_txt(file, lower_case);
  if (name.extension() == ".model") return sentencepiece_tokenizer(read_source_text(file, tokenizer_limit), file);
  if (name.filename() == "vocab.json") return read_vocab_json(file);
  return parse_tokenizer(read_document(file), file);
}

void write_tokenizer(const Tokenizer& tokenizer, const std::string& path) {
  write_file_synced(path, to_text(tokenizer.to_json(), 1) + "\n");
}

}  // namespace hearth::data
