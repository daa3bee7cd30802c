// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that are used. For sources of the CUDA backend only; empty where the library's header is
// absent.
#pragma once

#if __has_include(<nccl.h>)
#include <nccl.h>

#include "dist/nccl/library.h"

namespace hearth::dist::nccl {

/// The oldest that has all of it, with the meaning that is relied on.
inline constexpr int least_version = 21400;

/// What is used of the library.
struct Functions {
  cuda::Library file{"NCCL", {"libnccl.so.2"}};
  decltype(ncclGetVersion)* get_version = file.find("ncclGetVersion");
  decltype(ncclGetErrorString)* text = file.find("ncclGetErrorString");
  decltype(ncclGetLastError)* last_error = file.find("ncclGetLastError");
  decltype(ncclGetUniqueId)* unique_id = file.find("ncclGetUniqueId");
  decltype(ncclCommInitRank)* init_rank = file.find("ncclCommInitRank");
  decltype(ncclCommFinalize)* finalize = file.find("ncclCommFinalize");
  decltype(ncclCommDestroy)* destroy = file.find("ncclCommDestroy");
  decltype(ncclCommAbort)* abort = file.find("ncclCommAbort");
  decltype(ncclCommGetAsyncError)* async_error = file.find("ncclCommGetAsyncError");
  decltype(ncclGroupStart)* group_start = file.find("ncclGroupStart");
  decltype(ncclGroupEnd)* group_end = file.find("ncclGroupEnd");
  decltype(ncclAllReduce)* all_reduce = file.find("ncclAllReduce");
  decltype(ncclReduceScatter)* reduce_scatter = file.find("ncclReduceScatter");
  decltype(ncclAllGather)* all_gather = file.find("ncclAllGather");
  decltype(ncclBroadcast)* broadcast = file.find("ncclBroadcast");
  decltype(ncclSend)* send = file.find("ncclSend");
  decltype(ncclRecv)* receive = file.find("ncclRecv");

  /// 22809 for 2.28.9; 0 where it is absent.
  int version() const;
};

/// Opened at the first call, never closed.
Functions& library();

}  // namespace hearth::dist::nccl

#endif
