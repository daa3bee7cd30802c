// SPDX-License-Identifier: Apache-2.0
// Patterns of file names, and the manifest of a packed set.
#include <algorithm>
#include <filesystem>

#include "core/cpu/parallel.h"
#include "core/error.h"
#include "core/io/checksum.h"
#include "data/formats/shards.h"
#include "data/source/file_opener.h"
#include "data/source/source_bytes.h"

namespace hearth::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_shards = 100'000;
// Those of paths on Linux.
constexpr std::size_t longest_pattern = 16'384, longest_shard_name = 4096;

/// "000..009": its bounds, and the digits to which numbers are filled up.
bool read_range(std::string_view text, std::int64_t& first, std::int64_t& last, std::size_t& digits) {
  const std::size_t dots = text.find("..");
  if (dots == text.npos) return false;
  const std::string_view a = text.substr(0, dots), b = text.substr(dots + 2);
  const auto is_number = [](std::string_view s) {
    return !s.empty() && s.size() <= 12 && std::ranges::all_of(s, [](char c) { return c >= '0' && c <= '9'; });
  };
  if (!is_number(a) || !is_number(b)) return false;
  first = std::stoll(std::string(a)), last = std::stoll(std::string(b));
  digits = a.size() > 1 && a[0] == '0' ? a.size() : 0;
  return true;
}

/// What a pair of braces stands for.
std::vector<std::string> choices_of(const std::string& inner, const std::string& pattern) {
  std::vector<std::string> choices;
  std::int64_t first = 0, last = 0;
  std::size_t digits = 0;
  if (read_range(inner, first, last, digits)) {
    HEARTH_CHECK(ConfigError, first <= last && last - first < static_cast<std::int64_t>(most_shards), "data: {", inner,
                 "} counts down, or more than ", most_shards, " files");
    for (std::int64_t i = first; i <= last; ++i) {
      std::string number = std::to_string(i);
      if (number.size() < digits) number.insert(0, digits - number.size(), '0');
      choices.push_back(std::move(number));
    }
    return choices;
  }
  HEARTH_CHECK(ConfigError, inner.find(',') != inner.npos, "data: {", inner, "} of the pattern \"", pattern,
               "\" is neither {first..last} nor {one,another}");
  for (std::size_t begin = 0; begin <= inner.size();) {
    const std::size_t end = std::min(inner.find(',', begin), inner.size());
    choices.push_back(inner.substr(begin, end - begin));
    begin = end + 1;
  }
  return choices;
}

/// All names that pairs of braces stand for, the last of which changes first.
std::vector<std::string> expand_braces(const std::string& pattern) {
  HEARTH_CHECK(ConfigError, pattern.size() <= longest_pattern, "data: a pattern of ", pattern.size(),
               " characters; at most ", longest_pattern, " are read");
  std::vector<std::string> names{""};
  for (std::size_t at = 0; at < pattern.size();) {
    const std::size_t open = std::min(pattern.find('{', at), pattern.size());
    std::vector<std::string> choices{""};
    const std::string front = pattern.substr(at, open - at);
    at = open;
    if (open < pattern.size()) {
      const std::size_t close = pattern.find('}', open);
      HEARTH_CHECK(ConfigError, close != pattern.npos, "data: the pattern \"", pattern, "\" lacks a closing brace");
      choices = choices_of(pattern.substr(open + 1, close - open - 1), pattern);
      at = close + 1;
    }
    HEARTH_CHECK(ConfigError, names.size() * choices.size() <= most_shards, "data: a pattern of more than ",
                 most_shards, " files");
    std::vector<std::string> longer;
    longer.reserve(names.size() * choices.size());
    for (const std::string& name : names)
      for (const std::string& choice : choices) {
        longer.push_back(name + front + choice);
        HEARTH_CHECK(ConfigError, longer.back().size() <= longest_shard_name, "data: the pattern \"",
                     pattern.substr(0, 80), "...\" gives names of more than ", longest_shard_name, " characters");
      }
    names = std::move(longer);
  }
  return names;
}

/// Whether a name is what a pattern with * stands for. Each star takes as little as it can: what a later one could do
/// with more, it can do as well.
bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0, star = pattern.npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != pattern.npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == pattern.npos;
}

}  // namespace

std::vector<std::string> expand_shards(const std::string& folder, const std::string& pattern) {
  std::vector<std::string> names;
  for (const std::string& expanded : expand_braces(pattern)) {
    const fs::path path = folder.empty() ? fs::path(expanded) : fs::path(folder) / expanded;
    const std::string last = path.filename().string();
    if (last.find('*') == last.npos) {
      names.push_back(path.string());
      continue;
    }
    const fs::path parent = path.has_parent_path() ? path.parent_path() : ".";
    const std::size_t before = names.size();
    for (const SourceEntry& entry : list_source(parent))
      if (matches(last, entry.name)) names.push_back((parent / entry.name).string());
    HEARTH_CHECK(FileError, names.size() > before, path.string(), ": no such file is there");
  }
  HEARTH_CHECK(ConfigError, names.size() <= most_shards, "data: the pattern \"", pattern, "\" stands for ",
               names.size(), " files; at most ", most_shards, " are read");
  return names;
}

Json read_shards_manifest(const std::string& folder) {
  const std::string path = name_in(folder, shards_manifest);
  try {
    Json manifest = read_manifest_json(path);
    HEARTH_CHECK(DataError, manifest.at("format").as_string() == shards_format, path, ": the format is \"",
                 manifest.at("format").as_string(), "\"; this version reads \"", shards_format, "\"");
    return manifest;
  } catch (const ConfigError& error) {
    throw DataError(error.what());
  }
}

std::string type_of_shards(const std::string& folder) {
  if (folder.empty() || !find_source(name_in(folder, shards_manifest))) return "";
  const Json manifest = read_shards_manifest(folder);
  const Json* const container = manifest.find("container");
  return container != nullptr && container->is_string() ? container->as_string() : "";
}

std::string sha256_of_file(const std::string& path) {
  const SourceFilePointer opened = open_source(path);
  const SourceFile& file = *opened;
  Sha256 digest;
  std::vector<std::byte> piece;
  for (std::uint64_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(std::min<std::uint64_t>(std::uint64_t{1} << 20, file.size() - at));
    file.read(at, piece);
    digest.update(piece);
  }
  return digest.hex();
}

std::vector<std::string> verify_shards(const std::string& folder) {
  struct Shard {
    std::string name, wanted, found;
  };
  std::vector<Shard> shards;
  try {
    const Json manifest = read_shards_manifest(folder);
    for (const char* split : {"train", "valid", "test"})
      if (const Json* const described = manifest.at("splits").find(split))
        for (const Json& file : described->at("files").items())
          shards.push_back({file.at("name").as_string(), file.at("sha256").as_string(), {}});
  } catch (const ConfigError& error) {
    throw DataError(error.what());
  }
  cpu::parallel_chunks(static_cast<std::int64_t>(shards.size()), [&](std::int64_t i) {
    Shard& shard = shards[static_cast<std::size_t>(i)];
    shard.found = sha256_of_file((fs::path(folder) / shard.name).string());
  });
  std::vector<std::string> faults;
  for (const Shard& shard : shards)
    if (shard.found != shard.wanted)
      faults.push_back(join_text((fs::path(folder) / shard.name).string(), ": its bytes have the SHA-256 ", shard.found,
                                 ", and ", shards_manifest, " has ", shard.wanted));
  return faults;
}

}  // namespace hearth::data
