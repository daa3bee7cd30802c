// SPDX-License-Identifier: Apache-2.0
// Values of which each rank keeps a part, and which the ranks gather block by block while ops use them: stage 3 of ZeRO
// (Rajbhandari et al. 2020, arXiv:1910.02054), and FSDP (Zhao et al. 2023, arXiv:2304.11277).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/shards.h"
#include "core/tensor.h"

namespace hearth {

/// What the model computes with, of flat parameters that are divided among ranks: a storage for each block, which has
/// bytes only while ops use it. All ranks use the blocks in the same order. While ops use one block, the next one is
/// gathered: that which came next when the ranks were there before, else the neighbour.
class HEARTH_API BlockValues final : public StorageKeeper {
 public:
  /// `values` [shards.size()], this rank's part, is read when a block is gathered; the blocks have its type or
  /// `computed`. With `beside` each has a copy in that type too.
  BlockValues(const Shards& shards, Tensor values, DType computed, std::optional<DType> beside);
  ~BlockValues() override;
  BlockValues(const BlockValues&) = delete;
  BlockValues& operator=(const BlockValues&) = delete;

  /// [size of the block], without bytes until an op uses it.
  const Tensor& block(std::size_t number) const { return units_[number].values; }
  /// Likewise; undefined without copies.
  const Tensor& copy(std::size_t number) const { return units_[number].copy; }
  /// The version of a block that its copy was rounded from.
  const std::shared_ptr<std::uint64_t>& copy_version(std::size_t number) const { return units_[number].copy_version; }

  /// `values` were written: what was gathered counts no more. UsageError where a block was written in place.
  void values_changed();
  /// Brings a block in for the op that begins, and gives back the bytes of those that no op uses.
  void bring(std::size_t number) override;

 private:
  enum class State : std::uint8_t { away, under_way, here };
  struct Unit {
    Tensor values, copy;
    std::shared_ptr<std::uint64_t> copy_version = std::make_shared<std::uint64_t>(0);
    Shards::Range part{};              ///< of this rank
    std::vector<std::int64_t> cuts{};  ///< within the block
    std::int64_t begin = 0;            ///< of the block
    State state = State::away;
    Work work{};
    std::uint64_t used_by = 0;  ///< the op
    std::uint64_t version = 0;  ///< of the values, and of its storage while they are there
  };

  Unit make_unit(const Shards& shards, std::size_t number, DType computed, std::optional<DType> beside);
  void start(Unit& unit);
  void finish(Unit& unit);
  void give_back(Unit& unit);
  /// The block that is wanted next, or none.
  std::optional<std::size_t> expected() const;

  Collective* group_;
  Tensor values_;
  std::vector<Unit> units_;
  bool is_converting_ = false;
  std::optional<std::size_t> before_, current_;
  /// The block that came after these two.
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> successors_;
};

}  // namespace hearth
