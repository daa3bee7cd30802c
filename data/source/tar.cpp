// SPDX-License-Identifier: Apache-2.0
// Reading and writing headers of 512 bytes.
#include "data/source/tar.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <unordered_map>

#include "core/error.h"
#include "core/io/printable.h"

namespace hearth::data {
namespace {

constexpr std::size_t block = 512;
constexpr std::uint64_t longest_name = 1 << 16, longest_records = 1 << 20;
// Of zeros behind the last member: writers fill their last record, of 10 KiB by default and of 1 MiB at most in use.
constexpr std::uint64_t longest_end = (1 << 20) + 2 * block;

using Header = std::span<const std::byte>;

std::string_view text_of(Header header, std::size_t at, std::size_t count) {
  const std::string_view field(reinterpret_cast<const char*>(header.data()) + at, count);
  return field.substr(0, field.find('\0'));
}

/// A number in octal digits, or in the binary form that GNU tar gives large ones; nothing if it is neither.
std::optional<std::uint64_t> number_of(Header header, std::size_t at, std::size_t count) {
  const auto byte = [&](std::size_t i) { return std::to_integer<std::uint8_t>(header[at + i]); };
  std::uint64_t value = 0;
  if (byte(0) & 0x80) {
    for (std::size_t i = 0; i < count; ++i) {
      if (value >> 55) return std::nullopt;
      value = value << 8 | (i == 0 ? byte(i) & 0x7fu : byte(i));
    }
    return value;
  }
  std::size_t i = 0;
  while (i < count && byte(i) == ' ') ++i;
  for (; i < count && byte(i) >= '0' && byte(i) <= '7'; ++i) value = value << 3 | (byte(i) - '0');
  return i == count || byte(i) == ' ' || byte(i) == 0 ? std::optional(value) : std::nullopt;
}

/// Of the header with spaces in the place of its checksum: of unsigned bytes, or of signed ones as some old programs
/// have it.
bool fits_checksum(Header header) {
  std::int64_t plain = 0, as_signed = 0;
  for (std::size_t i = 0; i < block; ++i) {
    const auto value = i >= 148 && i < 156 ? std::uint8_t{' '} : std::to_integer<std::uint8_t>(header[i]);
    plain += value;
    as_signed += static_cast<std::int8_t>(value);
  }
  const std::optional<std::uint64_t> wanted = number_of(header, 148, 8);
  return wanted && (static_cast<std::int64_t>(*wanted) == plain || static_cast<std::int64_t>(*wanted) == as_signed);
}

bool is_zero(Header header) {
  return std::all_of(header.begin(), header.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

/// What an extended header says of the member that follows it.
struct Extension {
  std::optional<std::string> name;
  std::optional<std::string> target;  ///< of a link
  std::optional<std::uint64_t> bytes;
};

/// A member's name as links spell it: "./a//b" is "a/b".
std::string normal(const std::string& name) { return std::filesystem::path(name).lexically_normal().string(); }

class Scan {
 public:
  Scan(const SourceFile& file, FileWindow& window) : file_(file), window_(window) {}

  void run(const std::function<void(const TarMember&)>& visit) {
    while (true) {
      const std::uint64_t left = file_.size() - at_;
      HEARTH_CHECK(DataError, left >= block, place(), left == 0 ? "the archive ends" : "a header is cut off",
                   " here without the blocks of zeros that mark its end: the file was cut off");
      // A copy: what lies behind the header is read through the same window.
      std::array<std::byte, block> header;
      std::ranges::copy(window_.at(at_, block), header.begin());
      if (is_zero(header)) return require_end();
      require_header(header);
      const std::uint64_t start = at_;
      const char type = static_cast<char>(header[156]);
      const std::uint64_t bytes = size_of(header, type);
      HEARTH_CHECK(DataError, bytes <= file_.size() - start - block, place(), named(header), " of ", bytes,
                   " bytes goes beyond the end of the file at ", file_.size(), ": the file was cut off or damaged");
      at_ = start + block;
      if (is_extension(type)) {
        extend(type, start, bytes);
      } else {
        const std::string name = extension_.name ? *extension_.name : name_of(header);
        if (const std::optional<Content> content = content_of(header, type, name, start, bytes)) {
          contents_.insert_or_assign(normal(name), *content);
          visit({name, start, content->offset, content->bytes});
        }
        extension_ = {};
      }
      at_ += std::min((bytes + block - 1) / block * block, file_.size() - at_);
    }
  }

 private:
  struct Content {
    std::uint64_t offset, bytes;
  };

  /// Where a member's bytes are: its own, or those of the member that a link names. None of directories and labels.
  std::optional<Content> content_of(Header header, char type, const std::string& name, std::uint64_t start,
                                    std::uint64_t bytes) const {
    if (type == '0' || type == '\0' || type == '7') return Content{at_, bytes};
    // Directories, GNU tar's with their list too, and the volume's label.
    if (type == '5' || type == 'D' || type == 'V') return std::nullopt;
    const auto refuse = [&](const std::string& what) {
      throw DataError(join_text(file_.name(), ": at offset ", start, ": member \"", printable(name), "\" ", what));
    };
    if (type != '1' && type != '2')
      refuse(type == '3' || type == '4' || type == '6'
                 ? "is a device or a pipe, not a file: pack the archive without it"
                 : join_text("has the type '", printable(std::string(1, type)),
                             "', which is not read: pack the archive in the format of POSIX (tar --format=pax)"));
    const std::string target = extension_.target ? *extension_.target : std::string(text_of(header, 157, 100));
    // A hard link names a member; a symbolic link a path from its own folder.
    const std::string path =
        type == '1' ? normal(target) : (std::filesystem::path(name).parent_path() / target).lexically_normal().string();
    const auto member = contents_.find(path);
    if (member == contents_.end())
      refuse(join_text("is a ", type == '1' ? "hard" : "symbolic", " link to \"", printable(target),
                       "\", which is no file before it in the archive: pack the archive with the files that links name "
                       "(tar --dereference --hard-dereference)"));
    return member->second;
  }

  /// Zeros alone follow the end, and not many.
  void require_end() {
    const std::uint64_t end = at_, left = file_.size() - end;
    HEARTH_CHECK(
        DataError, left <= longest_end, file_.name(), ": the archive ends at offset ", end, ", ", left,
        " bytes before the end of the file: a download that was not finished, or archives that were joined; fetch "
        "or pack it again");
    while (at_ < file_.size()) {
      const std::size_t count = std::min<std::uint64_t>(std::uint64_t{1} << 16, file_.size() - at_);
      const std::span<const std::byte> bytes = window_.at(at_, count);
      const auto other = std::ranges::find_if(bytes, [](std::byte byte) { return byte != std::byte{0}; });
      HEARTH_CHECK(
          DataError, other == bytes.end(), file_.name(), ": the archive ends at offset ", end,
          ", and something else than zeros follows at offset ", at_ + static_cast<std::uint64_t>(other - bytes.begin()),
          ": archives that were joined, or a hole in the file; list joined archives as shards of their own, or "
          "fetch the file again");
      at_ += count;
    }
  }

  std::string place() const { return join_text(file_.name(), ": at offset ", at_, ": "); }

  static std::string name_of(Header header) {
    const std::string_view name = text_of(header, 0, 100), prefix = text_of(header, 345, 155);
    // Old GNU headers have times where ustar has a prefix.
    const bool is_ustar = std::memcmp(header.data() + 257, "ustar\0", 6) == 0;
    return is_ustar && !prefix.empty() ? join_text(prefix, '/', name) : std::string(name);
  }
  std::string named(Header header) const {
    return join_text("member \"", printable(extension_.name ? *extension_.name : name_of(header)), "\"");
  }

  void require_header(Header header) const {
    if (fits_checksum(header)) return;
    const auto byte = [&](std::size_t i) { return std::to_integer<int>(header[i]); };
    const bool gzip = at_ == 0 && byte(0) == 0x1f && byte(1) == 0x8b,
               zstd = at_ == 0 && byte(0) == 0x28 && byte(1) == 0xb5,
               xz = at_ == 0 && byte(0) == 0xfd && byte(1) == '7', bzip = at_ == 0 && byte(0) == 'B' && byte(1) == 'Z';
    HEARTH_CHECK(DataError, !gzip && !zstd && !xz && !bzip, file_.name(),
                 ": a compressed archive: its members cannot be found without reading all of it; unpack it to a plain "
                 ".tar, which is hardly larger, since images are compressed already");
    throw DataError(join_text(place(), named(header),
                              ": the header does not fit its checksum: the file is damaged, or no tar archive"));
  }

  /// A header for the next member: of GNU tar (L, K), of POSIX and of Solaris (x, X), or for all that follow (g).
  static bool is_extension(char type) {
    return type == 'L' || type == 'K' || type == 'x' || type == 'X' || type == 'g';
  }

  std::uint64_t size_of(Header header, char type) const {
    HEARTH_CHECK(DataError, type != 'S', place(), named(header),
                 " is sparse, in GNU tar's way, which is not read; pack ", "the archive without --sparse");
    const bool extends = is_extension(type);
    if (!extends && extension_.bytes) return *extension_.bytes;
    // Links and devices have no bytes, whatever their header says.
    if (type >= '1' && type <= '6') return 0;
    const std::optional<std::uint64_t> bytes = number_of(header, 124, 12);
    HEARTH_CHECK(DataError, bytes.has_value(), place(), named(header), " has a size that is no number");
    return *bytes;
  }

  void extend(char type, std::uint64_t start, std::uint64_t bytes) {
    const std::uint64_t most = type == 'L' || type == 'K' ? longest_name : longest_records;
    HEARTH_CHECK(DataError, bytes <= most, file_.name(), ": at offset ", start, ": an extended header of ", bytes,
                 " bytes; at most ", most, " are read");
    const auto content = window_.at(at_, bytes);
    const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
    if (type == 'L')
      extension_.name = std::string(text.substr(0, text.find('\0')));
    else if (type == 'K')
      extension_.target = std::string(text.substr(0, text.find('\0')));
    else
      read_records(text, start, type == 'g');
  }

  /// "LENGTH KEY=VALUE\n" again and again; `for_all` members that follow, not for the next one.
  void read_records(std::string_view text, std::uint64_t start, bool for_all) {
    const auto require = [&](bool sound) {
      HEARTH_CHECK(DataError, sound, file_.name(), ": at offset ", start,
                   ": an extended header (pax) that cannot be read: the file is damaged");
    };
    const auto digits = [&](std::string_view field) {
      std::uint64_t value = 0;
      require(!field.empty() && field.size() < 19);
      for (const char c : field)
        require(c >= '0' && c <= '9'), value = 10 * value + static_cast<std::uint64_t>(c - '0');
      return value;
    };
    while (!text.empty()) {
      const std::size_t space = text.find(' ');
      require(space != text.npos);
      const std::uint64_t length = digits(text.substr(0, space));
      require(length > space + 2 && length <= text.size() && text[length - 1] == '\n');
      const std::string_view record = text.substr(space + 1, length - space - 2);
      const std::size_t equals = record.find('=');
      require(equals != record.npos);
      const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
      HEARTH_CHECK(DataError, !for_all || (key != "path" && key != "linkpath" && key != "size"), file_.name(),
                   ": at offset ", start, ": an extended header gives all members that follow one ", key,
                   ", which is not read: pack the archive anew");
      if (key == "path") extension_.name = std::string(value);
      if (key == "linkpath") extension_.target = std::string(value);
      if (key == "size") extension_.bytes = digits(value);
      HEARTH_CHECK(DataError, !key.starts_with("GNU.sparse."), file_.name(), ": at offset ", start,
                   ": a sparse member, which is not read; pack the archive without --sparse");
      text.remove_prefix(length);
    }
  }

  const SourceFile& file_;
  FileWindow& window_;
  std::uint64_t at_ = 0;
  Extension extension_;
  std::unordered_map<std::string, Content> contents_;  ///< by name: what links may name
};

}  // namespace

void scan_tar(const SourceFile& file, FileWindow& window, const std::function<void(const TarMember&)>& visit) {
  Scan(file, window).run(visit);
}

void TarWriter::add(std::string_view name, std::span<const std::byte> bytes) {
  const std::string path = file_.path().string();
  HEARTH_CHECK(UsageError, !name.empty() && name.size() <= 100, path, ": a member's name has 1 to 100 bytes; \"", name,
               "\" has ", name.size());
  HEARTH_CHECK(UsageError, bytes.size() < (std::uint64_t{1} << 33), path, ": ", name, ": a member has less than 8 GiB");
  std::array<char, block> header{};
  const auto put = [&](std::size_t at, std::string_view text) {
    std::ranges::copy(text, header.begin() + static_cast<std::ptrdiff_t>(at));
  };
  const auto octal = [&](std::size_t at, int digits, std::uint64_t value) {
    for (int i = digits; i-- > 0; value >>= 3)
      header[at + static_cast<std::size_t>(i)] = static_cast<char>('0' + (value & 7));
  };
  put(0, name);
  octal(100, 7, 0644), octal(108, 7, 0), octal(116, 7, 0);  // mode, owner, group
  octal(124, 11, bytes.size()), octal(136, 11, 0);          // size, time
  put(148, "        ");
  header[156] = '0';
  put(257, "ustar"), put(263, "00");
  std::uint64_t sum = 0;
  for (const char c : header) sum += static_cast<std::uint8_t>(c);
  octal(148, 6, sum), header[154] = '\0';
  file_.append(std::as_bytes(std::span(header)));
  file_.append(bytes);
  file_.append(std::vector<std::byte>((block - bytes.size() % block) % block));
}

void TarWriter::finish() {
  file_.append(std::vector<std::byte>(2 * block));
  file_.finish();
}

}  // namespace hearth::data
