// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of a test, connected by what is slow.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/host_group.h"

namespace hearth::test {

/// Every exchange takes so much longer.
class SlowTransport final : public dist::Transport {
 public:
  SlowTransport(std::unique_ptr<dist::Transport> of, std::chrono::milliseconds each)
      : transport_(std::move(of)), each_(each) {}
  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  const char* name() const override { return transport_->name(); }
  void exchange(std::span<const dist::Outgoing> out, std::span<const dist::Incoming> in) override {
    std::this_thread::sleep_for(each_);
    transport_->exchange(out, in);
  }
  void abort(const std::string& reason) override { transport_->abort(reason); }
  std::string failure() const override { return transport_->failure(); }

 private:
  const std::unique_ptr<dist::Transport> transport_;
  const std::chrono::milliseconds each_;
};

inline std::vector<std::unique_ptr<Collective>> slow_groups(int size, std::chrono::milliseconds each) {
  std::vector<std::unique_ptr<Collective>> groups;
  for (std::unique_ptr<dist::Transport>& transport : dist::loopback_transports(size))
    groups.push_back(std::make_unique<dist::HostGroup>(std::make_unique<SlowTransport>(std::move(transport), each)));
  return groups;
}

}  // namespace hearth::test
