// SPDX-License-Identifier: Apache-2.0
#include "dist/process_group.h"

#include <algorithm>

#include "core/error.h"
#include "dist/agreement.h"
#include "dist/control.h"
#include "dist/host_group.h"
#include "dist/mixed.h"
#include "dist/shared_memory.h"
#include "dist/tcp.h"

namespace hearth::dist {
namespace {

// For the others to hear of the end before the server goes.
constexpr double farewell_seconds = 5;

/// The connections of a process and what they need to live.
class ProcessTransport : public Transport {
 public:
  ProcessTransport(const Placement& at, const ProcessGroupOptions& options) : rank_(at.rank), size_(at.size) {
    const ControlOptions control{
        .size = at.size, .token = at.token, .give_up_seconds = options.give_up_seconds, .server = "rank 0"};
    if (at.rank == 0 && !at.is_server_elsewhere)
      server_ = std::make_unique<ControlServer>(at.address, at.port, control);
    control_ = std::make_unique<Control>(at.address, at.port, at.rank, control, options.join_seconds);
    if (options.warn) control_->on_warning(options.warn);
    try {
      control_->meet(join_text(options.shared_memory ? "dist.backend auto or nccl" : "dist.backend tcp",
                               " and dist.route ", name_of(options.route)),
                     options.join_seconds);
      connect(options);
    } catch (const std::exception& error) {
      // The others wait for this rank.
      if (control_->failure().empty()) control_->give_up(failure_text(error));
      control_.reset();
      if (server_) server_->wait_for_end(farewell_seconds);
      throw;
    }
  }
  ~ProcessTransport() override {
    transport_.reset();
    control_.reset();
    if (server_) server_->wait_for_end(farewell_seconds);
  }

  int rank() const override { return transport_->rank(); }
  std::vector<int> hosts() const override { return hosts_; }
  int size() const override { return transport_->size(); }
  const char* name() const override { return transport_->name(); }
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override { transport_->exchange(out, in); }
  void abort(const std::string& reason) override { transport_->abort(reason); }
  std::string failure() const override { return transport_->failure(); }
  std::string who(int rank) const override { return control_->who(rank); }
  void set_status(const std::string& status) override { control_->set_status(status); }

 private:
  void connect(const ProcessGroupOptions& options) {
    const auto key = [](int rank) { return join_text("place/", rank); };
    const std::string place = options.host.empty() ? place_of_process() : options.host;
    control_->set(key(rank_), place.empty() ? join_text("of rank ", rank_) : place);
    std::vector<std::string> places;
    for (int rank = 0; rank < size_; ++rank) places.push_back(control_->get(key(rank), options.join_seconds));
    hosts_ = hosts_of(places);
    const int host = hosts_[static_cast<std::size_t>(rank_)];
    std::vector<int> local;
    for (int rank = 0; rank < size_; ++rank)
      if (hosts_[static_cast<std::size_t>(rank)] == host) local.push_back(rank);
    const int hosts = 1 + *std::max_element(hosts_.begin(), hosts_.end());
    const bool is_one_host = hosts == 1, shares = options.shared_memory && (is_one_host || hosts < size_);
    std::string why_not_by_memory;
    std::unique_ptr<Transport> memory;
    if (shares)
      memory = shared_memory_transport(*control_, size_, why_not_by_memory,
                                       {.ranks = local, .join_seconds = options.join_seconds});
    if (memory && is_one_host) {
      transport_ = std::move(memory);
      return;
    }
    transport_ = tcp_transport(*control_, size_, {.join_seconds = options.join_seconds});
    if (memory) transport_ = mixed_transport(std::move(memory), std::move(transport_), hosts_);
  }

  const int rank_, size_;
  std::vector<int> hosts_;
  std::unique_ptr<ControlServer> server_;
  std::unique_ptr<Control> control_;
  std::unique_ptr<Transport> transport_;
};

}  // namespace

std::unique_ptr<Collective> join_processes(const Placement& placement, const ProcessGroupOptions& options) {
  return std::make_unique<HostGroup>(std::make_unique<ProcessTransport>(placement, options), options.route,
                                     options.ordered);
}

std::vector<std::unique_ptr<Collective>> loopback_groups(int size) {
  std::vector<std::unique_ptr<Collective>> groups;
  for (std::unique_ptr<Transport>& transport : loopback_transports(size))
    groups.push_back(std::make_unique<HostGroup>(std::move(transport)));
  return groups;
}

}  // namespace hearth::dist
