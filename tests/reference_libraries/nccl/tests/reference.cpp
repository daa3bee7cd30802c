// SPDX-License-Identifier: Apache-2.0
#include "tests/reference_libraries/nccl/tests/reference.h"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "dist/nccl/library.h"
#include "tests/support/ranks.h"

namespace hearth::test {
namespace {

// Before anything opens a library or looks for devices, and for all tests of this program.
[[maybe_unused]] const bool environment_is_set = [] {
  ::setenv("HEARTH_CUDA_LIBRARIES", HEARTH_REFERENCE_LIBRARIES, 1);
  ::setenv("HEARTH_EMULATE_DEVICES", "4", 1);
  return true;
}();

void reset() {
  reference_nccl::Controls& all = controls();
  all.all_reduces = all.point_to_points = all.others = all.aborted = 0;
  for (std::atomic<int>& one : all.async_error) one = 0;
  all.refuses = -1;
  all.connection = "P2P/IPC";
  all.version = 0;
}

}  // namespace

reference_nccl::Controls& controls() {
  static reference_nccl::Controls* const found = [] {
    const std::string path = dist::nccl::about().path;
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    void* const symbol = library == nullptr ? nullptr : ::dlsym(library, "hearth_runs_on_the_emulated_gpu");
    if (symbol == nullptr) throw std::runtime_error("the library opened is not the reference: " + path);
    return reinterpret_cast<decltype(&hearth_runs_on_the_emulated_gpu)>(symbol)();
  }();
  return *found;
}

std::vector<std::unique_ptr<Collective>> nccl_groups(int size, const dist::NcclOptions& options) {
  std::vector<std::unique_ptr<Collective>> groups = dist::loopback_groups(size);
  std::vector<std::thread> threads;
  std::vector<std::string> failures(groups.size());
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank, i = static_cast<std::size_t>(rank)] {
      try {
        groups[i] = dist::nccl_group(std::move(groups[i]), gpu(rank), options);
      } catch (const std::exception& error) {
        failures[i] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures)
    if (!failure.empty()) throw std::runtime_error(failure);
  return groups;
}

void run_ranks(int size, const std::function<void(Collective&)>& f, const dist::NcclOptions& options) {
  for (const std::string& failure : failures_of_ranks(nccl_groups(size, options), f)) EXPECT_EQ(failure, "");
}

CudaNccl::CudaNccl() {
  cuda::emulate::Settings settings = before_;
  settings.streams = cuda::emulate::stream_policy_named(GetParam());
  cuda::emulate::apply(settings);
  reset();
}
CudaNccl::~CudaNccl() {
  reset();
  cuda::emulate::apply(before_);
}

}  // namespace hearth::test
