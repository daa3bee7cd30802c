// SPDX-License-Identifier: Apache-2.0
// Kinds of disagreement between ranks, and the words by which every other rank names the one that differs.
#pragma once

#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "dist/agreement.h"
#include "tests/dist/groups.h"
#include "tests/support/ranks.h"

namespace hearth::test {

using Words = std::vector<std::string>;

struct Disagreement {
  const char* kind;
  std::function<Words()> messages;  ///< of the ranks that have to name the odd one
  Words words;                      ///< each in each message
};

constexpr int odd = 1;  // of three ranks
inline bool is_odd(const Collective& group) { return group.rank() == odd; }
inline std::string odd_rank() { return join_text("rank 1 (pid ", getpid(), " on ", dist::host_name(), ")"); }

/// What the ranks but the odd one fail with where all of them run f(group), with processes' connections.
inline Words others_fail(const std::function<void(Collective&)>& f) {
  const Words failures = failures_of_ranks(dist::process_groups(3, true), [&](Collective& group) {
    try {
      f(group);
    } catch (const std::exception& error) {
      group.abort(error.what());
      throw;
    }
  });
  return {failures[0], failures[2]};
}

/// By the server and the ranks that meet there, in collectives, and in the models of data parallelism.
std::vector<Disagreement> disagreements_at_the_start();
std::vector<Disagreement> disagreements_in_collectives();
std::vector<Disagreement> disagreements_in_models();

}  // namespace hearth::test
