// SPDX-License-Identifier: Apache-2.0
// How the gradients of a bucket become their sum over the ranks: as they are, or compressed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/parameters.h"
#include "core/collective.h"

namespace hearth::dist {

/// Gradients that are summed together: whole parameters, one after the other.
struct Bucket {
  std::int64_t begin = 0;  ///< first element within FlatParameters::grads()
  std::int64_t size = 0;
  int parameters = 0;
};

/// A collective of a bucket.
struct Transfer {
  bool is_sum = false;     ///< of `count` elements over all ranks; else each rank sends as many to each other one
  std::int64_t count = 0;  ///< elements
  DType type{};            ///< on the wire
};

/// What a strategy is made for; all of it outlives the strategy.
struct StrategyContext {
  Collective& group;
  const FlatParameters& parameters;
  const std::vector<Bucket>& buckets;  ///< from the end of the gradients to their beginning
};

/// Sums the gradients of a step, bucket by bucket. DataParallel calls, on the thread of the backward pass:
///
///   begin_step(); begin(0), begin(1), ...; commit() where the update was made.
///
/// begin() compresses and starts the first collective of a bucket. Each of `further()` more is started by next(), after
/// the one before is done: when the next bucket begins, or at the end. So all ranks start the same collectives in the
/// same order. end() leaves the sum, with the same bits on all ranks, in the gradients. Between begin() and end() the
/// gradients may hold anything.
///
/// A gradient that is not finite on any rank gives a sum that is not finite on all.
class HEARTH_API Strategy {
 public:
  Strategy() = default;
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  /// "none", and the type in a configuration.
  virtual const char* name() const = 0;
  /// What all ranks must have in common, by name.
  virtual std::vector<std::pair<std::string, std::string>> settings() const { return {}; }
  /// Whether begin_step() reads the gradients of all buckets, so that none is summed before the backward pass is over.
  virtual bool reads_all() const { return false; }
  /// Whether the sums come with SGD's momentum, so that the optimizer adds none to them.
  virtual bool has_momentum() const { return false; }

  virtual void begin_step() {}
  /// `grads` [n]: the bucket's part of FlatParameters::grads().
  virtual Work begin(std::size_t bucket, const Tensor& grads) = 0;
  virtual int further() const { return 0; }
  virtual Work next(std::size_t bucket, const Tensor& grads);
  virtual void end(std::size_t bucket, const Tensor& grads);

  /// Whether a step leaves something to the next one. All of it is state: what a step computes counts from commit() on,
  /// so that a step without an update leaves nothing.
  virtual bool is_stateful() const { return false; }
  virtual void commit() {}
  /// The loss scale of the gradients from now on; state of gradients is brought to it. A power of 2 changes no bit.
  virtual void set_scale(double scale);
  /// Registers the state under "compress."; what each rank has of its own is a shard of [ranks, n].
  virtual void register_state(State& state);

  /// The collectives of a bucket, begin()'s first; where they differ from step to step, those of the last one.
  virtual std::vector<Transfer> transfers(std::size_t bucket) const = 0;
  /// Bytes that this rank has sent to each other one in the last step, at most.
  virtual std::int64_t payload() const = 0;
};

/// Makes the strategy of a DataParallel.
using StrategyFactory = std::function<std::unique_ptr<Strategy>(const StrategyContext&)>;

/// Sums the gradients as they are; with `wire`, a low-precision type, f32 gradients travel in that type.
HEARTH_API StrategyFactory plain_sum(std::optional<DType> wire);

/// A parameter within a bucket.
struct BucketPart {
  std::int64_t begin;  ///< first element within the bucket
  std::int64_t size;
  std::int64_t rows;  ///< of its matrix: the first dimension; 0 for rank 0 and 1
};
/// The parameters of each bucket, by address. DTypeError unless the gradients are f32, DeviceError unless they are on
/// the CPU, naming the strategy.
HEARTH_API std::vector<std::vector<BucketPart>> parts_of(const StrategyContext& context, const char* strategy);

/// A tensor that each rank has of its own as state: a shard of [ranks, n].
class HEARTH_API RankState {
 public:
  RankState(Collective& group, std::int64_t size);
  /// What the last commit() left.
  const float* now() const { return reinterpret_cast<const float*>(now_.bytes()); }
  /// What the step under way writes.
  float* next() const { return reinterpret_cast<float*>(next_.bytes()); }
  void commit() { std::swap(now_, next_); }
  void add_to(State& state, const std::string& name);

 private:
  Shards shards_;
  Tensor now_, next_;
};

}  // namespace hearth::dist
