// SPDX-License-Identifier: Apache-2.0
// In which order the emulated GPU takes what CUDA leaves unordered: blocks of a grid, threads of a block, threads that
// may go on after a barrier.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::cuda::emulate {

struct Order {
  enum class Kind { forward, reverse, shuffled };
  Kind kind = Kind::forward;
  std::uint64_t seed = 0;
};

/// "forward", "reverse" or a number, else UsageError.
Order order_named(std::string_view text);
std::string name_of(const Order& order);

/// A splitmix64 sequence.
class Shuffler {
 public:
  explicit Shuffler(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  /// In 0 .. n - 1, near enough evenly.
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>((next() >> 32) * n >> 32); }

 private:
  std::uint64_t state_;
};

/// A permutation of 0 .. n - 1 that takes no memory, for the blocks of a grid; n below 2^31.
class BlockOrder {
 public:
  BlockOrder(const Order& order, std::uint64_t n);
  std::uint64_t at(std::uint64_t i) const { return (start_ + i * step_) % n_; }

 private:
  std::uint64_t n_, start_, step_;
};

/// The order in which the threads of a block start: whole warps together, so that few stacks are in use.
void thread_order(const Order& order, Shuffler& shuffler, unsigned threads, std::vector<std::uint16_t>& result);

}  // namespace hearth::cuda::emulate
