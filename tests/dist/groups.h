// SPDX-License-Identifier: Apache-2.0
// Groups of every backend, whose ranks are threads of a test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dist/control.h"
#include "dist/gloo.h"
#include "dist/host_group.h"
#include "dist/process_group.h"
#include "tests/support/ranks.h"

namespace hearth::dist {

/// A rank of a Gloo group and what it needs: all in one process.
class GlooRank : public Transport {
 public:
  GlooRank(std::shared_ptr<ControlServer> server, std::unique_ptr<Control> control, int size)
      : server_(std::move(server)), control_(std::move(control)), transport_(gloo_transport(*control_, size, {})) {}

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  const char* name() const override { return transport_->name(); }
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override { transport_->exchange(out, in); }
  void abort(const std::string& reason) override { transport_->abort(reason); }

 private:
  std::shared_ptr<ControlServer> server_;
  std::unique_ptr<Control> control_;
  std::unique_ptr<Transport> transport_;
};

inline std::vector<std::unique_ptr<Collective>> gloo_groups(int size) {
  const ControlOptions options{.size = size, .token = "of the test", .beat_seconds = 0.05};
  const auto server = std::make_shared<ControlServer>("127.0.0.1", 0, options);
  std::vector<std::unique_ptr<Collective>> groups(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      auto control = std::make_unique<Control>("127.0.0.1", server->port(), rank, options, 20);
      groups[static_cast<std::size_t>(rank)] =
          std::make_unique<HostGroup>(std::make_unique<GlooRank>(server, std::move(control), size));
    });
  for (std::thread& thread : threads) thread.join();
  return groups;
}

inline std::vector<std::unique_ptr<Collective>> groups_of(const std::string& backend, int size) {
  return backend == "gloo" ? gloo_groups(size) : loopback_groups(size);
}

}  // namespace hearth::dist
