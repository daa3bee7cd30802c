// SPDX-License-Identifier: Apache-2.0
// The routes by which ranks form a sum: who sends which piece to whom.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/collective.h"
#include "dist/call.h"
#include "dist/route.h"
#include "dist/transport.h"

namespace hearth::dist {

/// Why ranks on these hosts, a number for each rank, cannot sum by `route`; "" if they can. `ordered`: the sums have to
/// be those by pairs of neighbouring ranks.
std::string why_not(Route route, const std::vector<int>& hosts, bool ordered);

/// Sums of one rank with all others. With n ranks every route but hierarchical has each rank send and receive
/// 2 (n - 1) / n of a tensor's bytes:
///
/// direct: a rank receives its piece from all others, adds up and sends the sum to all: 2 rounds.
/// ring: in each round a rank adds its own piece to what its neighbour sends; then the sums go round: 2 (n - 1) rounds.
/// tree: recursive halving, then doubling (Rabenseifner 2004, doi:10.1007/978-3-540-24685-5_1): 2 log2(n) rounds.
/// hierarchical: on m ranks a host, the ranks of a host form pieces of their sum; ranks of one number on all h hosts
/// sum their piece, as direct does; the ranks of a host give each other these. 4 rounds, of which two cross hosts with
/// 2 (h - 1) / (h m) of the bytes a rank. A second thread does these two, while the first works on the next chunk.
///
/// Partial sums of 16-bit types travel in f32, the results in the type.
class SumRoute {
 public:
  using Exchange = std::function<void(std::span<const Outgoing>, std::span<const Incoming>)>;
  using Abort = std::function<void(const std::string& reason)>;

  /// ConfigError, with the reason, where the ranks cannot sum by `route`. Every rank gives the same. `exchange` is
  /// called by two threads at a time, with ranks of this host and of others; `abort` has those under way fail.
  SumRoute(Route route, bool ordered, int rank, std::vector<int> hosts, Exchange exchange, Abort abort);

  /// Not automatic.
  Route route() const { return route_; }
  /// As the constructor, while no sum is under way.
  void use(Route route);
  const std::vector<int>& hosts() const { return hosts_; }
  bool is_remote(int rank) const {
    return hosts_[static_cast<std::size_t>(rank)] != hosts_[static_cast<std::size_t>(rank_)];
  }
  /// "hierarchical, 4 hosts of 2 ranks"
  std::string text() const;

  /// Replaces `count` elements by their sums (minima, maxima) over all ranks.
  void all_reduce(std::byte* x, DType type, std::int64_t count, Reduce op);
  /// part, `count` elements, becomes this rank's piece of the sum of x, as many pieces as ranks.
  void reduce_scatter(const std::byte* x, DType type, std::int64_t count, std::byte* part);

 private:
  using Rows = std::vector<const std::byte*>;
  struct Chunk;
  class Pipeline;

  /// A part of a tensor that fits in the buffers.
  void sum_part(std::byte* x, DType type, std::int64_t count, Reduce op);
  void sum_direct(std::byte* x, DType type, std::int64_t count, Reduce op);
  void sum_hierarchically(std::byte* x, DType type, std::int64_t count, Reduce op);
  void sum_on_host(const Chunk& chunk, Reduce op);
  void sum_between_hosts(const Chunk& chunk, Reduce op);
  void sum_round_ring(std::byte* x, DType type, std::int64_t count, Reduce op);
  void sum_by_halves(std::byte* x, DType type, std::int64_t count, Reduce op);

  /// Sends each of `ranks` its piece of x and receives theirs of this rank's piece; the rows of it, in their order.
  Rows scatter(const std::vector<int>& ranks, const std::byte* x, std::size_t element, const Pieces& pieces,
               std::vector<std::byte>& received);
  /// Sends this rank's piece of x to all of `ranks` and receives theirs.
  void gather(const std::vector<int>& ranks, std::byte* x, std::size_t element, const Pieces& pieces);
  int index_in(const std::vector<int>& ranks) const;
  /// x itself, or a copy in the type in which sums are formed.
  std::byte* sums_of(std::byte* x, DType type, std::int64_t count);

  const bool ordered_;
  Route route_;
  const int rank_;
  const std::vector<int> hosts_;
  const Exchange exchange_;
  const Abort abort_;
  std::vector<int> all_;    ///< ranks
  std::vector<int> ring_;   ///< the same, those of a host side by side
  std::vector<int> local_;  ///< on this rank's host
  std::vector<int> peers_;  ///< of this rank's number on their hosts
  std::vector<std::byte> received_, received_remotely_;
  std::array<std::vector<std::byte>, 2> sums_;  ///< in f32, of 16-bit types
};

}  // namespace hearth::dist
