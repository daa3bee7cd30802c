// SPDX-License-Identifier: Apache-2.0
// Gradients of which each rank keeps a part: stage 2 of ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "autograd/parameters.h"
#include "core/collective.h"

namespace hearth::dist {

/// Sums the gradients of `parameters`, which have a Division, over the ranks of its group, block by block. A backward
/// pass writes a block's gradients into a buffer, which exists from the first of them until the ranks have their parts
/// of the sum. Each reduce() adds what the backward pass before it has left to FlatParameters::grads(); the first one
/// after zero_grads() replaces that.
class DividedSums {
 public:
  /// `parameters` must outlive this. With `overlap` a block is summed while the backward pass goes on.
  DividedSums(FlatParameters& parameters, bool overlap);
  ~DividedSums();
  DividedSums(const DividedSums&) = delete;
  DividedSums& operator=(const DividedSums&) = delete;

  /// All contributions of a backward pass to the gradient of this entry have arrived.
  void arrived(std::size_t entry);
  /// Sums the blocks that are left, in which gradients that did not arrive are zeros, and waits for all.
  void reduce();
  /// Forgets what backward passes have left since the last reduce().
  void discard();
  /// Blocks that the last reduce() found summed or under way.
  int overlapped() const { return overlapped_; }

 private:
  struct Block {
    Tensor buffer;            ///< undefined while no gradient of it is there
    std::size_t missing = 0;  ///< entries
  };
  struct Sum {
    std::size_t block;
    Work work;
    Tensor part;  ///< this rank's, where it is added to what is there; else undefined
  };

  /// Where a backward pass writes the gradient of an entry.
  Tensor place(std::size_t entry);
  Tensor view_in_buffer(std::size_t entry);
  void start_ready();
  void start();
  /// Waits for the oldest sums until at most so many are under way.
  void finish(std::size_t most);
  void forget();

  FlatParameters& parameters_;
  const bool overlap_;
  std::vector<std::size_t> block_of_;   ///< by entry
  std::vector<char> arrived_;           ///< likewise
  std::vector<Tensor> own_;             ///< this rank's part of each block within FlatParameters::grads()
  std::vector<Block> blocks_;           ///< in the order of the parameters; a backward pass begins with the last
  std::vector<std::uint64_t> written_;  ///< FlatParameters::zeroings() when a block's sum was last written
  std::size_t started_ = 0;             ///< blocks since the last reduce()
  std::vector<Sum> under_way_;
  int overlapped_ = 0;
};

}  // namespace hearth::dist
