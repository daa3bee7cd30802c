// SPDX-License-Identifier: Apache-2.0
#include "data/text/tokenize_file.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/cpu/parallel.h"
#include "core/error.h"
#include "data/source/file_opener.h"
#include "data/source/source.h"
#include "data/source/source_bytes.h"
#include "data/text/unicode.h"

namespace hearth::data {
namespace {

/// The text of a file as read_corpus() gives it, in stretches of whole characters.
class CorpusReader {
 public:
  explicit CorpusReader(const std::string& path) : path_(path), file_(open_source(path)) {
    const std::vector<std::uint8_t> front = read_file_front();
    if (front.size() < 2 || front[0] != 0x1f || front[1] != 0x8b) return;
    const std::vector<std::uint8_t> bytes = read_maybe_gzip(path, corpus_limit);
    inflated_.emplace(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  /// Adds about so many bytes to `text`; false once there are no more.
  bool read(std::string& text, std::size_t count) {
    const std::uint64_t size = inflated_ ? inflated_->size() : file_->size();
    const std::size_t there = static_cast<std::size_t>(std::min<std::uint64_t>(count, size - at_));
    std::string raw = std::move(carried_);
    carried_.clear();
    const std::size_t kept = raw.size();
    raw.resize(kept + there);
    if (inflated_)
      inflated_->copy(raw.data() + kept, there, at_);
    else
      file_->read(at_, std::as_writable_bytes(std::span(raw).subspan(kept)));
    at_ += there;
    const bool is_last = at_ == size;
    if (!is_last) carry(raw);
    check(raw);
    add(raw, text);
    return !is_last;
  }

 private:
  std::vector<std::uint8_t> read_file_front() const {
    std::vector<std::uint8_t> front(static_cast<std::size_t>(std::min<std::uint64_t>(2, file_->size())));
    file_->read(0, std::as_writable_bytes(std::span(front)));
    return front;
  }

  /// Leaves a character that is not whole yet, and a \r whose \n may follow, for the next stretch.
  void carry(std::string& raw) {
    std::size_t end = raw.size();
    while (end > 0 && raw.size() - end < 3 && !utf8::begins_character(raw[end - 1])) --end;
    if (end > 0 && (raw[end - 1] & 0x80) != 0)
      --end;
    else
      end = raw.size();
    if (end > 0 && raw[end - 1] == '\r') --end;
    carried_ = raw.substr(end);
    raw.resize(end);
  }

  void check(std::string_view raw) {
    const std::size_t zero = raw.find('\0');
    HEARTH_CHECK(DataError, zero == std::string_view::npos, path_, ":", line_of(raw, zero),
                 ": a zero byte, which no text has; write it as UTF-8");
    const std::size_t fault = utf8::find_fault(raw);
    HEARTH_CHECK(DataError, fault == std::string_view::npos, path_, ":", line_of(raw, fault), ": byte ",
                 checked_ + fault, " of the text is not UTF-8; convert it first, as with iconv");
    lines_ += std::count(raw.begin(), raw.end(), '\n');
    checked_ += raw.size();
  }
  std::int64_t line_of(std::string_view raw, std::size_t at) const {
    return 1 + lines_ + std::ranges::count(raw.substr(0, at), '\n');
  }

  void add(std::string_view raw, std::string& text) {
    if (is_first_ && raw.starts_with("\xef\xbb\xbf")) raw.remove_prefix(3);
    if (!raw.empty()) is_first_ = false;
    for (std::size_t at = 0; at < raw.size();) {
      std::size_t end = raw.find("\r\n", at);
      if (end == std::string_view::npos) end = raw.size();
      text.append(raw, at, end - at);
      at = end < raw.size() ? end + 1 : end;
    }
  }

  std::string path_;
  SourceFilePointer file_;
  std::optional<std::string> inflated_{};
  std::string carried_{};
  std::uint64_t at_ = 0, checked_ = 0;
  std::int64_t lines_ = 0;
  bool is_first_ = true;
};

/// A part of a document that is tokenised by itself.
struct Piece {
  std::string_view text;
  bool ends;  ///< the document
};

bool is_blank(char byte, bool at_lines) { return byte == ' ' || (at_lines && byte == '\n'); }

/// Appends whole blocks of a document, but for the last; returns where that begins. Where it is cut depends on the
/// document alone, however much of it is there.
std::size_t cut_document(const Tokenizer& tokenizer, std::string_view text, std::size_t at, bool at_lines,
                         std::size_t block, std::vector<Piece>& pieces) {
  for (std::size_t wanted = block; text.size() - at > wanted;) {
    std::size_t size = wanted;
    while (!utf8::begins_character(text[at + size])) --size;
    const std::size_t length = safe_cut(tokenizer, text.substr(at, size), at_lines);
    if (length == 0) {
      wanted *= 2;  // until there is a place
      continue;
    }
    pieces.push_back({text.substr(at, length), false});
    at += length;
    wanted = block;
  }
  return at;
}

/// Cuts the text that is in memory into pieces.
class Cutter {
 public:
  Cutter(const Tokenizer& tokenizer, Documents documents, std::size_t block)
      : tokenizer_(tokenizer), documents_(documents), block_(block) {}

  /// Appends the pieces of `text`, the end of a file where that is the last; returns how much of the text they are.
  std::size_t cut(std::string_view text, bool is_last, std::vector<Piece>& pieces) {
    std::size_t at = 0;
    while (true) {
      if (!goes_on_ && documents_ != Documents::files)
        while (at < text.size() && text[at] == '\n') ++at;
      if (at == text.size() && !(goes_on_ && is_last)) return at;
      const std::optional<std::size_t> end = end_of_document(text, at, is_last);
      const std::size_t before = pieces.size();
      at = cut_document(tokenizer_, text.substr(0, end.value_or(text.size())), at, documents_ == Documents::files,
                        block_, pieces);
      goes_on_ = goes_on_ || pieces.size() > before;
      if (!end) return at;
      // A document that ends where it was cut has a piece without text, which has an end all the same.
      pieces.push_back({text.substr(at, *end - at), true});
      goes_on_ = false;
      at = *end;
      if (documents_ == Documents::files) return at;
    }
  }

 private:
  /// Where the document that is at `at` ends; nothing where that lies behind the text.
  std::optional<std::size_t> end_of_document(std::string_view text, std::size_t at, bool is_last) const {
    std::size_t end = std::string_view::npos;
    if (documents_ != Documents::files) end = text.find(documents_ == Documents::lines ? "\n" : "\n\n", at);
    if (end != std::string_view::npos) return end;
    if (!is_last) return std::nullopt;
    end = text.size();
    while (documents_ != Documents::files && end > at && text[end - 1] == '\n') --end;
    return end;
  }

  const Tokenizer& tokenizer_;
  Documents documents_;
  std::size_t block_;
  bool goes_on_ = false;  // the document of the last piece
};

/// The ids of each piece, by all threads.
std::vector<std::vector<std::int32_t>> encoded(const Tokenizer& tokenizer, const std::vector<Piece>& pieces) {
  std::vector<std::vector<std::int32_t>> ids(pieces.size());
  const auto count = static_cast<std::int64_t>(pieces.size());
  cpu::parallel_for(count, std::max<std::int64_t>(1, count / (8 * cpu::threads())),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t i = begin; i < end; ++i)
                        if (const std::string_view text = pieces[static_cast<std::size_t>(i)].text; !text.empty())
                          ids[static_cast<std::size_t>(i)] = tokenizer.encode(text);
                    });
  return ids;
}

void append_pieces(const Tokenizer& tokenizer, const std::vector<Piece>& pieces, TokenWriter& to) {
  const std::vector<std::vector<std::int32_t>> ids = encoded(tokenizer, pieces);
  const std::int32_t end_id = tokenizer.special().end;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    to.append(ids[i]);
    to.add_characters(unicode::count_characters(pieces[i].text));
    if (!pieces[i].ends) continue;
    if (end_id >= 0) to.append(std::span(&end_id, 1));
    to.end_sequence();
  }
}

}  // namespace

