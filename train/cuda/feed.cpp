// SPDX-License-Identifier: Apache-2.0
#include "train/cuda/feed.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "core/cuda/counters.h"
#include "core/cuda/error.h"
#include "core/cuda/runtime.h"
#include "core/cuda/transfer.h"

namespace hearth::cuda {

struct Feed::Set {
  std::byte* pinned = nullptr;
  Tensor arrived;                  // on the device
  cudaEvent_t sent = nullptr;      // the copying stream has filled `arrived`
  cudaEvent_t consumed = nullptr;  // the computing stream has read it
};

namespace {

constexpr std::size_t alignment = 256;

std::size_t padded(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace

Feed::Feed(std::vector<Tensor> targets) : targets_(std::move(targets)), sets_(new Set[2]) {
  HEARTH_CHECK(UsageError, !targets_.empty(), "feed: there are no targets");
  std::size_t bytes = 0;
  const Device device = targets_.front().device();
  for (const Tensor& target : targets_) {
    HEARTH_CHECK(DeviceError, target.device().is_cuda() && target.device() == device, "feed: a target is on ",
                 target.device(), "; all must be on one CUDA device");
    HEARTH_CHECK(ShapeError, target.is_contiguous(), "feed: a target of shape ", target.shape(), " is not contiguous");
    bytes += padded(target.byte_size());
  }
  state_of(device);
  HEARTH_TRY(cudaStreamCreateWithFlags(&copying_, cudaStreamNonBlocking));
  for (std::size_t i = 0; i < 2; ++i) {
    Set& set = sets_[i];
    void* pinned = nullptr;
    HEARTH_TRY(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault));
    set.pinned = static_cast<std::byte*>(pinned);
    set.arrived = Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::u8, device);
    HEARTH_TRY(cudaEventCreateWithFlags(&set.sent, cudaEventDisableTiming));
    HEARTH_TRY(cudaEventCreateWithFlags(&set.consumed, cudaEventDisableTiming));
    // The memory may have been another tensor's until now.
    HEARTH_TRY(cudaEventRecord(set.consumed, stream_of(device).raw()));
  }
}

Feed::~Feed() {
  // `arrived` goes back to the computing stream's memory: what is copied into it must have been.
  cudaStreamSynchronize(copying_);
  for (std::size_t i = 0; i < 2; ++i) {
    cudaFreeHost(sets_[i].pinned);
    cudaEventDestroy(sets_[i].sent);
    cudaEventDestroy(sets_[i].consumed);
  }
  cudaStreamDestroy(copying_);
}

void Feed::send(std::span<const Tensor> parts) {
  HEARTH_CHECK(UsageError, parts.size() == targets_.size(), "feed: ", parts.size(), " parts for ", targets_.size(),
               " targets");
  Set& set = sets_[next_++ % 2];
  Stream& computing = stream_of(targets_.front().device());
  if (cudaEventQuery(set.consumed) != cudaSuccess) {
    (void)cudaGetLastError();
    ++live_counters().waits;
    HEARTH_TRY(cudaEventSynchronize(set.consumed));
  }
  Stream copying(computing.device(), copying_);
  std::size_t at = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Tensor &part = parts[i], &target = targets_[i];
    HEARTH_CHECK(ShapeError, part.shape() == target.shape() && part.dtype() == target.dtype() && part.is_contiguous(),
                 "feed: part ", i, " is ", describe(part), "; the target is ", describe(target));
    std::memcpy(set.pinned + at, part.bytes(), part.byte_size());
    copy_in(copying, set.arrived.bytes() + at, set.pinned + at, part.byte_size());
    at += padded(part.byte_size());
  }
  HEARTH_TRY(cudaEventRecord(set.sent, copying_));
  HEARTH_TRY(cudaStreamWaitEvent(computing.raw(), set.sent, 0));
  at = 0;
  for (const Tensor& target : targets_) {
    copy_within(computing, target.bytes(), set.arrived.bytes() + at, target.byte_size());
    at += padded(target.byte_size());
  }
  HEARTH_TRY(cudaEventRecord(set.consumed, computing.raw()));
}

}  // namespace hearth::cuda
