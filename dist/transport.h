// SPDX-License-Identifier: Apache-2.0
// How bytes get from one rank to another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace hearth::dist {

struct Outgoing {
  int to = 0;
  std::span<const std::byte> bytes;
};
struct Incoming {
  int from = 0;
  std::span<std::byte> bytes;
};

/// The connections of one rank with all others. Several threads may exchange at a time if no two of them send to, or
/// receive from, the same rank.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const char* name() const = 0;
  /// The host of each rank, numbered from 0 in the order of ranks: processes of one machine and container.
  virtual std::vector<int> hosts() const { return std::vector<int>(static_cast<std::size_t>(size())); }

  /// Sends and receives all of these, in any order, and returns when all are through. Between two ranks messages arrive
  /// in the order of the calls; sizes must match. PeerError where a rank is gone or nothing moves for too long.
  virtual void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) = 0;
  /// From any thread: this rank gives up. Exchanges under way and later ones of all ranks throw PeerError, which names
  /// it and the reason.
  virtual void abort(const std::string& reason) = 0;
  /// From any thread: why exchanges fail from now on; "" as long as they do not.
  virtual std::string failure() const = 0;
  /// What errors call a rank.
  virtual std::string who(int rank) const { return "rank " + std::to_string(rank); }
  /// From any thread: what this rank does, for what others are told should it fail.
  virtual void set_status(const std::string&) {}
};

/// Transports of `size` ranks that are threads of this process. `hosts`: those that they claim to be on.
std::vector<std::unique_ptr<Transport>> loopback_transports(int size, const std::vector<int>& hosts = {});

}  // namespace hearth::dist
