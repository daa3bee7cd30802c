// SPDX-License-Identifier: Apache-2.0
// Checkpoint sets by renames and syncs. Files are vouched for by CRC-32C, which costs little on every processor;
// SHA-256 falls below 500 MB/s where the processor has no instructions for it.
#include "train/checkpoint/checkpoint_set.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "core/io/checksum.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"

namespace hearth {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t manifest_format = 1;
constexpr const char* manifest_file = "manifest.json";
constexpr std::string_view set_prefix = "step-";
constexpr std::string_view temporary_prefix = ".tmp-step-";
// Of a file that names a set.
constexpr std::uintmax_t longest_pointer = 64;

std::string checksum_of(const fs::path& path) {
  const FileReader file(path);
  std::vector<std::byte> block(std::size_t{1} << 20);
  std::uint32_t checksum = 0;
  for (std::uint64_t at = 0; at < file.size(); at += block.size()) {
    const auto piece = std::span(block).first(std::min<std::uint64_t>(block.size(), file.size() - at));
    file.read(at, piece);
    checksum = crc32c(piece, checksum);
  }
  return hex_of(checksum);
}

/// Removes a set so that a process killed meanwhile leaves no part of it under its name; what of it cannot be removed
/// now, as on a share where another process reads it, goes with remove_temporaries().
void remove_set(const fs::path& folder, const std::string& name) {
  const fs::path doomed = folder / (".tmp-" + name);
  remove_tree(doomed);
  std::error_code error;
  fs::rename(folder / name, doomed, error);
  HEARTH_CHECK(FileError, !error, (folder / name).string(), ": cannot be removed: ", reason_of(error));
  try {
    remove_tree(doomed);
  } catch (const FileError&) {
  }
}

/// The step in a set's name.
std::optional<std::int64_t> step_in(const std::string& name) {
  if (!name.starts_with(set_prefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + set_prefix.size(), end, step);
  if (read.ec != std::errc{} || read.ptr != end || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

/// The numbers of the sets in a folder, newest first.
std::vector<std::int64_t> steps_in(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : list_directory(folder)) {
    if (const auto step = step_in(name)) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

/// A set that is no worse than others, but not for this process.
struct Unreadable : FileError {
  using FileError::FileError;
};

void require_openable(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor >= 0) {
    ::close(descriptor);
    return;
  }
  const int found = errno;
  for (const int reason : {EACCES, EPERM, EMFILE, ENFILE, ENOMEM})
    HEARTH_CHECK(Unreadable, found != reason, path.string(),
                 ": cannot be opened, though it may be whole: ", reason_of({found, std::system_category()}));
}

struct ListedFile {
  fs::path path;
  std::string checksum;
};

/// The manifest without its own checksum, which is compared.
Json read_manifest_body(const fs::path& path) {
  Json body = Json::object();
  std::string stated;
  const Json manifest = parse_json(read_text(path, small_file), path.string());
  HEARTH_CHECK(FileError, manifest.is_object(), path.string(), ": is damaged: it is no object");
  for (const JsonMember& member : manifest.members()) {
    if (member.key == "crc32c") {
      stated = member.value.as_string();
    } else {
      body.set(member.key, member.value);
    }
  }
  HEARTH_CHECK(FileError, hex_of(crc32c(bytes_of(to_text(body)))) == stated, path.string(),
               ": is damaged: it does not fit its checksum");
  return body;
}

struct Manifest {
  std::int64_t step = 0;
  std::vector<ListedFile> files;
};

/// The manifest of a set after a look at the step and all sizes.
Manifest check_sizes(const fs::path& set) {
  const fs::path path = set / manifest_file;
  Manifest result;
  require_openable(path);
  try {
    const Json body = read_manifest_body(path);
    HEARTH_CHECK(Unreadable, body.at("format").as_integer() == manifest_format, path.string(), ": has format ",
                 to_text(body.at("format")), ", this build reads ", manifest_format, "; use the version that wrote it");
    result.step = body.at("step").as_integer();
    HEARTH_CHECK(FileError, step_in(set.filename().string()).value_or(result.step) == result.step, path.string(),
                 ": belongs to step ", result.step, "; the directory was renamed");
    for (const Json& entry : body.at("files").items()) {
      const std::string& name = entry.at("name").as_string();
      HEARTH_CHECK(FileError, fs::path(name).filename() == name, path.string(), ": lists '", name,
                   "', which is no plain file name");
      const std::uint64_t bytes = size_of_file(set / name);
      HEARTH_CHECK(FileError, entry.at("bytes") == Json(bytes), (set / name).string(), ": has ", bytes,
                   " bytes, the manifest says ", to_text(entry.at("bytes")));
      require_openable(set / name);
      result.files.push_back({set / name, entry.at("crc32c").as_string()});
    }
  } catch (const ConfigError& error) {
    throw FileError(join_text(path.string(), ": is damaged: ", error.what()));
  }
  return result;
}

/// Whether a failure to make a link tells that the file system has none: exFAT, SMB, some of FUSE.
bool has_no_links(const std::error_code& error) {
  // By number: the library tells them in another category than the system's.
  constexpr int codes[] = {EPERM, ENOSYS, EOPNOTSUPP, EINVAL, EACCES, EIO};
  return std::ranges::find(codes, error.value()) != std::end(codes);
}

/// Whether a path is a folder, and no link to one.
bool is_folder(const fs::path& path) {
  std::error_code absent;
  return fs::is_directory(fs::symlink_status(path, absent));
}

std::string text_of_manifest(const fs::path& set) { return read_text(set / manifest_file, small_file); }

bool is_complete(const fs::path& set) {
  try {
    check_sizes(set);
    return true;
  } catch (const FileError&) {
    return false;
  }
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  return std::string(set_prefix) + std::string(digits.size() < 8 ? 8 - digits.size() : 0, '0') + digits;
}

CheckpointWriter::CheckpointWriter(const fs::path& folder, std::int64_t step)
    : folder_(folder), name_(checkpoint_name(step)), temporary_(folder / (".tmp-" + name_)), step_(step) {
  HEARTH_CHECK(UsageError, step >= 0, "checkpoint: step ", step, " is negative");
  make_directories(folder_);
  (void)remove_temporaries(folder_);
  // That of this set is to be empty.
  remove_tree(temporary_);
  make_directories(temporary_);
}

CheckpointWriter::~CheckpointWriter() {
  if (committed_) return;
  try {
    remove_tree(temporary_);
  } catch (const std::exception&) {
    // What stays behind goes with the next set.
  }
}

void CheckpointWriter::note(const std::string& key, Json value) { notes_.set(key, std::move(value)); }

std::string CheckpointWriter::commit() {
  HEARTH_CHECK(UsageError, !committed_, "checkpoint: ", name_, " was committed already");
  Json files = Json::array();
  for (const std::string& name : list_directory(temporary_)) {
    const fs::path path = temporary_ / name;
    sync_file(path);
    files.push_back(Json::object().set("name", name).set("bytes", size_of_file(path)).set("crc32c", checksum_of(path)));
  }
  Json manifest = Json::object();
  manifest.set("format", manifest_format).set("step", step_).set("files", files);
  if (notes_.size() > 0) manifest.set("notes", notes_);
  // The manifest vouches for itself as well.
  manifest.set("crc32c", hex_of(crc32c(bytes_of(to_text(manifest)))));
  write_file_synced(temporary_ / manifest_file, to_text(manifest, 2) + "\n");
  put_in_place();
  return name_;
}

void CheckpointWriter::put_in_place() {
  const fs::path target = folder_ / name_, old = folder_ / (".tmp-" + name_ + "-old");
  std::error_code error;
  fs::path replaced;
  if (!file_exists(target)) {
    fs::rename(temporary_, target, error);
    HEARTH_CHECK(FileError, !error, target.string(), ": cannot be put in place: ", reason_of(error));
  } else if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    // A directory cannot be renamed over another; exchanging them leaves no moment without a set of this name.
    replaced = temporary_;
  } else {
    HEARTH_CHECK(FileError, errno == EINVAL || errno == ENOSYS, target.string(),
                 ": cannot be replaced: ", reason_of({errno, std::system_category()}));
    // This file system cannot exchange; the sets before this one still load if the process is killed in between.
    fs::rename(target, old, error);
    HEARTH_CHECK(FileError, !error, target.string(), ": cannot be replaced: ", reason_of(error));
    fs::rename(temporary_, target, error);
    if (std::error_code back; error) fs::rename(old, target, back);
    HEARTH_CHECK(FileError, !error, target.string(), ": cannot be replaced: ", reason_of(error));
    replaced = old;
  }
  committed_ = true;
  // The set that was replaced goes when the new one is there for good.
  sync_directory(folder_);
  try {
    if (!replaced.empty()) remove_tree(replaced);
  } catch (const FileError&) {
    // What stays behind goes with the next set.
  }
}

std::vector<std::string> remove_temporaries(const fs::path& folder) {
  std::vector<std::string> left;
  for (const std::string& name : list_directory(folder)) {
    if (!name.starts_with(temporary_prefix)) continue;
    try {
      remove_tree(folder / name);
    } catch (const FileError&) {
      left.push_back(name);
    }
  }
  return left;
}

Json notes_of_checkpoint(const fs::path& set) {
  const Json body = read_manifest_body(set / manifest_file);
  const Json* const notes = body.find("notes");
  HEARTH_CHECK(FileError, notes == nullptr || notes->is_object(), (set / manifest_file).string(),
               ": /notes is no object");
  return notes != nullptr ? *notes : Json::object();
}

std::int64_t verify_checkpoint(const fs::path& set, const RequiredFiles& required) {
  const Manifest manifest = check_sizes(set);
  for (const std::string& name : required) {
    const bool listed = std::any_of(manifest.files.begin(), manifest.files.end(),
                                    [&](const ListedFile& file) { return file.path.filename() == name; });
    HEARTH_CHECK(FileError, listed, (set / manifest_file).string(), ": does not list ", name,
                 ", which every checkpoint has");
  }
  for (const ListedFile& file : manifest.files) {
    if (checksum_of(file.path) == file.checksum) continue;
    // A tensor file can say more closely where it is damaged.
    if (file.path.extension() == ".safetensors") SafetensorsFile(file.path).verify();
    throw FileError(join_text(file.path.string(), ": is damaged: it does not fit its checksum"));
  }
  return manifest.step;
}

CheckpointSearch find_newest_complete(const fs::path& folder, const RequiredFiles& required) {
  CheckpointSearch result;
  for (const std::int64_t step : steps_in(folder)) {
    const std::string name = checkpoint_name(step);
    try {
      result.step = verify_checkpoint(folder / name, required);
      result.newest = name;
      return result;
    } catch (const Unreadable&) {
      throw;
    } catch (const FileError& error) {
      result.damaged.push_back({name, error.what()});
    }
  }
  return result;
}

void point_to(const fs::path& folder, const std::string& link, const std::string& set) {
  HEARTH_CHECK(FileError, file_exists(folder / set), (folder / set).string(), ": is not there, so '", link,
               "' cannot lead to it");
  HEARTH_CHECK(FileError, !is_folder(folder / link), (folder / link).string(),
               ": is a folder, and no copy of a checkpoint beside it; move it away, or remove it");
  const fs::path temporary = folder / (".tmp-link-" + link);
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_symlink(set, temporary, error);
  if (error && has_no_links(error)) {
    error.clear();
    write_file_synced(temporary, set + "\n");
  }
  if (!error) fs::rename(temporary, folder / link, error);
  HEARTH_CHECK(FileError, !error, (folder / link).string(), ": cannot be set to ", set, ": ", reason_of(error));
  sync_directory(folder);
}

fs::path set_behind(const fs::path& path) {
  constexpr int most_links = 8;
  fs::path at = path.has_filename() ? path : path.parent_path();
  std::error_code error;
  for (int i = 0; i < most_links && fs::is_symlink(at, error); ++i) at = at.parent_path() / fs::read_symlink(at, error);
  if (error || !fs::is_regular_file(at, error) || fs::file_size(at, error) > longest_pointer) return at;
  const std::string name = read_text(at, small_file);
  const bool names_set = name.ends_with('\n') && step_in(name.substr(0, name.size() - 1));
  return names_set ? at.parent_path() / name.substr(0, name.size() - 1) : at;
}

void relink_copies(const fs::path& folder) {
  for (const char* const link : {"latest", "best"}) {
    const fs::path copy = folder / link;
    std::error_code error;
    if (!is_folder(copy) || !is_complete(copy)) continue;
    const std::string set = checkpoint_name(check_sizes(copy).step);
    const bool is_there = file_exists(folder / set);
    if (is_there && text_of_manifest(folder / set) != text_of_manifest(copy)) continue;
    // What is interrupted here goes on at the next start: `best` may lead to the set of `latest`.
    const fs::path aside = folder / (std::string(temporary_prefix) + link);
    remove_tree(aside);
    fs::rename(copy, is_there ? aside : folder / set, error);
    HEARTH_CHECK(FileError, !error, copy.string(), ": cannot be moved: ", reason_of(error));
    point_to(folder, link, set);
    remove_tree(aside);
  }
}

void prune_checkpoints(const fs::path& folder, std::int64_t keep) {
  HEARTH_CHECK(UsageError, keep >= 1, "checkpoint: keeping ", keep, " sets would leave none to resume from");
  std::set<std::string> linked;
  for (const std::string& name : list_directory(folder)) {
    if (const fs::path set = set_behind(folder / name); set != folder / name) linked.insert(set.filename().string());
  }
  std::int64_t kept = 0;
  for (const std::int64_t step : steps_in(folder)) {
    const std::string name = checkpoint_name(step);
    if (kept < keep) {
      kept += is_complete(folder / name) ? 1 : 0;
    } else if (!linked.contains(name)) {
      remove_set(folder, name);
    }
  }
}

}  // namespace hearth
