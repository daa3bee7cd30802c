// SPDX-License-Identifier: Apache-2.0
// What the ranks of a group have to have in common, compared name by name, and how errors call them.
#pragma once

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "core/collective.h"

namespace hearth::dist {

/// What the groups of dist know beyond their collectives.
class HEARTH_API Peers {
 public:
  virtual ~Peers() = default;
  /// "rank 2 (pid 4711 on node7)"; "rank 2" of threads.
  virtual std::string who(int rank) const = 0;
  /// What this rank does from now on, "step 12": compared before each collective, and named where this rank fails.
  virtual void set_status(const std::string& status) = 0;
  /// How large sums go from rank to rank: "hierarchical, 4 hosts of 2 ranks"; "" where a library decides.
  virtual std::string route() const { return ""; }
};

/// The same of any group: "rank 2" where it is none of dist's.
HEARTH_API std::string who(const Collective& group, int rank);
/// What failed, for the other ranks: the error's text, or words in place of "std::bad_alloc".
HEARTH_API std::string failure_text(const std::exception& error);
HEARTH_API void set_status(Collective& group, const std::string& status);
HEARTH_API std::string route_of(const Collective& group);

/// What each rank gave, in order. Every rank calls it.
HEARTH_API std::vector<std::int64_t> gather(Collective& group, std::int64_t number);
HEARTH_API std::vector<std::string> gather(Collective& group, const std::string& text);

using NamedValues = std::vector<std::pair<std::string, std::string>>;

/// PeerError, unless all ranks have the same values under the same names: it names the first rank that differs from
/// rank 0, and the first few values of both. `what` says what is compared, `remedy` what to do. Every rank calls it.
HEARTH_API void require_same(Collective& group, const std::string& what, const NamedValues& mine,
                             const std::string& remedy = "start all ranks with the same files, options and data");

}  // namespace hearth::dist
