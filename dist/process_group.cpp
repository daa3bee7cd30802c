// SPDX-License-Identifier: Apache-2.0
#include "dist/process_group.h"

#include "dist/agreement.h"
#include "dist/control.h"
#include "dist/host_group.h"
#include "dist/shared_memory.h"
#include "dist/tcp.h"

namespace hearth::dist {
namespace {

// For the others to hear of the end before the server goes.
constexpr double farewell_seconds = 5;

/// The connections of a process and what they need to live.
class ProcessTransport : public Transport {
 public:
  ProcessTransport(const Placement& at, const ProcessGroupOptions& options) {
    const ControlOptions control{
        .size = at.size, .token = at.token, .give_up_seconds = options.give_up_seconds, .server = "rank 0"};
    if (at.rank == 0 && !at.is_server_elsewhere)
      server_ = std::make_unique<ControlServer>(at.address, at.port, control);
    control_ = std::make_unique<Control>(at.address, at.port, at.rank, control, options.join_seconds);
    if (options.warn) control_->on_warning(options.warn);
    try {
      control_->meet(options.shared_memory ? "dist.backend auto or nccl" : "dist.backend tcp", options.join_seconds);
      std::string why_not_by_memory;
      if (options.shared_memory)
        transport_ =
            shared_memory_transport(*control_, at.size, why_not_by_memory, {.join_seconds = options.join_seconds});
      if (!transport_) transport_ = tcp_transport(*control_, at.size, {.join_seconds = options.join_seconds});
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
  int size() const override { return transport_->size(); }
  const char* name() const override { return transport_->name(); }
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override { transport_->exchange(out, in); }
  void abort(const std::string& reason) override { transport_->abort(reason); }
  std::string failure() const override { return transport_->failure(); }
  std::string who(int rank) const override { return control_->who(rank); }
  void set_status(const std::string& status) override { control_->set_status(status); }

 private:
  std::unique_ptr<ControlServer> server_;
  std::unique_ptr<Control> control_;
  std::unique_ptr<Transport> transport_;
};

}  // namespace

std::unique_ptr<Collective> join_processes(const Placement& placement, const ProcessGroupOptions& options) {
  return std::make_unique<HostGroup>(std::make_unique<ProcessTransport>(placement, options));
}

std::vector<std::unique_ptr<Collective>> loopback_groups(int size) {
  std::vector<std::unique_ptr<Collective>> groups;
  for (std::unique_ptr<Transport>& transport : loopback_transports(size))
    groups.push_back(std::make_unique<HostGroup>(std::move(transport)));
  return groups;
}

}  // namespace hearth::dist
