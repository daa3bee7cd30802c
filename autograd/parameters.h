// SPDX-License-Identifier: Apache-2.0
// Named parameters, and the flat memory that holds all values in one buffer and all gradients in another:
// zeroing is a flag, an optimizer is one pass, data parallelism sends whole pieces.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/block_values.h"
#include "core/io/state.h"
#include "core/other_names.h"
#include "core/shards.h"
#include "core/tensor.h"

namespace hearth {

/// A parameter or buffer inside a module: its full name ("layer1.0.conv1.weight") and the handle to rebind.
struct NamedTensor {
  std::string name;
  Tensor* tensor;
  bool keep_fp32 = false;      ///< stays f32 in mixed precision, as those of norms do
  bool frozen = false;         ///< is not trained: FlatParameters leave it where it is
  bool uninitialized = false;  ///< of a module, and nobody has given it values

  HEARTH_OTHER_MEMBER(grad, "write p.tensor->grad()")
};

/// For each handle the number of the first one in the list that leads to the same elements (tied weights); its own
/// where none before it does. ShapeError where it leads to the same first element only.
HEARTH_API std::vector<std::size_t> tied_to(const std::vector<NamedTensor>& parameters);

/// A second flat buffer that holds f32 values in a low-precision type.
struct LowPrecisionCopy {
  enum class Use {
    /// The handles stay f32; ops that autocast runs in the low-precision type read the copies (O1).
    beside,
    /// The handles become the low-precision values, except those of `wide` parameters; the f32 values are what the
    /// optimizer
    /// updates and what is saved (O2).
    instead,
  };
  DType dtype = DType::bf16;
  Use use = Use::beside;
  /// Of `instead`: each rank of this group, which outlives the parameters, has the f32 values of a part only, and
  /// updates that part; see FlatParameters::shard_updates(). Null: all have them whole.
  Collective* shards = nullptr;
};

/// Each rank of a group keeps a part of the gradients, and of the f32 (or f64) values that it updates: stage 2 of ZeRO.
/// With `values` it keeps no others, and the ranks gather what ops use (BlockValues): stage 3. All ranks run the same
/// ops with the parameters then. Parts are those of blocks: parameters in order, at least so many elements together.
struct Division {
  Collective* group = nullptr;  ///< outlives the parameters
  std::int64_t block_elements = 1 << 20;
  bool values = false;
};

/// Moves parameters into one flat buffer of values and one of gradients, each parameter starting on a 64-byte boundary
/// (the gaps hold zeros). The handles are rebound to leaf views of the buffers. All parameters share one dtype
/// and one device. Gradients have the type of values(), also where a handle is of low precision. Handles that lead to
/// the same elements (tied weights) are one parameter, under the first one's name, and stay tied. Frozen parameters are
/// left out.
///
/// A handle keeps its tensor from then on: values are written with copy_from(), never by assigning another tensor.
class HEARTH_API FlatParameters {
 public:
  struct Entry {
    std::string name;
    Tensor value;        ///< leaf: what the model computes with
    Tensor master;       ///< view of values(); [n], its part, where ranks have a part of them each
    std::int64_t begin;  ///< first element within the buffers
    std::int64_t size;   ///< elements
    int handles = 0;     ///< that were rebound to `value`
  };

  /// DTypeError for parameters of different types, and for a low-precision copy unless they are f32 and it is f16 or
  /// bf16; UsageError for a low-precision copy beside the values with shards, for a handle that is listed twice, for a
  /// parameter that is part of other FlatParameters or was never initialized, and where one of tied handles is frozen
  /// and another is not; ShapeError for tied handles of different shapes.
  explicit FlatParameters(const std::vector<NamedTensor>& parameters,
                          std::optional<LowPrecisionCopy> low_precision = {}, std::optional<Division> division = {});

  const std::vector<Entry>& entries() const { return entries_; }
  /// Elements of the flat buffers.
  std::int64_t total() const { return total_; }
  /// [total], every parameter; what this rank keeps where ranks have a part each (LowPrecisionCopy::shards, Division).
  const Tensor& values() const { return values_; }
  /// [total], every gradient; what this rank keeps where they are divided. After backward, parameters that had no part
  /// in it hold zeros once finish_grads ran.
  const Tensor& grads() const { return grads_; }
  /// Whether ranks keep a part of the gradients each (Division).
  bool divides_grads() const { return !blocks_.empty(); }
  /// Whether they gather values while ops use them (Division::values).
  bool divides_values() const { return block_values_ != nullptr; }
  /// Neighbouring parameters that are divided among the ranks together.
  struct Block {
    std::int64_t begin = 0;  ///< first element within the buffers
    std::int64_t size = 0;
    std::size_t first = 0;  ///< entry
    std::size_t entries = 0;
  };
  /// Of a Division; else none.
  const std::vector<Block>& blocks() const { return blocks_; }
  /// [total], the values rounded to the low-precision type; undefined without a low-precision copy. Whoever writes to
  /// values() writes here too (updates do), or calls refresh_low_precision().
  const Tensor& low_precision() const { return low_precision_; }
  /// Bytes of all that holds values: those that are updated, and what the model computes with.
  std::int64_t value_bytes() const;
  /// Rounds all values anew. All ranks call it where they have a part each.
  void refresh_low_precision();

