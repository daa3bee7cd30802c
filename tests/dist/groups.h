// SPDX-License-Identifier: Apache-2.0
// Groups of every backend, whose ranks are threads of a test; and ranks that join by hand.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/build.h"
#include "dist/control.h"
#include "dist/frame.h"
#include "dist/host_group.h"
#include "dist/process_group.h"
#include "tests/support/ranks.h"

namespace hearth::dist {

/// How ranks sum, and where they seem to be.
struct TestRoute {
  Route route = Route::automatic;
  bool ordered = true;
  std::vector<int> hosts{};  ///< by rank; empty: all on one
};
/// Ranks side by side, as many on each host but the last.
inline std::vector<int> hosts_with(int ranks_each, int size) {
  std::vector<int> hosts;
  for (int rank = 0; rank < size; ++rank) hosts.push_back(rank / ranks_each);
  return hosts;
}

inline std::vector<std::unique_ptr<Collective>> process_groups(int size, bool shared_memory,
                                                               const TestRoute& route = {}) {
  // Until the end of the program, as the groups need theirs to their own end.
  static std::vector<std::unique_ptr<ControlServer>> servers;
  const std::string token = "of the test";
  servers.push_back(std::make_unique<ControlServer>("127.0.0.1", 0, ControlOptions{.size = size, .token = token}));
  std::vector<std::unique_ptr<Collective>> groups(static_cast<std::size_t>(size));
  std::vector<std::exception_ptr> failures(groups.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      const Placement placement{.rank = rank,
                                .size = size,
                                .address = "127.0.0.1",
                                .port = servers.back()->port(),
                                .token = token,
                                .is_server_elsewhere = true};
      ProcessGroupOptions options{.shared_memory = shared_memory, .route = route.route, .ordered = route.ordered};
      if (!route.hosts.empty()) options.host = "host " + std::to_string(route.hosts[at]);
      try {
        groups[at] = join_processes(placement, options);
      } catch (...) {
        failures[at] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return groups;
}

/// "loopback", "shared memory", "tcp", or "shared memory and tcp" where the route has no hosts: of two ranks each.
inline std::vector<std::unique_ptr<Collective>> groups_of(const std::string& backend, int size, TestRoute route = {}) {
  if (backend == "shared memory and tcp" && route.hosts.empty()) route.hosts = hosts_with(2, size);
  if (backend != "loopback") return process_groups(size, backend != "tcp", route);
  std::vector<std::unique_ptr<Collective>> groups;
  for (std::unique_ptr<Transport>& transport : loopback_transports(size, route.hosts))
    groups.push_back(std::make_unique<HostGroup>(std::move(transport), route.route, route.ordered));
  return groups;
}

/// Rank 2 of three gives up within a sum of so many elements: the others name it.
inline void expect_giving_up_is_named(const std::string& backend, std::int64_t count) {
  const std::vector<std::string> failures = test::failures_of_ranks(groups_of(backend, 3), [&](Collective& group) {
    EXPECT_EQ(group.backend(), backend);
    group.barrier();
    if (group.rank() == 2) return group.abort("no memory");
    const Tensor x = Tensor::zeros({count});
    group.all_reduce(x).wait();
  });
  EXPECT_EQ(failures[2], "");
  for (int rank = 0; rank < 2; ++rank) {
    const std::string& failure = failures[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(failure.starts_with("rank 2 (pid ")) << failure;
    EXPECT_NE(failure.find("gave up: no memory"), std::string::npos) << failure;
  }
}

/// The payload of the next frame after its kind; "" where the other side has hung up or says nothing for 5 seconds.
inline std::string next_frame(const Socket& socket) {
  std::uint32_t length = 0;
  if (!receive_fully(socket, std::as_writable_bytes(std::span(&length, 1)), in_seconds(5))) return "";
  std::string bytes(length, '\0');
  return receive_fully(socket, std::as_writable_bytes(std::span(bytes)), in_seconds(5)) ? bytes : "";
}
inline bool send_bytes(const Socket& socket, const std::string& bytes) {
  return send_fully(socket, std::as_bytes(std::span(bytes)), in_seconds(5));
}

/// What a rank sends that fits into a group of `size`.
inline JoinRequest request_of(int rank, int size) {
  return {.nonce = random_nonce(),
          .proof = std::string(proof_size, '\0'),
          .rank = rank,
          .size = size,
          .pid = 77,
          .host = "node9",
          .version = build::version};
}

/// Joins as a rank by hand; `answer` is the frame that the server answers with.
inline Socket join_by_hand(int port, JoinRequest request, const std::string& token, std::string* answer = nullptr) {
  Socket socket = connect_to("127.0.0.1", port, in_seconds(5));
  const std::string hello = next_frame(socket);
  EXPECT_EQ(hello.size(), 1 + nonce_size);
  request.proof = hmac_sha256(token, "rank" + request.signed_text(std::string_view(hello).substr(1)));
  EXPECT_TRUE(send_bytes(socket, framed(Frame::join, request.text())));
  const std::string answered = next_frame(socket);
  if (answer != nullptr) *answer = answered;
  return socket;
}

}  // namespace hearth::dist
