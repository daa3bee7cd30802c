// SPDX-License-Identifier: Apache-2.0
// One table of names, walked in both directions.
#include "models/weights/swin_weights.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "models/swin.h"
#include "models/weights/import.h"
#include "models/weights/named_tensors.h"
#include "ops/attention/window_attention.h"

namespace hearth::models {
namespace {

enum class PartHas { both, weight, neither };

/// A layer behind the beginnings that its part of the model has here and there, with the shape of its weight: W is
/// the stage's width, D, Q and F are two, three and four times as much. Its bias has the first extent. `neither`: the
/// name is a tensor's own.
struct Part {
  std::string_view ours, theirs, shape;
  PartHas has = PartHas::both;
};

constexpr Part embedding_parts[] = {{"0", "proj", "WIPP"}, {"2", "norm", "W"}};
constexpr Part block_parts[] = {
    {"norm1", "norm1", "W"},
    {"attn.relative_position_bias_table", "attn.relative_position_bias_table", "TN", PartHas::neither},
    {"attn.qkv", "attn.qkv", "QW"},
    {"attn.proj", "attn.proj", "WW"},
    {"norm2", "norm2", "W"},
    {"mlp.0", "mlp.fc1", "HW"},
    {"mlp.3", "mlp.fc2", "WH"},
};
constexpr Part merging_parts[] = {{"reduction", "reduction", "DF", PartHas::weight}, {"norm", "norm", "F"}};
constexpr Part norm_parts[] = {{"norm", "norm", "W"}};

/// Where a part of the model lies here and there.
struct Place {
  std::string ours, theirs;
};

Place block_at(std::size_t stage, std::size_t block) {
  return {join_text("features.", 2 * stage + 1, ".", block, "."), join_text("layers.", stage, ".blocks.", block, ".")};
}

Place merging_behind(std::size_t stage, WeightFormat format) {
  const std::size_t theirs = format == WeightFormat::timm_swin ? stage + 1 : stage;
  return {join_text("features.", 2 * stage + 2, "."), join_text("layers.", theirs, ".downsample.")};
}

bool has_any(const ByName& tensors, const std::string& beginning) {
  const auto found = tensors.lower_bound(beginning);
  return found != tensors.end() && found->first.starts_with(beginning);
}

/// A model's tensors, renamed in one of the directions.
class Renaming {
 public:
  Renaming(ByName given, WeightFormat format, bool to_ours, NameReport& report)
      : tensors_(std::move(given), report), format_(format), to_ours_(to_ours) {}

  std::vector<Weight> run() {
    // The authors' option; timm has no place for it.
    if (format_ == WeightFormat::microsoft_swin && tensors_.has("absolute_pos_embed"))
      move("absolute_pos_embed", "absolute_pos_embed", "ELW");
    move_all({"features.0.", "patch_embed."}, embedding_parts);
    for (std::size_t stage = 0; stage == 0 || (stage < max_swin_stages && has_block(stage, 0)); ++stage) {
      if (stage > 0) {
        move_all(merging_behind(stage - 1, format_), merging_parts);
        tensors_.double_widths("HN");
      }
      for (std::size_t block = 0; block == 0 || has_block(stage, block); ++block)
        move_all(block_at(stage, block), block_parts);
    }
    move_all({}, norm_parts);
    const Part head[] = {{"head", format_ == WeightFormat::timm_swin ? "head.fc" : "head", "CW"}};
    if (has_any(tensors_.given(), join_text(to_ours_ ? head[0].theirs : head[0].ours, "."))) move_all({}, head);
    tensors_.finish();
    return std::move(moved_);
  }

 private:
  bool has_block(std::size_t stage, std::size_t block) const {
    const Place place = block_at(stage, block);
    return has_any(tensors_.given(), to_ours_ ? place.theirs : place.ours);
  }

  void move_all(const Place& place, std::span<const Part> parts) {
    for (const Part& part : parts) {
      const std::string ours = place.ours + std::string(part.ours), theirs = place.theirs + std::string(part.theirs);
      if (part.has == PartHas::neither) {
        move(ours, theirs, part.shape);
        continue;
      }
      move(ours + ".weight", theirs + ".weight", part.shape);
      if (part.has == PartHas::both) move(ours + ".bias", theirs + ".bias", part.shape.substr(0, 1));
    }
  }

