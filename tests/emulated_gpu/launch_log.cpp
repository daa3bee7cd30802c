// SPDX-License-Identifier: Apache-2.0
// HEARTH_EMULATE_LAUNCHES=FILE: when the program ends, a line is added to the file for each kernel that it launched:
// the program, where in it the kernel lies, and its largest block. scripts/check_launches reads them.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "tests/emulated_gpu/engine.h"

namespace hearth::cuda::emulate {
namespace {

class LaunchLog {
 public:
  explicit LaunchLog(const char* file) : file_(file) {}
  ~LaunchLog() {
    std::ostringstream lines;
    for (const auto& [kernel, threads] : largest_) {
      Dl_info info{};
      if (::dladdr(kernel, &info) == 0) continue;
      const auto offset = reinterpret_cast<std::uintptr_t>(kernel) - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
      lines << info.dli_fname << ' ' << std::hex << offset << ' ' << std::dec << threads << '\n';
    }
    std::ofstream(file_, std::ios::app) << lines.str();
  }
  LaunchLog(const LaunchLog&) = delete;
  LaunchLog& operator=(const LaunchLog&) = delete;

  void note(const void* kernel, unsigned threads) {
    const std::scoped_lock lock(mutex_);
    unsigned& largest = largest_[kernel];
    largest = std::max(largest, threads);
  }

 private:
  std::string file_;
  std::mutex mutex_;
  std::map<const void*, unsigned> largest_;
};

}  // namespace

void note_launch(const void* kernel, const dim3& block) {
  static const char* const file = std::getenv("HEARTH_EMULATE_LAUNCHES");
  if (file == nullptr) return;
  static LaunchLog log(file);
  log.note(kernel, block.x * block.y * block.z);
}

}  // namespace hearth::cuda::emulate
