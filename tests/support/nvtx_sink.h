// SPDX-License-Identifier: Apache-2.0
// A stand-in for NVIDIA's profilers: keeps the NVTX ranges of this program. NVTX looks for a function of this name in
// the program and hands it the table of its calls. To be included by one source of a program, of a build with CUDA.
#pragma once

// The types only.
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

#include <mutex>
#include <string>
#include <vector>

namespace hearth::test {

/// Names of the ranges that were opened, and "end" for each that was closed; of all threads.
class NvtxSink {
 public:
  static NvtxSink& instance() {
    static auto* const sink = new NvtxSink;
    return *sink;
  }
  void add(const char* what) {
    const std::lock_guard lock(mutex_);
    seen_.emplace_back(what);
  }
  /// What came since the last call.
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(seen_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> seen_;
};

inline int push_range(const char* name) {
  NvtxSink::instance().add(name);
  return 0;
}
inline int pop_range() {
  NvtxSink::instance().add("end");
  return 0;
}

inline int inject_nvtx(NvtxGetExportTableFunc_t table_of) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push_range);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop_range);
  return 1;
}

}  // namespace hearth::test

extern "C" {
extern NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr;
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = hearth::test::inject_nvtx;
}
