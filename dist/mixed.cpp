// SPDX-License-Identifier: Apache-2.0
#include "dist/mixed.h"

#include <map>
#include <string>
#include <utility>

namespace hearth::dist {
namespace {

class Mixed : public Transport {
 public:
  Mixed(std::unique_ptr<Transport> local, std::unique_ptr<Transport> remote, std::vector<int> hosts)
      : local_(std::move(local)), remote_(std::move(remote)), hosts_(std::move(hosts)) {}

  int rank() const override { return remote_->rank(); }
  int size() const override { return remote_->size(); }
  const char* name() const override { return "shared memory and tcp"; }
  std::vector<int> hosts() const override { return hosts_; }

  /// First what stays on the host. As all ranks do so, none waits for what another does later.
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    std::vector<Outgoing> near_out, far_out;
    std::vector<Incoming> near_in, far_in;
    for (const Outgoing& message : out) (is_near(message.to) ? near_out : far_out).push_back(message);
    for (const Incoming& message : in) (is_near(message.from) ? near_in : far_in).push_back(message);
    if (!near_out.empty() || !near_in.empty()) local_->exchange(near_out, near_in);
    if (!far_out.empty() || !far_in.empty()) remote_->exchange(far_out, far_in);
  }
  void abort(const std::string& reason) override {
    local_->abort(reason);
    remote_->abort(reason);
  }
  std::string failure() const override {
    const std::string of_local = local_->failure();
    return of_local.empty() ? remote_->failure() : of_local;
  }

 private:
  bool is_near(int other) const {
    return hosts_[static_cast<std::size_t>(other)] == hosts_[static_cast<std::size_t>(rank())];
  }

  const std::unique_ptr<Transport> local_, remote_;
  const std::vector<int> hosts_;
};

}  // namespace

std::vector<int> hosts_of(const std::vector<std::string>& places) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const std::string& place : places)
    hosts.push_back(numbers.emplace(place, static_cast<int>(numbers.size())).first->second);
  return hosts;
}

std::unique_ptr<Transport> mixed_transport(std::unique_ptr<Transport> local, std::unique_ptr<Transport> remote,
                                           std::vector<int> hosts) {
  return std::make_unique<Mixed>(std::move(local), std::move(remote), std::move(hosts));
}

}  // namespace hearth::dist
