// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of a test.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/collective.h"

namespace hearth::test {

/// Runs f(group) on a thread for each group, which ends with its thread; what each threw, "" for nothing.
inline std::vector<std::string> failures_of_ranks(std::vector<std::unique_ptr<Collective>> groups,
                                                  const std::function<void(Collective&)>& f) {
  std::vector<std::string> failures(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < groups.size(); ++i)
    threads.emplace_back([&, i, group = std::move(groups[i])]() mutable {
      try {
        f(*group);
      } catch (const std::exception& error) {
        failures[i] = error.what();
        if (failures[i].empty()) failures[i] = "an exception without a text";
      }
      group.reset();
    });
  for (std::thread& thread : threads) thread.join();
  return failures;
}

}  // namespace hearth::test
