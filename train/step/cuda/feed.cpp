// SPDX-License-Identifier: Apache-2.0
#include "train/step/cuda/feed.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "core/cuda/counters.h"
#include "core/cuda/error.h"
#include "core/cuda/runtime.h"
#include "core/cuda/transfer.h"
#include "data/loading/stages.h"

namespace hearth::cuda {

struct Feed::Set {
  std::byte* pinned = nullptr;
  Tensor arrived{};                // on the device
  cudaEvent_t sent = nullptr;      // the copying stream has filled `arrived`
  cudaEvent_t consumed = nullptr;  // the computing stream has read it
};

namespace {

constexpr std::size_t alignment = 256;

std::size_t padded(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

void check_parts(Device device, std::span<const Tensor> parts, std::span<const Tensor> targets) {
  HEARTH_CHECK(UsageError, parts.size() == targets.size(), "feed: ", parts.size(), " parts for ", targets.size(),
               " targets");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Tensor &part = parts[i], &target = targets[i];
    HEARTH_CHECK(DeviceError, target.device() == device && part.device().is_cpu(), "feed: part ", i, " is on ",
                 part.device(), " and its target on ", target.device(), "; they must be on the cpu and on ", device);
    HEARTH_CHECK(ShapeError, target.is_contiguous(), "feed: a target of shape ", target.shape(), " is not contiguous");
    HEARTH_CHECK(ShapeError, part.shape() == target.shape() && part.dtype() == target.dtype() && part.is_contiguous(),
                 "feed: part ", i, " is ", describe(part), "; the target is ", describe(target));
  }
}

}  // namespace

Feed::Feed(Device device, bool pinned)
    : device_(device), pinned_(pinned), memory_(memory_of(device)), sets_(new Set[2]) {
  (void)state_of(device);
  HEARTH_TRY(cudaStreamCreateWithFlags(&copying_, cudaStreamNonBlocking));
  for (std::size_t i = 0; i < 2; ++i) {
    HEARTH_TRY(cudaEventCreateWithFlags(&sets_[i].sent, cudaEventDisableTiming));
    HEARTH_TRY(cudaEventCreateWithFlags(&sets_[i].consumed, cudaEventDisableTiming));
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

void Feed::grow(Set& set, std::size_t bytes) {
  set.arrived = Tensor();
  cudaFreeHost(set.pinned);
  set.pinned = nullptr;
  void* pinned = nullptr;
  HEARTH_TRY(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault));
  set.pinned = static_cast<std::byte*>(pinned);
  const DeviceMemoryScope scope(device_, memory_);
  set.arrived = Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::u8, device_);
  // The memory may have been another tensor's until now.
  HEARTH_TRY(cudaEventRecord(set.consumed, stream_of(device_).raw()));
  HEARTH_TRY(cudaStreamWaitEvent(copying_, set.consumed, 0));
}

void Feed::send(std::span<const Tensor> parts, std::span<const Tensor> targets) {
  check_parts(device_, parts, targets);
  std::size_t bytes = 0;
  for (const Tensor& part : parts) bytes += padded(part.byte_size());
  if (bytes == 0) return;
  if (!pinned_) return send_pageable(parts, targets);
  Set& set = sets_[next_++ % 2];
  Stream& computing = stream_of(device_);
  if (cudaEventQuery(set.consumed) != cudaSuccess) {
    (void)cudaGetLastError();
    ++live_counters().stalls;
    HEARTH_TRY(cudaEventSynchronize(set.consumed));
  }
  const data::StageScope stage(data::Stage::copy);
  if (!set.arrived.defined() || set.arrived.byte_size() < bytes) grow(set, bytes);
  Stream copying(device_, copying_);
  std::size_t at = 0;
  for (const Tensor& part : parts) {
    std::memcpy(set.pinned + at, part.bytes(), part.byte_size());
    copy_in(copying, set.arrived.bytes() + at, set.pinned + at, part.byte_size());
    at += padded(part.byte_size());
  }
  HEARTH_TRY(cudaEventRecord(set.sent, copying_));
  HEARTH_TRY(cudaStreamWaitEvent(computing.raw(), set.sent, 0));
  at = 0;
  for (const Tensor& target : targets) {
    copy_within(computing, target.bytes(), set.arrived.bytes() + at, target.byte_size());
    at += padded(target.byte_size());
  }
  HEARTH_TRY(cudaEventRecord(set.consumed, computing.raw()));
}

void Feed::send_pageable(std::span<const Tensor> parts, std::span<const Tensor> targets) {
  const data::StageScope stage(data::Stage::copy);
  Stream& computing = stream_of(device_);
  for (std::size_t i = 0; i < parts.size(); ++i)
    copy_in(computing, targets[i].bytes(), parts[i].bytes(), parts[i].byte_size());
}

}  // namespace hearth::cuda

namespace hearth::train {

cuda::Feed& feed_of(Session& session) {
  if (!session.feed) session.feed = std::make_shared<cuda::Feed>(session.device(), session.config().train.pinned);
  return *session.feed;
}

data::Batch on_device(cuda::Stream&, Session& session, const data::Batch& batch) {
  const Device device = session.device();
  std::vector<Tensor> parts, targets;
  data::Batch moved = batch.map([&](const data::Batch::Named& named) {
    const Tensor& tensor = named.tensor;
    if (!tensor.device().is_cpu()) return tensor.to(device);
    parts.push_back(tensor.contiguous());
    return targets.emplace_back(Tensor::empty(tensor.shape(), tensor.dtype(), device));
  });
  if (!parts.empty()) feed_of(session).send(parts, targets);
  return moved;
}

}  // namespace hearth::train
