// SPDX-License-Identifier: Apache-2.0
#include "models/weights/safetensors_set.h"

#include <map>
#include <set>

#include "core/io/json_text.h"
#include "core/io/safetensors_header.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;
using safetensors::fail;

constexpr const char* whole_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";

fs::path file_of(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  for (const char* name : {whole_file, index_file})
    if (fs::exists(path / name, ignored)) return path / name;
  fail(path, "IoError", "the folder has neither ", whole_file, " nor ", index_file);
}

/// The names of tensors by the file that holds them.
std::map<std::string, std::set<std::string>> names_by_file(const fs::path& path) {
  std::map<std::string, std::set<std::string>> result;
  try {
    const Json index = read_json(path.string(), {std::uint64_t{64} << 20, "indices of weights"});
    for (const JsonMember& member : index.at("weight_map").members())
      result[member.value.as_string()].insert(member.key);
  } catch (const ConfigError& error) {
    fail(path, "InvalidIndex", error.what());
  }
  if (result.empty()) fail(path, "InvalidIndex", "the weight_map is empty");
  for (const auto& [name, tensors] : result) {
    // A name that leads out of the folder is none of this set's.
    if (name.empty() || name == ".." || name == "." || name.find_first_of(std::string("/\\\0", 3)) != std::string::npos)
      fail(path, "InvalidIndex", "tensor '", *tensors.begin(), "' is said to be in '", name,
           "', which is no file beside it");
  }
  return result;
}

}  // namespace

SafetensorsSet::SafetensorsSet(const fs::path& path) : path_(file_of(path)) {
  if (path_.extension() == ".json")
    open_index(path_);
  else
    files_.push_back(std::make_unique<SafetensorsFile>(path_));
  for (const auto& each : files_)
    for (const TensorRecord& record : each->records()) items_.push_back({each.get(), &record});
}

void SafetensorsSet::open_index(const fs::path& path) {
  for (const auto& [name, tensors] : names_by_file(path)) {
    const SafetensorsFile& file = *files_.emplace_back(std::make_unique<SafetensorsFile>(path.parent_path() / name));
    for (const std::string& tensor : tensors)
      if (file.find(tensor) == nullptr)
        fail(path, "IndexMismatch", "tensor '", tensor, "' is said to be in ", name, ", which has no such one");
    // Equally many, all found: the file has no others. So no tensor is in two files.
    if (file.records().size() == tensors.size()) continue;
    for (const TensorRecord& record : file.records())
      if (!tensors.contains(record.name))
        fail(path, "IndexMismatch", "tensor '", record.name, "' of ", name, " is not in the weight_map");
  }
}

const SafetensorsMetadata& SafetensorsSet::metadata() const { return files_.front()->metadata(); }

std::vector<fs::path> SafetensorsSet::paths() const {
  std::vector<fs::path> paths{path_};
  for (const auto& file : files_)
    if (file->path() != path_) paths.push_back(file->path());
  return paths;
}

void SafetensorsSet::verify() const {
  for (const auto& file : files_) file->verify();
}

}  // namespace hearth