  void move(const std::string& ours, const std::string& theirs, std::string_view shape) {
    const bool is_filter = shape.size() == 4;
    const Tensor value = tensors_.take(to_ours_ ? theirs : ours, is_filter && !to_ours_ ? "WPPI" : shape);
    if (!value.defined()) return;
    moved_.push_back(to_ours_ ? Weight{ours, from_torch_layout(ours, value)}
                              : Weight{theirs, to_torch_layout(theirs, value)});
  }

  NamedTensors tensors_;
  WeightFormat format_;
  bool to_ours_;
  std::vector<Weight> moved_;
};

/// What the tensors tell.
struct Sizes {
  std::int64_t patch = 0, window = 0;
  std::vector<std::int64_t> depths{};
};

Sizes sizes_of(const WeightSet& ours) {
  Sizes sizes;
  const Tensor* const filters = find_weight(ours, "features.0.0.weight");
  const Tensor* const table = find_weight(ours, join_text(block_at(0, 0).ours, "attn.", swin_table_ending));
  if (filters == nullptr || filters->rank() != 4 || table == nullptr || table->rank() != 2) return {};
  sizes.patch = filters->dim(1);
  sizes.window = 1;
  while (sizes.window <= max_window && (2 * sizes.window - 1) * (2 * sizes.window - 1) < table->dim(0)) ++sizes.window;
  const auto has_block = [&](std::size_t stage, std::size_t block) {
    return find_weight(ours, block_at(stage, block).ours + "norm1.weight") != nullptr;
  };
  for (std::size_t stage = 0; has_block(stage, 0); ++stage) {
    std::size_t depth = 1;
    while (has_block(stage, depth)) ++depth;
    sizes.depths.push_back(static_cast<std::int64_t>(depth));
  }
  return sizes.patch > 0 && sizes.window > 0 ? sizes : Sizes{};
}

}  // namespace

std::string timm_difference(const WeightSet& ours, std::int64_t height, std::int64_t width) {
  const Sizes sizes = sizes_of(ours);
  if (sizes.depths.empty()) return "";
  std::int64_t rows = height / sizes.patch, columns = width / sizes.patch;
  // Blocks with odd numbers are shifted, by half a window, unless one window sees all. Where half a window is to be
  // filled up, both have the same tokens in windows of their own.
  const auto differs = [&](std::int64_t tokens) {
    const std::int64_t rest = tokens % sizes.window;
    return tokens > sizes.window && rest != 0 && 2 * rest != sizes.window;
  };
  for (std::size_t stage = 0; stage < sizes.depths.size(); ++stage) {
    if (sizes.depths[stage] > 1 && (differs(rows) || differs(columns)))
      return join_text("from images of ", height, " x ", width, " pixels timm computes something else: of the ", rows,
                       " x ", columns, " tokens of stage ", stage + 1, " no windows of ", sizes.window, " x ",
                       sizes.window,
                       " can be made, and timm shifts them before it fills them up, Hearth and "
                       "torchvision afterwards; sides that are multiples of ",
                       timm_multiple(ours), " make no difference");
    rows = (rows + 1) / 2;
    columns = (columns + 1) / 2;
  }
  return "";
}

std::int64_t timm_multiple(const WeightSet& ours) {
  const Sizes sizes = sizes_of(ours);
  return sizes.depths.empty() ? 0 : sizes.patch * sizes.window << (sizes.depths.size() - 1);
}

bool is_position_index(const Weight& weight, const WeightSet& set) {
  if (!weight.name.ends_with(swin_index_ending)) return false;
  const Tensor* const table = find_weight(set, replaced(weight.name, swin_index_ending, swin_table_ending));
  const Tensor index = table == nullptr ? Tensor() : relative_position_index(*table);
  // One row for each query, as others than torchvision have it, is the same.
  const Tensor given = weight.value.contiguous();
  return index.defined() && given.dtype() == index.dtype() && given.size() == index.size() &&
         std::memcmp(given.bytes(), index.bytes(), index.byte_size()) == 0;
}

WeightSet swin_to_hearth(const WeightSet& theirs, WeightFormat from, NameReport& report) {
  ByName given = by_name(theirs, report);
  for (const Weight& weight : theirs.weights) {
    // Masks follow from the size of images.
    if (!weight.name.ends_with(".attn_mask") && !is_position_index(weight, theirs)) continue;
    report.left_out.push_back(weight.name);
    given.erase(weight.name);
  }
  return {Renaming(std::move(given), from, true, report).run(), theirs.metadata};
}

WeightSet swin_from_hearth(const WeightSet& ours, WeightFormat to, NameReport& report) {
  return {Renaming(by_name(ours, report), to, false, report).run(), ours.metadata};
}

}  // namespace hearth::models
