// SPDX-License-Identifier: Apache-2.0
// What the tests of this program share: groups by the reference NCCL, and its controls.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda/stream.h"
#include "dist/process_group.h"
#include "tests/emulated_gpu/runtime.h"
#include "tests/reference_libraries/nccl/controls.h"

namespace hearth::test {

/// Of the library that Hearth opened.
reference_nccl::Controls& controls();

inline Device gpu(int rank) { return {DeviceType::cuda, rank}; }

/// Ranks that are threads of this process, each with an emulated GPU.
std::vector<std::unique_ptr<Collective>> nccl_groups(int size, const dist::NcclOptions& options = {});

/// Runs f(group) on a thread for each rank; expects that none fails.
void run_ranks(int size, const std::function<void(Collective&)>& f, const dist::NcclOptions& options = {});

/// With the order of streams that the parameter names, and no failures on demand.
class CudaNccl : public testing::TestWithParam<const char*> {
 protected:
  CudaNccl();
  ~CudaNccl() override;

 private:
  const cuda::emulate::Settings before_ = cuda::emulate::settings();
};

}  // namespace hearth::test
