// SPDX-License-Identifier: Apache-2.0
// Collectives of ranks that exchange bytes: on the host, one after the other, by a thread of their own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/collective.h"
#include "dist/agreement.h"
#include "dist/call.h"
#include "dist/cost/routed.h"
#include "dist/routes.h"
#include "dist/transport.h"

namespace hearth::dist {

/// The ranks of a transport as a group. Before each collective the ranks compare what they are about to do, in one
/// small message, which carries the data too where that is small. Large sums go by a route (dist/routes.h).
///
/// A message between two ranks begins with its sender's call, which the receiver compares with its own, and which looks
/// like that of a collective: so a rank that calls something else is named. Messages to each rank, and from each, have
/// a thread, which begins with the first of them.
///
/// Tensors on a device are copied to the host and back; the caller waits for that.
class HostGroup : public Collective, public Peers, public Routed {
 public:
  /// ConfigError where the ranks cannot sum by `route`; see ProcessGroupOptions.
  explicit HostGroup(std::unique_ptr<Transport> transport, Route route = Route::automatic, bool ordered = true);
  /// Waits for what was started.
  ~HostGroup() override;

  int rank() const override;
  int size() const override;
  const char* backend() const override;

  Work all_reduce(const Tensor& x, Reduce op = Reduce::sum, std::optional<DType> wire = {}) override;
  Work reduce_scatter(const Tensor& x, const Tensor& part) override;
  Work all_gather(const Tensor& part, const Tensor& all) override;
  Work gather_parts(const Tensor& x, const std::vector<std::int64_t>& cuts) override;
  Work reduce_parts(const Tensor& x, const std::vector<std::int64_t>& cuts, const Tensor& part) override;
  Work broadcast(const Tensor& x, int root = 0) override;
  Work all_to_all(const Tensor& x, const Tensor& y) override;
  Work send(const Tensor& x, int to) override;
  Work receive(const Tensor& x, int from) override;
  void barrier() override;
  void abort(const std::string& reason) override;
  Traffic traffic() const override;
  void record_spans(std::vector<CollectiveSpan>* spans) override { spans_ = spans; }
  /// Why collectives fail from now on; "" as long as they do not. From any thread.
  std::string failure() const { return transport_->failure(); }
  std::string who(int rank) const override { return transport_->who(rank); }
  void set_status(const std::string& status) override;
  std::string route() const override { return sums_.text(); }
  const std::vector<int>& hosts() const override { return sums_.hosts(); }
  Route current_route() const override { return sums_.route(); }
  void use_route(Route route) override;
  /// The call with what this rank does now.
  Call at_status(Call call) const;

 private:
  struct Job {
    std::uint64_t number;  ///< in the order of calls
    const char* what;
    std::function<void()> run;
    std::chrono::steady_clock::time_point started;
    std::string status;
    std::promise<void> done;
  };
  /// What is done in order: all collectives, or the messages to one rank, or from one.
  struct Lane {
    std::deque<Job> jobs;  ///< the first may be under way
    std::uint64_t messages = 0;
    std::chrono::steady_clock::time_point last_end{};
    std::thread thread;
  };

  Work start(Lane& lane, Kind kind, std::function<void()> run);
  /// Runs `on_host` on host copies of device tensors and copies back; starts it for tensors of the host.
  Work start_on(Kind kind, const Tensor& input, const Tensor& output,
                std::function<void(const Tensor&, const Tensor&)> on_host);
  /// Of the messages to another rank, or from it.
  Lane& lane_of(int other, bool sends);
  void work(Lane& lane);
  bool is_next(const Lane& lane) const;
  void run(Lane& lane, const Job& job);
  /// Transport::exchange(), counted.
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in);
  void run_send(Lane& lane, Call call, const Tensor& x);
  void run_receive(Lane& lane, Call call, const Tensor& x);
  /// All ranks tell each other what they call, with at most inline_bytes of data; returns what each sent.
  std::vector<std::vector<std::byte>> agree(const Call& call, std::span<const std::byte> inlined);
  void run_all_reduce(const Call& call, const Tensor& x, Reduce op, std::optional<DType> wire);

  const std::unique_ptr<Transport> transport_;
  SumRoute sums_;
  std::vector<std::byte> rows_;  ///< of reduce_parts()
  std::uint64_t sequence_ = 0;
  std::vector<CollectiveSpan>* spans_ = nullptr;
  std::atomic<std::int64_t> bytes_{0}, remote_bytes_{0}, busy_ns_{0};
  const std::shared_ptr<std::atomic<std::int64_t>> exposed_ns_ = std::make_shared<std::atomic<std::int64_t>>(0);
  std::string status_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t started_ = 0, unfinished_ = 0;
  std::chrono::steady_clock::time_point busy_since_{};
  std::exception_ptr failure_;
  bool stopping_ = false;
  Lane collectives_;
  std::map<std::pair<int, bool>, Lane> messages_;  ///< by the other rank, and whether this one sends
};

}  // namespace hearth::dist
