// SPDX-License-Identifier: Apache-2.0
// The ranges that NVIDIA's profilers get to see. The test is the profiler: NVTX looks for a function of this name in
// the program and hands it the table of its calls.
#include "core/cuda/ranges.h"

#include <gtest/gtest.h>

// The types only.
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

#include "core/origin.h"

namespace {

std::vector<std::string>& seen() {
  static auto* const all = new std::vector<std::string>;
  return *all;
}

int push(const char* name) {
  seen().push_back(name);
  return 0;
}
int pop() {
  seen().push_back("end");
  return 0;
}

int inject(NvtxGetExportTableFunc_t table_of) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

}  // namespace

extern "C" {
extern NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr;
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = inject;
}

namespace hearth {
namespace {

TEST(CudaRanges, NameOpAndLayerAndNest) {
  const bool before = cuda::marks_ranges();
  cuda::mark_ranges(true);
  seen().clear();
  {
    const OriginScope layer = OriginScope::of_layer("layer1.0.conv1");
    const OriginScope op = OriginScope::of_op("conv2d");
    cuda::mark_ranges(false);
    const OriginScope quiet = OriginScope::of_op("not marked");
  }
  EXPECT_EQ(seen(), (std::vector<std::string>{"no op of layer1.0.conv1", "conv2d of layer1.0.conv1", "end", "end"}));
  cuda::mark_ranges(before);
}

}  // namespace
}  // namespace hearth
