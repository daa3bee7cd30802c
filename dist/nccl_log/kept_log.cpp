// SPDX-License-Identifier: Apache-2.0
#include "dist/nccl_log/kept_log.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "core/error.h"

namespace hearth::dist {
namespace {

constexpr const char* log_variables[] = {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"};

struct LogState {
  int descriptor = -1;
  std::string why_none = "NCCL was not asked for its log";
};
LogState& log_state() {
  static LogState& state = *new LogState;
  return state;
}

/// The variable of NCCL's log that the user has set, and where: "NCCL_DEBUG is set".
std::string set_by_user(const NcclSettings& settings) {
  for (const char* const name : log_variables)
    if (std::getenv(name) != nullptr) return join_text(name, " is set");
  for (const std::filesystem::path& path : settings.files) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
      for (const char* const name : log_variables)
        if (line.starts_with(join_text(name, "="))) return join_text(name, " is set in ", path.string());
  }
  return "";
}

/// A file in memory that NCCL can open by a name; -1 where that cannot be.
int file_in_memory(std::string& name) {
  const int descriptor = memfd_create("nccl log", MFD_CLOEXEC);
  if (descriptor < 0) return -1;
  name = join_text("/proc/self/fd/", descriptor);
  const int again = open(name.c_str(), O_WRONLY | O_CLOEXEC);
  if (again >= 0) return close(again), descriptor;
  close(descriptor);
  return -1;
}

}  // namespace

std::vector<std::filesystem::path> NcclSettings::files_of_process() {
  std::vector<std::filesystem::path> files{"/etc/nccl.conf"};
  const char* const file = std::getenv("NCCL_CONF_FILE");
  const passwd* const user = getpwuid(getuid());
  if (file != nullptr && *file != 0)
    files.emplace_back(file);
  else if (user != nullptr && user->pw_dir != nullptr)
    files.push_back(std::filesystem::path(user->pw_dir) / ".nccl.conf");
  return files;
}

void keep_nccl_log(const NcclSettings& settings) {
  LogState& state = log_state();
  if (state.descriptor >= 0) return;
  const std::string set = set_by_user(settings);
  if (!set.empty()) {
    state.why_none = set + ", so NCCL logs as it says; `hearth doctor --network --nccl-log FILE` reads that log";
    return;
  }
  std::string name;
  state.descriptor = file_in_memory(name);
  if (state.descriptor < 0) {
    state.why_none = "the system gives no file in memory; set NCCL_DEBUG=INFO and NCCL_DEBUG_FILE";
    return;
  }
  state.why_none.clear();
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "INIT,NET,GRAPH,ENV", 1);
  setenv("NCCL_DEBUG_FILE", name.c_str(), 1);
}

KeptNcclLog kept_nccl_log() {
  const LogState& state = log_state();
  KeptNcclLog log{.why_none = state.why_none};
  struct stat file {};
  if (state.descriptor < 0 || fstat(state.descriptor, &file) != 0) return log;
  constexpr std::size_t most = std::size_t{64} << 20;
  log.text.resize(std::min(most, static_cast<std::size_t>(std::max<off_t>(0, file.st_size))));
  std::size_t size = 0;
  while (size < log.text.size()) {
    const ssize_t count =
        pread(state.descriptor, log.text.data() + size, log.text.size() - size, static_cast<off_t>(size));
    if (count <= 0) break;
    size += static_cast<std::size_t>(count);
  }
  log.text.resize(size);
  return log;
}

}  // namespace hearth::dist