std::size_t safe_cut(const Tokenizer& tokenizer, std::string_view text, bool at_lines) {
  constexpr std::size_t seen = 256;  // bytes on each side that are compared
  int tries = 16;
  for (std::size_t at = text.size() < seen ? text.size() : text.size() - seen; at > 1 && tries > 0; --at) {
    const std::size_t place = at - 1;
    if (!is_blank(text[place], at_lines) || static_cast<unsigned char>(text[place - 1]) <= ' ') continue;
    --tries;
    std::size_t begin = place - std::min(place, seen), end = std::min(text.size(), place + seen);
    while (begin > 0 && !utf8::begins_character(text[begin])) --begin;
    while (end < text.size() && !utf8::begins_character(text[end])) ++end;
    std::vector<std::int32_t> parts = tokenizer.encode(text.substr(begin, place - begin));
    const std::vector<std::int32_t> behind = tokenizer.encode(text.substr(place, end - place));
    parts.insert(parts.end(), behind.begin(), behind.end());
    if (parts == tokenizer.encode(text.substr(begin, end - begin))) return place;
  }
  return 0;
}

TokensPointer tokenize(const Tokenizer& tokenizer, Corpus sequences, const std::string& source, Documents documents,
                       std::size_t block) {
  std::vector<Piece> pieces;
  Tokens::Meaning meaning{tokenizer.size(), 0, tokenizer.digest()};
  for (const std::string_view text : sequences) {
    const std::size_t last = cut_document(tokenizer, text, 0, documents == Documents::files, block, pieces);
    pieces.push_back({text.substr(last), true});
    meaning.characters += unicode::count_characters(text);
  }
  const std::vector<std::vector<std::int32_t>> parts = encoded(tokenizer, pieces);
  std::vector<std::int32_t> ids;
  std::vector<std::uint64_t> ends;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    ids.insert(ids.end(), parts[i].begin(), parts[i].end());
    if (!pieces[i].ends) continue;
    if (tokenizer.special().end >= 0) ids.push_back(tokenizer.special().end);
    ends.push_back(ids.size());
  }
  return std::make_shared<Tokens>(std::move(ids), std::move(ends), std::move(meaning), source);
}

void tokenize_file(const Tokenizer& tokenizer, const std::string& path, Documents documents, TokenWriter& to,
                   std::size_t block) {
  CorpusReader reader(path);
  Cutter cutter(tokenizer, documents, block);
  const std::size_t wanted = block * static_cast<std::size_t>(cpu::threads());
  std::string text;
  bool more = true, is_empty = true;
  while (more) {
    more = reader.read(text, wanted);
    is_empty = is_empty && text.empty();
    std::vector<Piece> pieces;
    const std::size_t done = cutter.cut(text, !more, pieces);
    append_pieces(tokenizer, pieces, to);
    text.erase(0, done);
  }
  HEARTH_CHECK(DataError, !is_empty, path, ": no text in it");
}

}  // namespace hearth::data
