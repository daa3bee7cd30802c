// SPDX-License-Identifier: Apache-2.0
#include "data/source/source.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/io/file.h"

namespace hearth::data {
namespace {

namespace fs = std::filesystem;
using Kind = SourceEntry::Kind;

constexpr std::string_view mark = "://";

class LocalFile final : public SourceFile {
 public:
  explicit LocalFile(const std::string& name) : name_(name), file_(name) {}
  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return file_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> target) const override { file_.read(offset, target); }
  void read_ahead(std::uint64_t offset, std::uint64_t bytes) const override { file_.read_ahead(offset, bytes); }
  std::string version() const override {
    struct stat status {};
    if (::stat(name_.c_str(), &status) != 0) return {};
    return join_text(status.st_ino, ' ', status.st_mtim.tv_sec, ' ', status.st_mtim.tv_nsec);
  }

 private:
  std::string name_;
  FileReader file_;
};

/// Links are followed.
class LocalFiles final : public Source {
 public:
  SourceFilePointer open(const std::string& name) const override { return std::make_unique<const LocalFile>(name); }
  std::vector<SourceEntry> list(const std::string& folder) const override {
    std::vector<SourceEntry> entries;
    for (const std::string& name : list_directory(folder)) entries.push_back(entry(fs::path(folder) / name, name));
    return entries;
  }
  std::optional<SourceEntry> find(const std::string& name) const override {
    std::error_code absent;
    if (!fs::exists(name, absent)) return std::nullopt;
    return entry(name, fs::path(name).filename().string());
  }

 private:
  static SourceEntry entry(const fs::path& path, const std::string& name) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return {name, Kind::other};
    if (S_ISDIR(status.st_mode)) return {name, Kind::folder};
    return {name, S_ISREG(status.st_mode) ? Kind::file : Kind::other, static_cast<std::uint64_t>(status.st_size)};
  }
};

const Source& local() {
  static const LocalFiles files;
  return files;
}

bool is_scheme(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
  });
}

}  // namespace

bool is_path(std::string_view name) {
  const std::size_t at = name.find(mark);
  return at == std::string_view::npos || !is_scheme(name.substr(0, at));
}

std::string name_in(const std::string& folder, const std::string& name) {
  return folder.ends_with('/') ? folder + name : folder + "/" + name;
}

std::optional<SourceEntry> Source::find(const std::string& name) const {
  const std::string folder = name.substr(0, name.find_last_not_of('/') + 1);
  const std::size_t slash = folder.rfind('/'), front = folder.find(mark);
  if (slash == std::string::npos || front == std::string::npos || slash < front + mark.size())
    return SourceEntry{{}, Kind::folder};  // the root
  try {
    for (SourceEntry& entry : list(folder.substr(0, slash)))
      if (entry.name == folder.substr(slash + 1)) return std::move(entry);
  } catch (const FileError&) {
    // There is no such folder.
  }
  return std::nullopt;
}

void Sources::add(const std::string& scheme, std::shared_ptr<const Source> source) {
  HEARTH_CHECK(UsageError, source != nullptr, "sources: \"", scheme, "\": there is none; give an object");
  HEARTH_CHECK(UsageError, is_scheme(scheme), "sources: \"", scheme,
               "\" is no scheme; use small letters, digits, '+', '-' and '.', without \"://\"");
  const std::lock_guard lock(mutex_);
  HEARTH_CHECK(UsageError, added_.emplace(scheme, std::move(source)).second, "sources: the scheme \"", scheme,
               "\" is taken; choose another");
}

const Source& Sources::of(const std::string& name) const {
  if (is_path(name)) return local();
  const std::string scheme = name.substr(0, name.find(mark));
  const std::lock_guard lock(mutex_);
  const auto found = added_.find(scheme);
  if (found != added_.end()) return *found->second;
  std::string known;
  for (const auto& [one, source] : added_) known += (known.empty() ? "" : ", ") + one;
  throw FileError(join_text(name, ": no source reads \"", scheme, mark, "\"; ",
                            known.empty() ? "the program has added none (data::sources().add())" : "known are " + known,
                            "; a path is read without one"));
}

Sources& sources() {
  static Sources all;
  return all;
}

std::vector<SourceEntry> list_source(const std::string& folder) {
  std::vector<SourceEntry> entries = sources().of(folder).list(folder);
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return entries;
}

std::optional<SourceEntry> find_source(const std::string& name) { return sources().of(name).find(name); }

}  // namespace hearth::data
