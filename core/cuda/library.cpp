// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "core/cuda/emulation.h"
#include "core/error.h"

namespace hearth::cuda {
namespace {

namespace fs = std::filesystem;

/// The lib folders one level below `folder`, in order of name.
void add_lib_folders(const fs::path& folder, std::vector<fs::path>& to) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (fs::path lib = entry.path() / "lib"; fs::is_directory(lib, ignored)) found.push_back(std::move(lib));
  std::sort(found.begin(), found.end());
  to.insert(to.end(), found.begin(), found.end());
}

/// The folders to look in, as HEARTH_CUDA_LIBRARIES names them.
std::vector<fs::path> library_folders() {
  std::vector<fs::path> folders;
  const char* text = std::getenv("HEARTH_CUDA_LIBRARIES");
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    if (item.empty()) continue;
    const fs::path folder(item);
    folders.push_back(folder);
    add_lib_folders(folder / "nvidia", folders);
    if (folder.filename() == "lib") add_lib_folders(folder.parent_path().parent_path(), folders);
    if (folder.filename() == "nvidia") add_lib_folders(folder, folders);
  }
  return folders;
}

}  // namespace

Library::Library(const char* title, std::initializer_list<const char*> names) : title_(title) {
  std::string reason;
  std::error_code ignored;
  for (const fs::path& folder : library_folders())
    for (const char* name : names)
      if (!is_open() && fs::exists(folder / name, ignored)) open((folder / name).string(), reason);
  for (const char* name : names)
    if (!is_open()) open(name, reason);
  if (!is_open())
    why_absent_ = join_text(title_, " is not to be found (", reason,
                            "); install it, or name its folder in HEARTH_CUDA_LIBRARIES");
}

void Library::open(const std::string& path, std::string& last_reason) {
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ != nullptr) {
    link_map* map = nullptr;
    path_ = dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr ? map->l_name : path;
    return;
  }
  const char* reason = dlerror();
  last_reason = reason == nullptr ? "unknown reason" : reason;
}

void* Library::address_of(const char* symbol) {
  if (handle_ == nullptr) return nullptr;
  void* const address = dlsym(handle_, symbol);
  if (address == nullptr) {
    why_absent_ = join_text(title_, " at ", path_, " has no ", symbol, "; it is too old or too new");
    handle_ = nullptr;
  }
  return address;
}

bool Library::has(const char* symbol) const { return handle_ != nullptr && dlsym(handle_, symbol) != nullptr; }

LibraryInfo Library::about(std::size_t version) const {
  if (!is_open()) return {"", "", why_absent_};
  return {join_text(version / 10000, '.', version / 100 % 100, '.', version % 100), path_, ""};
}

const char* why_no_library_runs() { return is_emulated() ? "the emulated GPU runs Hearth's native kernels only" : ""; }

std::string why_not_run(const Library& library) {
  if (!library.is_open() && !is_emulated()) return library.why_absent();
  return library.has("hearth_runs_on_the_emulated_gpu") && is_emulated() ? "" : why_no_library_runs();
}

}  // namespace hearth::cuda