  /// The most of a parameter that is updated, and whose squares are summed, in one piece.
  static constexpr std::int64_t piece_elements = 16384;
  /// Where the buffers would be cut for so many ranks: between pieces of parameters, as evenly as these allow.
  std::vector<std::int64_t> even_cuts(int ranks) const;
  /// The same of each block of at least so many elements, as Shards::cuts.
  std::vector<std::int64_t> block_cuts(int ranks, std::int64_t block_elements) const;
  /// From now on an optimizer or a moving average keeps what it has of this rank's part of the values only, and each
  /// update ends with the values of all ranks' parts. All ranks call it, with `group` that must outlive this, before
  /// the optimizer is made. UsageError where it was called before.
  void shard_updates(Collective& group);
  /// How updates are divided among ranks; null where they are not.
  const Shards* shards() const { return shards_ ? &*shards_ : nullptr; }
  /// This rank's part of a tensor [total]; all of it where updates are not divided.
  Tensor own(const Tensor& flat) const { return shards_ ? shards_->own(flat) : flat; }
  /// This rank's part of the gradients; all of them where updates are not divided.
  Tensor own_grads() const { return divides_grads() ? grads_ : own(grads_); }
  /// This rank's part of the values; all of them where updates are not divided.
  Tensor own_values() const { return split_ ? values_ : own(values_); }
  /// Brings what the model computes with up to date where other ranks have written their parts.
  void gather_values();

  /// The names and the f32 (or f64) values, for saving; see register_masters() where ranks have a part of them each.
  std::vector<NamedTensor> masters();
  /// Registers them, whole in any case.
  void register_masters(State& state);
  /// Marks all gradients as empty: the next contributions replace them.
  void zero_grads();
  /// Writes zeros where no contribution arrived since zero_grads. UsageError if none arrived at all.
  void finish_grads();
  /// Calls of zero_grads() so far.
  std::uint64_t zeroings() const { return zeroings_; }
  /// Of a Division: the ranks' sums of gradients were written to grads() since zero_grads().
  void note_sums();

  // For optimizers, which an address tells apart.

  /// Before an update: finish_grads(). UsageError, naming the parameter, where the update would be lost: a handle was
  /// given another tensor, or low-precision weights were written that the update overwrites; and where another
  /// optimizer has used these gradients.
  void begin_update(const void* optimizer);
  /// After it: what was written to values() was written to low_precision() too.
  void end_update(const void* optimizer);
  /// Ends with these FlatParameters.
  std::weak_ptr<const void> lifetime() const { return lease_; }

 private:
  /// Makes an entry of every parameter that is not tied to one before it; the number of its entry for each.
  std::vector<std::size_t> add_entries(const std::vector<NamedTensor>& parameters);
  void bind(Entry& entry, const NamedTensor& parameter, const std::optional<LowPrecisionCopy>& low_precision);
  std::vector<Block> blocks_of(std::int64_t block_elements) const;
  std::vector<std::int64_t> cuts_between(const Block& block, int ranks) const;
  void make_wide(const std::vector<NamedTensor>& parameters, const std::vector<std::size_t>& entry_of,
                 const std::optional<LowPrecisionCopy>& low_precision);
  void split_values();
  void divide_entries();
  void divide_wide();
  /// 0 without blocks.
  std::size_t block_of(std::size_t entry) const;
  void gather_split_values();
  void check_handles() const;
  void check_low_precision() const;
  /// Takes low_precision() to be the rounded values() from now on.
  void note_rounded();
  /// Changes where what the model computes with is written, beside values().
  std::uint64_t computed_version() const;

  static std::shared_ptr<const void> make_lease();

  std::shared_ptr<const void> lease_ = make_lease();  ///< what the leaves' GradState::flat waits for
  std::vector<Entry> entries_;
  std::int64_t total_ = 0;
  Tensor values_;
  Tensor grads_;
  Tensor low_precision_;
  std::optional<Shards> shards_;
  /// Of values that ranks have a part of each.
  struct Split {
    std::vector<Shards> of_entries;
    Tensor gathered;                       ///< values of all ranks in their own type, where the model takes these
    Tensor wide;                           ///< the f32 values that the model itself takes, of all ranks
    std::vector<std::int64_t> wide_begin;  ///< where an entry has its own there; -1: it is of low precision
    Shards of_wide;
  };
  std::unique_ptr<Split> split_;
  std::unique_ptr<BlockValues> block_values_;
  std::vector<Block> blocks_;
  std::shared_ptr<std::uint64_t> rounded_ =
      std::make_shared<std::uint64_t>(0);  ///< version of values_ in low_precision_
  std::uint64_t computed_version_ = 0;     ///< at the last note_rounded()
  const void* updated_by_ = nullptr;
  std::uint64_t updated_from_ = 0;  ///< version of grads_
  std::uint64_t zeroings_ = 0;
  bool has_sums_ = false;
};

}  // namespace hearth
