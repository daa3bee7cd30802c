// SPDX-License-Identifier: Apache-2.0
// The log of NCCL in this process, kept in memory so that a run can tell what was chosen.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace hearth::dist {

/// Where a user may have set variables of NCCL, which do not come from the environment; tests have others.
struct NcclSettings {
  /// As NCCL reads them: NCCL_CONF_FILE or ~/.nccl.conf, and /etc/nccl.conf.
  static std::vector<std::filesystem::path> files_of_process();
  std::vector<std::filesystem::path> files = files_of_process();
};

/// Sets NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE so that NCCL logs into memory of this process. NCCL reads
/// them once, so it comes before the first call into NCCL; and while no other thread may read the environment. Changes
/// nothing where the user has set one of them, or where the memory cannot be had: kept_nccl_log() then says so. What
/// was set by the first call stays.
void keep_nccl_log(const NcclSettings& settings = {});

struct KeptNcclLog {
  std::string text{};      ///< up to now
  std::string why_none{};  ///< with the remedy; "" where the log is kept
};
KeptNcclLog kept_nccl_log();

}  // namespace hearth::dist
