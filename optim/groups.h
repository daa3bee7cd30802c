// SPDX-License-Identifier: Apache-2.0
// Which hyper-parameters apply to which part of the flat buffers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/parameters.h"
#include "core/cpu/parallel.h"

namespace hearth::optim {

/// Parameters picked by name that differ from the rest.
struct ParameterGroup {
  /// Patterns of full names: '*' stands for any characters, '?' for one.
  std::vector<std::string> match;
  double lr_scale = 1.0;
  /// Instead of the optimizer's; applies to norms and biases too.
  std::optional<double> weight_decay = std::nullopt;
  /// Whether LARS and LAMB take steps in proportion to these weights' norm; by default as their `adapt` says.
  std::optional<bool> adapt = std::nullopt;
};

/// The parameters whose steps LARS and LAMB take in proportion to their norm.
enum class Adapt {
  matrices,  ///< of rank 2 and more: all but norms and biases, decayed or not
  decayed,   ///< whose weight decay is not 0, as timm and NVIDIA's Apex
  all,
};

/// Learning rates that fall from the top of a model to its bottom: those of the top layer stay, and each layer below
/// has `decay` times the rate of the one above it. Source: Clark et al., "ELECTRA" (2020); Bao et al., "BEiT" (2022).
struct LayerDecay {
  double decay = 1.0;
  /// Beginnings of full names, part by part between the dots; '*' stands for any characters within a part, '?' for one.
  /// Each beginning that is found is a layer: "blocks.*" makes one of blocks.0, one of blocks.1 and so on. Layers lie
  /// in the order of their parameters in the model; the first pattern that fits a name counts. Parameters that none
  /// fits belong to the layer before them, those before the first layer to a layer at the bottom.
  std::vector<std::string> layers = {};
};

struct GroupOptions {
  double weight_decay = 0.0;
  /// Whether parameters of rank 0 and 1 (norms, biases) decay too.
  bool decay_norm_bias = false;
  /// The first group that matches a parameter applies.
  std::vector<ParameterGroup> groups = {};
  /// Multiplies the learning rate of whatever group.
  LayerDecay layer_decay = {};
  /// Counts where ranges are by parameter.
  Adapt adapt = Adapt::matrices;
};

/// True if `pattern`, in which '*' stands for any characters and '?' for one, covers the whole of `name`.
HEARTH_API bool matches(std::string_view pattern, std::string_view name);

/// The factor on the learning rate of each of the parameters, named in the order of the model.
/// ConfigError for a decay that is not above 0 and at most 1 or that has no layers, and for a pattern that fits no
/// name.
HEARTH_API std::vector<double> layer_scales(const LayerDecay& options, const std::vector<std::string>& names);

/// Neighbouring elements of the flat buffers with equal hyper-parameters.
struct ParameterRange {
  std::int64_t begin;
  std::int64_t end;
  double lr_scale;
  double weight_decay;
  bool adapts;            ///< has a step in proportion to its norm, in LARS and LAMB; a merged range says false
  std::size_t group = 0;  ///< index into UpdatePlan::groups(); of a merged range that of its first parameter
};

/// Whether neighbours with equal hyper-parameters share a range, or each parameter has its own.
enum class Ranges { merged, by_parameter };

/// The flat buffers cut into ranges, and the ranges into pieces of fixed size for the thread pool and for a device's
/// blocks. Where ranks update a part each, ranges and pieces are still those of the whole, so that sums over a range
/// have the same terms for any number of ranks; the positions of pieces are those among what the rank keeps.
class HEARTH_API UpdatePlan {
 public:
  /// The most a piece holds.
  static constexpr std::int64_t piece_elements = FlatParameters::piece_elements;

  /// ConfigError for a group without patterns, a pattern that matches no parameter, a group without effect because
  /// groups before it have all of its parameters, `adapt` where ranges are merged, a negative scale or a negative
  /// decay, and as layer_scales().
  UpdatePlan(const FlatParameters& parameters, const GroupOptions& options, Ranges ranges = Ranges::merged);

  const std::vector<ParameterRange>& ranges() const { return ranges_; }
  /// The patterns of each group, as "*.bias, *.scale", and last "*" for the parameters that no group matches.
  const std::vector<std::string>& groups() const { return groups_; }

  /// Part of one range, small enough to stay in a core's cache.
  struct Piece {
    std::int64_t begin;
    std::int64_t end;   ///< `begin` for a piece of other ranks
    std::size_t range;  ///< index into ranges()
    std::size_t index;  ///< of this piece
  };
  std::size_t piece_count() const { return pieces_.size(); }
  const std::vector<Piece>& pieces() const { return pieces_; }

  /// f(piece) for all pieces of this rank, spread over the thread pool; the pieces depend on the parameters' sizes
  /// only.
  template <class F>
  void for_each_piece(const F& f) const {
    cpu::parallel_chunks(static_cast<std::int64_t>(tasks_.size()) - 1, [&](std::int64_t task) {
      const auto t = static_cast<std::size_t>(task);
      for (std::size_t i = tasks_[t]; i < tasks_[t + 1]; ++i) f(pieces_[i]);
    });
  }

  /// The same for kernels, made where the parameters are; undefined for parameters on the CPU.
  /// i64 [pieces, 3]: begin, end and range of each piece.
  const Tensor& piece_table() const { return piece_table_; }
  /// i64 [ranges + 1]: the first piece of each range, and the number of pieces.
  const Tensor& first_pieces() const { return first_pieces_; }
  /// f64 [ranges, 3]: lr_scale, weight_decay and adapts (0 or 1) of each range.
  const Tensor& range_table() const { return range_table_; }

 private:
  void cut_pieces(const std::vector<Shards::Range>& own);
  void make_tables(Device device);

  std::vector<ParameterRange> ranges_;
  std::vector<std::string> groups_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> tasks_;  // first piece of each task, and the number of pieces
  Tensor piece_table_, first_pieces_, range_table_;
};

}  // namespace hearth::optim
