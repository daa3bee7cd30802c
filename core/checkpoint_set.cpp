// SPDX-License-Identifier: Apache-2.0
#include "hearth/core/checkpoint_set.h"


#include <algorithm>
#include <charconv>
#include <set>

#include "hearth/core/checksum.h"
#include "hearth/core/file.h"
#include "hearth/core/json_text.h"
#include "hearth/core/safetensors.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;
constexpr const char* manifest_file = "manifest.json";
constexpr std::string_view set_prefix = "step-";
constexpr std::string_view temporary_prefix = ".tmp-step-";

std::string checksum_of(const fs::path& path) { return hex_of(crc32c(MappedFile(path).bytes())); }

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  HEARTH_CHECK(FileError, !error, path.string(), ": cannot be removed: ", error.message());
}

// The numbers of the sets in a folder, newest first.
std::vector<std::int64_t> steps_in(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : list_directory(folder)) {
    if (!name.starts_with(set_prefix)) continue;
    std::int64_t step = 0;
    const char* const end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + set_prefix.size(), end, step);
    if (error == std::errc{} && stop == end && checkpoint_name(step) == name) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  return std::string(set_prefix) + std::string(digits.size() < 8 ? 8 - digits.size() : 0, '0') + digits;
}

CheckpointWriter::CheckpointWriter(const fs::path& folder, std::int64_t step)
    : folder_(folder), name_(checkpoint_name(step)), temporary_(folder / ("." + std::string("tmp-") + name_)), step_(step) {
  make_directories(folder_);
  for (const std::string& name : list_directory(folder_))
    if (name.starts_with(temporary_prefix)) remove_tree(folder_ / name);
  make_directories(temporary_);
}

CheckpointWriter::~CheckpointWriter() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

std::string CheckpointWriter::commit() {
  Json files = Json::array();
  for (const std::string& name : list_directory(temporary_)) {
    const fs::path path = temporary_ / name;
    sync_file(path);
    files.push_back(Json::object().set("name", name).set("bytes", file_size(path)).set("crc32c", checksum_of(path)));
  }
  Json body = Json::object();
  body.set("format", 1).set("step", step_).set("files", files);
  // The manifest vouches for itself as well.
  Json manifest = body;
  manifest.set("crc32c", hex_of(crc32c(bytes_of(to_text(body)))));
  write_file_synced(temporary_ / manifest_file, to_text(manifest, 2) + "\n");
  sync_directory(temporary_);
  if (fs::exists(folder_ / name_)) remove_tree(folder_ / name_);
  std::error_code error;
  fs::rename(temporary_, folder_ / name_, error);
  HEARTH_CHECK(FileError, !error, (folder_ / name_).string(), ": cannot be put in place: ", error.message());
  committed_ = true;
  sync_directory(folder_);
  return name_;
}

void verify_checkpoint(const fs::path& set) {
  const fs::path path = set / manifest_file;
  try {
    Json body = Json::object();
    std::string stated;
    const Json manifest = read_json(path.string());
    for (const JsonMember& member : manifest.members())
      if (member.key == "crc32c") stated = member.value.as_string();
      else body.set(member.key, member.value);
    HEARTH_CHECK(FileError, hex_of(crc32c(bytes_of(to_text(body)))) == stated, path.string(), ": its checksum is wrong");
    HEARTH_CHECK(FileError, body.at("format").as_integer() == 1, path.string(), ": format ",
                 to_text(body.at("format")), " is not known; a newer Hearth may have written it");
    for (const Json& entry : body.at("files").items()) {
      const fs::path file = set / entry.at("name").as_string();
      const std::uint64_t bytes = file_size(file);
      HEARTH_CHECK(FileError, bytes == static_cast<std::uint64_t>(entry.at("bytes").as_integer()), file.string(), ": has ",
                   bytes, " bytes, the manifest says ", entry.at("bytes").as_integer());
      if (checksum_of(file) == entry.at("crc32c").as_string()) continue;
      // A tensor file can say more closely where it is damaged.
      if (file.extension() == ".safetensors") SafetensorsFile(file).verify();
      throw FileError(join_text(file.string(), ": its checksum is wrong"));
    }
  } catch (const ConfigError& error) {
    throw FileError(join_text(path.string(), ": is damaged: ", error.what()));
  }
}

CheckpointSearch find_newest_complete(const fs::path& folder) {
  CheckpointSearch result;
  for (const std::int64_t step : steps_in(folder)) {
    const std::string name = checkpoint_name(step);
    try {
      verify_checkpoint(folder / name);
      result.newest = name;
      return result;
    } catch (const Error& error) {
      result.damaged.push_back({name, error.what()});
    }
  }
  return result;
}

void point_to(const fs::path& folder, const std::string& link, const std::string& set) {
  const fs::path temporary = folder / (".tmp-link-" + link);
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_symlink(set, temporary, error);
  if (!error) fs::rename(temporary, folder / link, error);
  HEARTH_CHECK(FileError, !error, (folder / link).string(), ": cannot be set to ", set, ": ", error.message());
  sync_directory(folder);
}

void prune_checkpoints(const fs::path& folder, std::int64_t keep) {
  std::set<std::string> linked;
  for (const std::string& name : list_directory(folder)) {
    std::error_code error;
    const fs::path target = fs::read_symlink(folder / name, error);
    if (!error) linked.insert(target.string());
  }
  const std::vector<std::int64_t> steps = steps_in(folder);
  for (std::size_t i = static_cast<std::size_t>(std::max<std::int64_t>(keep, 0)); i < steps.size(); ++i)
    if (linked.count(checkpoint_name(steps[i])) == 0) remove_tree(folder / checkpoint_name(steps[i]));
}

}  // namespace hearth
