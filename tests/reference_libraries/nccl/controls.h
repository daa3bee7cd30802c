// SPDX-License-Identifier: Apache-2.0
// What the tests see of the reference NCCL beyond its C functions: what it was asked, and failures on demand.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace hearth::reference_nccl {

struct Controls {
  // Collectives that ranks have queued or recorded, those of all ranks together.
  std::atomic<std::int64_t> all_reduces{0};
  std::atomic<std::int64_t> point_to_points{0};  ///< groups of sends and receives
  std::atomic<std::int64_t> others{0};
  std::atomic<std::int64_t> communicators{0};  ///< alive
  std::atomic<std::int64_t> aborted{0};        ///< communicators so far
  /// By rank: what ncclCommGetAsyncError answers, an ncclResult_t.
  std::array<std::atomic<int>, 16> async_error{};
  /// This rank's calls are refused, but for those that end something; -1 for none.
  std::atomic<int> refuses{-1};
  /// What the log says that neighbouring ranks are connected by, if NCCL_DEBUG and NCCL_DEBUG_FILE ask for a log.
  std::atomic<const char*> connection{"P2P/IPC"};
  std::atomic<int> version{0};  ///< what ncclGetVersion answers; 0: that of the header
};

}  // namespace hearth::reference_nccl

/// The controls of the library that was opened. By this symbol Hearth knows that the library runs on the emulated GPU.
extern "C" hearth::reference_nccl::Controls* hearth_runs_on_the_emulated_gpu();
