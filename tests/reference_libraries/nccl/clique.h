// SPDX-License-Identifier: Apache-2.0
// Ranks of the reference NCCL that meet in collectives, and what these compute.
#pragma once

#include <nccl.h>

#include <memory>
#include <vector>

namespace hearth::reference_nccl {

enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast, point_to_point };

struct Message {
  int peer = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// What one rank has called.
struct Operation {
  Kind kind{};
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  std::vector<Message> sends{}, receives{};
};

std::size_t size_of(ncclDataType_t type);

/// All ranks of a communicator. Used under the lock of the emulated runtime.
class Clique {
 public:
  explicit Clique(int size) : at_(static_cast<std::size_t>(size)), passed_(at_.size()), aborted_(at_.size()) {}

  int size() const { return static_cast<int>(at_.size()); }
  /// The rank has come to this in its stream. Whether it can go on: all ranks have come to the same, or those that its
  /// messages reach have come to theirs, the others have gone on already, or the rank has given up. Ranks that have
  /// come to different things wait for ever, as with NCCL.
  bool arrive(int rank, const Operation& operation);
  /// The first that goes on computes for all.
  void pass(int rank);
  void abort(int rank) { aborted_[static_cast<std::size_t>(rank)] = true; }

 private:
  /// What those ranks have come to that meet `rank`, by rank; empty while they do not.
  std::vector<const Operation*> meeting(std::size_t rank) const;
  static void compute(const std::vector<const Operation*>& ranks, const Operation& first);

  std::vector<const Operation*> at_;  ///< by rank; null for one that is not there
  std::vector<bool> passed_, aborted_;
};

}  // namespace hearth::reference_nccl
