// SPDX-License-Identifier: Apache-2.0
#include "data/text/tokens.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "core/io/checksum.h"
#include "data/source/checked_blocks.h"
#include "data/source/file_opener.h"
#include "data/source/source_bytes.h"
#include "data/text/unicode.h"

namespace hearth::data {
namespace {

constexpr std::size_t header_size = Tokens::header_bytes, digest_size = 64;
constexpr std::string_view magic = "HRTHTOK2", earlier_magic = "HRTHTOK1";
enum Place : std::size_t {
  at_width = 8,
  at_header_checksum = 12,
  at_tokens = 16,
  at_sequences = 24,
  at_characters = 32,
  at_vocabulary = 40,
  at_checksum = 48,
  at_digest = 56,
};

using Header = std::array<std::byte, header_size>;

template <class T>
void put(Header& header, std::size_t at, T value) {
  std::memcpy(header.data() + at, &value, sizeof value);
}
template <class T>
T take(const Header& header, std::size_t at) {
  T value;
  std::memcpy(&value, header.data() + at, sizeof value);
  return value;
}

std::uint32_t header_checksum(Header header) {
  put<std::uint32_t>(header, at_header_checksum, 0);
  return crc32c(header);
}

bool begins_with(const Header& header, std::string_view text) {
  return std::memcmp(header.data(), text.data(), text.size()) == 0;
}

std::uint64_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

/// The checksums of the blocks that end a file, which must fit the header's.
std::vector<std::uint32_t> checksums_at(const SourceFile& file, std::uint64_t offset, std::uint64_t payload,
                                        std::uint32_t expected) {
  std::vector<std::uint32_t> checksums(CheckedBlocks::count_of(payload));
  file.read(offset, std::as_writable_bytes(std::span(checksums)));
  HEARTH_CHECK(DataError, crc32c(std::as_bytes(std::span(checksums))) == expected, file.name(),
               ": the checksums at offset ", offset, " are damaged; use another copy");
  return checksums;
}

/// The same of a file that has one for all: its blocks are read here.
std::vector<std::uint32_t> checksums_of_earlier(const SourceFile& file, std::uint64_t payload, std::uint32_t expected) {
  std::vector<std::uint32_t> checksums;
  std::vector<std::byte> block;
  std::uint32_t whole = 0;
  for (std::uint64_t at = 0; at < payload; at += block.size()) {
    block.resize(std::min(CheckedBlocks::block_bytes, payload - at));
    file.read(header_size + at, block);
    checksums.push_back(crc32c(block));
    whole = crc32c(block, whole);
  }
  HEARTH_CHECK(DataError, whole == expected, file.name(), ": the ", payload, " bytes at offset ", header_size,
               " are damaged: they do not fit their checksum; use another copy");
  return checksums;
}

void require_no_zero(std::string_view text, const std::string& source) {
  const std::size_t zero = text.find('\0');
  HEARTH_CHECK(DataError, zero == std::string_view::npos, source, ":",
               1 + std::ranges::count(text.substr(0, zero), '\n'),
               ": a zero byte, which no text has; write it as UTF-8");
}

}  // namespace

Tokens::~Tokens() = default;

Tokens::Tokens(std::vector<std::int32_t> ids, std::vector<std::uint64_t> ends, Meaning meaning, std::string source)
    : size_(static_cast<std::int64_t>(ids.size())),
      meaning_(std::move(meaning)),
      source_(std::move(source)),
      ids_(std::move(ids)),
      ends_(std::move(ends)) {
  check_ends();
}

void Tokens::check_ends() const {
  const bool ordered = std::is_sorted(ends_.begin(), ends_.end());
  const std::uint64_t last = ends_.empty() ? 0 : ends_.back();
  HEARTH_CHECK(DataError, ordered && last == static_cast<std::uint64_t>(size_), source_,
               ": the ends of the sequences do not fit ", size_, " ids");
}

std::shared_ptr<const Tokens> Tokens::open(const std::string& path) {
  std::shared_ptr<Tokens> tokens(new Tokens);
  tokens->open_file(path);
  return tokens;
}

void Tokens::open_file(const std::string& path) {
  source_ = path;
  SourceFilePointer opened = open_source(path);
  const SourceFile& file = *opened;
  Header header{};
  file.read(0, std::span(header).first(std::min<std::uint64_t>(header_size, file.size())));
  const bool is_earlier = begins_with(header, earlier_magic);
  HEARTH_CHECK(DataError, file.size() >= header_size && (is_earlier || begins_with(header, magic)), path,
               ": not a token file; `hearth data pack` writes them");
  HEARTH_CHECK(DataError, take<std::uint32_t>(header, at_header_checksum) == header_checksum(header), path,
               ": the header is damaged (its checksum is wrong)");
  const auto ids = take<std::uint64_t>(header, at_tokens), count = take<std::uint64_t>(header, at_sequences);
  const auto vocabulary = take<std::uint64_t>(header, at_vocabulary);
  const auto width_found = take<std::uint32_t>(header, at_width);
  constexpr std::uint64_t most = std::uint64_t{1} << 48;
  const auto characters = take<std::uint64_t>(header, at_characters);
  HEARTH_CHECK(DataError, ids < most && count < most && characters < most && vocabulary <= INT32_MAX, path, ": ", ids,
               " ids of ", characters, " characters in ", count, " sequences of a vocabulary of ", vocabulary,
               " cannot be right");
  meaning_.vocabulary = static_cast<std::int64_t>(vocabulary);
  HEARTH_CHECK(DataError, static_cast<int>(width_found) == width(), path, ": ids of ", width_found,
               " bytes for a vocabulary of ", vocabulary);
  const std::uint64_t id_bytes = padded(ids * width_found), payload = id_bytes + count * 8;
  const std::uint64_t wanted =
      header_size + payload + (is_earlier ? 0 : CheckedBlocks::count_of(payload) * sizeof(std::uint32_t));
  HEARTH_CHECK(DataError, file.size() == wanted, path, ": ", file.size(), " bytes where the header tells of ", wanted,
               "; the file is cut short or damaged");
  size_ = static_cast<std::int64_t>(ids);
  meaning_.characters = static_cast<std::int64_t>(characters);
  meaning_.digest.assign(reinterpret_cast<const char*>(header.data()) + at_digest, digest_size);
  const auto checksum = take<std::uint32_t>(header, at_checksum);
  auto checksums = is_earlier ? checksums_of_earlier(file, payload, checksum)
                              : checksums_at(file, header_size + payload, payload, checksum);
  blocks_ = std::make_unique<CheckedBlocks>(std::move(opened), header_size, payload, std::move(checksums));
  require_readable_size(path, count * sizeof(std::uint64_t), {UINT64_MAX, "ends of sequences"});
  ends_.resize(count);
  blocks_->read(id_bytes, std::as_writable_bytes(std::span(ends_)));
  check_ends();
}

template <class F>
void Tokens::for_each_piece(F&& f) const {
  constexpr std::int64_t piece = 1 << 16;
  std::vector<std::int32_t> ids(piece);
  for (std::int64_t first = 0; first < size_; first += piece) {
    const std::int64_t count = std::min(piece, size_ - first);
    copy(first, count, ids.data());
    f(first, std::span(ids).first(static_cast<std::size_t>(count)));
  }
}

std::vector<std::byte> Tokens::header_of(const Meaning& meaning, std::uint64_t ids, std::uint64_t sequences,
                                         std::uint32_t checksum) {
  Header header{};
  std::memcpy(header.data(), magic.data(), magic.size());
  put(header, at_width, static_cast<std::uint32_t>(width_for(meaning.vocabulary)));
  put(header, at_tokens, ids);
  put(header, at_sequences, sequences);
  put(header, at_characters, meaning.characters);
  put(header, at_vocabulary, static_cast<std::uint64_t>(meaning.vocabulary));
  put(header, at_checksum, checksum);
  std::memcpy(header.data() + at_digest, meaning.digest.data(), digest_size);
  put(header, at_header_checksum, header_checksum(header));
  return {header.begin(), header.end()};
}

void Tokens::verify() const {
  if (blocks_) blocks_->verify();
  for_each_piece([](std::int64_t, std::span<const std::int32_t>) {});
}

void Tokens::copy(std::int64_t first, std::int64_t count, std::int32_t* target) const {
  HEARTH_CHECK(IndexError, first >= 0 && count >= 0 && first <= size_ && count <= size_ - first, source_, ": ids ",
               first, " to ", first + count, " of ", size_);
  const auto all = static_cast<std::size_t>(count);
  if (!blocks_) {
    std::copy_n(ids_.data() + first, count, target);
  } else if (width() == 2) {
    std::vector<std::uint16_t> narrow(all);
    blocks_->read(static_cast<std::uint64_t>(first) * 2, std::as_writable_bytes(std::span(narrow)));
    std::copy(narrow.begin(), narrow.end(), target);
  } else {
    blocks_->read(static_cast<std::uint64_t>(first) * 4, std::as_writable_bytes(std::span(target, all)));
  }
  for (std::int64_t i = 0; i < count; ++i)
    HEARTH_CHECK(DataError, target[i] >= 0 && target[i] < meaning_.vocabulary, source_, ": id ", target[i],
                 " at place ", first + i, " is outside the vocabulary of ", meaning_.vocabulary);
}

std::string read_corpus(const std::string& path) {
  // What is no text at all is told before gigabytes of it are read.
  const std::vector<std::uint8_t> front = read_front(path, 4096);
  require_no_zero({reinterpret_cast<const char*>(front.data()), front.size()}, path);
  const std::vector<std::uint8_t> bytes = read_maybe_gzip(path, corpus_limit);
  return checked_corpus({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

std::string checked_corpus(std::string text, const std::string& source) {
  unicode::require_utf8(text, source);
  require_no_zero(text, source);
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  if (text.find('\r') != std::string::npos) {
    std::string plain;
    plain.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i)
      if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') plain += text[i];
    text = std::move(plain);
  }
  HEARTH_CHECK(DataError, !text.empty(), source, ": no text in it");
  return text;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace hearth::data
