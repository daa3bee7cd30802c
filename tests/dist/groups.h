// SPDX-License-Identifier: Apache-2.0
// Groups of every backend, whose ranks are threads of a test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dist/control.h"
#include "dist/process_group.h"
#include "tests/support/ranks.h"

namespace hearth::dist {

inline std::vector<std::unique_ptr<Collective>> process_groups(int size, bool shared_memory) {
  // Until the end of the program, as the groups need theirs to their own end.
  static std::vector<std::unique_ptr<ControlServer>> servers;
  const std::string token = "of the test";
  servers.push_back(std::make_unique<ControlServer>("127.0.0.1", 0, ControlOptions{.size = size, .token = token}));
  std::vector<std::unique_ptr<Collective>> groups(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      groups[static_cast<std::size_t>(rank)] = join_processes({.rank = rank,
                                                               .size = size,
                                                               .address = "127.0.0.1",
                                                               .port = servers.back()->port(),
                                                               .token = token,
                                                               .is_server_elsewhere = true},
                                                              {.shared_memory = shared_memory});
    });
  for (std::thread& thread : threads) thread.join();
  return groups;
}

inline std::vector<std::unique_ptr<Collective>> groups_of(const std::string& backend, int size) {
  return backend == "loopback" ? loopback_groups(size) : process_groups(size, backend == "shared memory");
}

}  // namespace hearth::dist
