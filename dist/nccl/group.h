// SPDX-License-Identifier: Apache-2.0
// Collectives of CUDA tensors by NCCL, on a stream of their own.
#pragma once

#include <nccl.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/cuda/stream.h"
#include "dist/host_group.h"
#include "dist/process_group.h"

namespace hearth::dist::nccl {

/// The ranks of a host group, each with a CUDA device. Tensors of the device are reduced where they are: the work is
/// queued on the group's stream, behind what is queued on the computing stream, and Work::wait() queues the computing
/// stream behind it. All of that may be part of a recorded step. Other tensors go by the host group.
///
/// While nothing is recorded, the ranks compare each call by the host group, and Work::wait() throws where they differ.
/// A thread looks after failures: where the host group or NCCL reports one, what is under way is aborted.
class Group : public Collective, public Peers {
 public:
  /// Every rank calls it; see nccl_group().
  Group(std::unique_ptr<HostGroup> host, Device device, const NcclOptions& options);
  /// Waits for what was started.
  ~Group() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const char* backend() const override { return "nccl"; }
  Device device() const override { return device_; }

  Work all_reduce(const Tensor& x, Reduce op = Reduce::sum, std::optional<DType> wire = {}) override;
  Work reduce_scatter(const Tensor& x, const Tensor& part) override;
  Work all_gather(const Tensor& part, const Tensor& all) override;
  Work broadcast(const Tensor& x, int root = 0) override;
  Work all_to_all(const Tensor& x, const Tensor& y) override;
  Work send(const Tensor& x, int to) override;
  Work receive(const Tensor& x, int from) override;
  void barrier() override { host_->barrier(); }
  void abort(const std::string& reason) override;
  /// Bytes as a ring sends them; of what is replayed, those of its recording. Seconds are the host group's.
  Traffic traffic() const override;
  std::string who(int rank) const override { return host_->who(rank); }
  void set_status(const std::string& status) override { host_->set_status(status); }

 private:
  class Flight;
  struct Failure;
  using Queue = std::function<void(cuda::Stream&)>;

  /// `held` stays until the computing stream is behind the work, which writes `output` unless it sends it.
  Work start(Call call, std::vector<Tensor> held, const Tensor& output, const Queue& queue);
  /// The others' calls, compared in the background; throws in wait() where they differ.
  std::function<void()> agree(const Call& call);
  /// The same of a message, which the receiver compares.
  std::function<void()> agree_on_message(const Call& call);
  /// PeerError, and the end of the group, unless `theirs` is as expected.
  static void require(const Call& expected, const Call& theirs, int other, const Call& mine, HostGroup& host);
  void init(const ncclUniqueId& id);
  void check(ncclResult_t result, const char* call);
  void check(ncclResult_t result, const char* call, const std::string& more);
  void call(const std::function<void()>& calls);
  /// Counts what this rank sends of a tensor that all ranks have a piece of.
  void count_bytes(std::size_t tensor_bytes);
  bool sums_in_order(const Tensor& x) const;
  /// rows [size * part of this rank]: what all ranks have in this rank's piece of x.
  void gather_rows(cuda::Stream& stream, const Tensor& x, const Pieces& pieces, const Tensor& rows);
  void sum_in_order(cuda::Stream& stream, const Tensor& x, const Pieces& pieces, const Tensor& rows);
  void watch();
  void fail(const std::string& reason);
  [[noreturn]] void throw_failure(const std::string& otherwise);

  const std::unique_ptr<HostGroup> host_;
  const Device device_;
  const bool ordered_;
  ncclComm_t comm_ = nullptr;
  cuda::Stream stream_;
  std::uint64_t sequence_ = 0;
  std::map<std::pair<int, bool>, std::uint64_t> messages_;  ///< so far, by the other rank and whether this one sends
  std::atomic<std::int64_t> bytes_{0};                      ///< sent over NCCL
  const std::shared_ptr<Failure> failure_;
  std::timed_mutex calling_;  ///< held while a call into NCCL uses the communicator
  std::atomic<bool> stopping_{false};
  std::thread watcher_;
};

}  // namespace hearth::dist::nccl
