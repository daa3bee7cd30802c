// SPDX-License-Identifier: Apache-2.0
// Tokens stay [N, H, W, C] in the order of the image from the first layer to the last.
#include "models/swin.h"

#include <algorithm>
#include <numeric>

#include "models/initial.h"
#include "ops/attention/window_attention.h"
#include "ops/ops.h"

namespace hearth::models {
namespace {

constexpr double swin_norm_eps = 1e-5;

/// The options with what the size means where nothing else is given.
SwinOptions completed(SwinOptions options) {
  struct Sizes {
    std::vector<std::int64_t> depths, heads;
    std::int64_t width;
  };
  const auto sizes = [&]() -> Sizes {
    switch (options.size) {
      case SwinSize::mini:
        return {{2, 4}, {3, 6}, 96};
      case SwinSize::tiny:
        return {{2, 2, 6, 2}, {3, 6, 12, 24}, 96};
      case SwinSize::small:
        return {{2, 2, 18, 2}, {3, 6, 12, 24}, 96};
      case SwinSize::base:
        break;
    }
    return {{2, 2, 18, 2}, {4, 8, 16, 32}, 128};
  }();
  if (options.depths.empty()) options.depths = sizes.depths;
  if (options.heads.empty()) options.heads = sizes.heads;
  if (options.width == 0) options.width = sizes.width;
  return options;
}

/// Patches to tokens: a convolution whose stride is its kernel, and a norm; and their positions, if defined.
class PatchEmbedding : public nn::ModuleList {
 public:
  PatchEmbedding(const SwinOptions& options, const Tensor& positions) : positions_(positions) {
    add_named<nn::Conv2d>("0", options.in_channels, options.width,
                          nn::Conv2dLayerOptions{.kernel = options.patch, .stride = options.patch});
    add_named<nn::LayerNorm>("2", options.width);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = ModuleList::forward(x);
    return positions_.defined() ? y + reshape(positions_, {1, y.dim(1), y.dim(2), y.dim(3)}) : y;
  }

 private:
  const Tensor& positions_;  // the model's, which has it by name
};

/// x and y [N, H, W, width].
class WindowedAttention : public nn::Module {
 public:
  WindowedAttention(const SwinOptions& options, std::int64_t width, std::int64_t heads, std::int64_t shift)
      : heads_(heads),
        window_(options.window),
        shift_(shift),
        qkv_(width, checked_mul(3, width, "swin width"), initial_linear()),
        proj_(width, width, initial_linear()),
        dropout_(options.attention_dropout) {
    const std::int64_t side = 2 * window_ - 1;
    table_ = Tensor::zeros({side * side, heads});
    parameter("relative_position_bias_table", table_, nn::init::normal(initial_deviation));
    register_module("qkv", qkv_);
    register_module("proj", proj_);
    register_module("dropout", dropout_);
  }
  Tensor forward(const Tensor& x) override {
    // What fills windows up is 0 before the projection, and so the projection's bias behind it.
    return proj_(window_attention(
        qkv_(x), table_,
        {.heads = heads_, .window = window_, .shift = shift_, .dropout = dropout_.rate(), .padding = qkv_.bias}));
  }

 private:
  std::int64_t heads_;
  std::int64_t window_;
  std::int64_t shift_;
  Tensor table_;
  nn::Linear qkv_;
  nn::Linear proj_;
  nn::Dropout dropout_;
};

class Block : public nn::Module {
 public:
  Block(const SwinOptions& options, std::int64_t width, std::int64_t heads, std::int64_t shift, double drop_path)
      : norm1_(width, swin_norm_eps, true),
        attention_(options, width, heads, shift),
        norm2_(width, swin_norm_eps, true),
        dropout_(options.dropout),
        path_(drop_path) {
    const auto hidden = static_cast<std::int64_t>(static_cast<double>(width) * options.mlp_ratio);
    mlp_.add_named<nn::Linear>("0", width, hidden, initial_linear(Activation::gelu));
    mlp_.add_named<nn::Dropout>("2", options.dropout);
    mlp_.add_named<nn::Linear>("3", hidden, width, initial_linear());
    register_module("norm1", norm1_);
    register_module("attn", attention_);
    register_module("norm2", norm2_);
    register_module("mlp", mlp_);
    register_module("dropout", dropout_);
    register_module("stochastic_depth", path_);
  }
  Tensor forward(const Tensor& x) override {
    const auto [sum, y] = norm2_(x, attention_(norm1_(x)), dropout_.rate(), path_.rate());
    return path_.add_to(sum, dropout_(mlp_(y)));
  }

 private:
  // Of what products alone read.
  nn::LayerNorm norm1_;
  WindowedAttention attention_;
  nn::LayerNorm norm2_;
  nn::ModuleList mlp_;
  nn::Dropout dropout_;
  nn::DropPath path_;
};

/// x [N, H, W, C] to [N, ceil(H / 2), ceil(W / 2), 4C]: the norm of 2x2 tokens, column by column as in the published
/// weights.
class MergingNorm : public nn::LayerNorm {
 public:
  explicit MergingNorm(std::int64_t width) : LayerNorm(checked_mul(4, width, "swin width")) {}
  Tensor forward(const Tensor& x) override { return merge_layer_norm(x, weight, bias, swin_norm_eps, true); }
};

/// 2x2 tokens become one of twice the channels.
class PatchMerging : public nn::Module {
 public:
  explicit PatchMerging(std::int64_t width)
      : reduction_(checked_mul(4, width, "swin width"), checked_mul(2, width, "swin width"),
                   {.bias = false, .weight_init = nn::init::normal(initial_deviation)}),
        norm_(width) {
    register_module("reduction", reduction_);
    register_module("norm", norm_);
  }
  Tensor forward(const Tensor& x) override { return reduction_(norm_(x)); }

 private:
  nn::Linear reduction_;
  MergingNorm norm_;
};

/// The number nearest to `heads` into which the channels divide, none having too many.
std::int64_t fitting_heads(std::int64_t width, std::int64_t heads) {
  const auto fits = [&](std::int64_t n) { return n >= 1 && width % n == 0 && width / n <= max_window_head_width; };
  const std::int64_t from = std::clamp<std::int64_t>(heads, 1, width);
  for (std::int64_t distance = 0; distance < width; ++distance)
    for (const std::int64_t n : {from - distance, from + distance})
      if (fits(n)) return n;
  return width;
}

SwinOptions checked(const SwinOptions& options) {
  const std::string fault = fault_of(options);
  HEARTH_CHECK(ShapeError, fault.empty(), "swin: ", fault);
  return completed(options);
}

}  // namespace

std::string fault_of(const SwinOptions& given) {
  const SwinOptions o = completed(given);
  if (o.depths.size() > max_swin_stages || o.heads.size() != o.depths.size())
    return join_text(o.depths.size(), " stages (\"depths\") with \"heads\" for ", o.heads.size(),
                     "; give both for each stage, of which there are one to ", max_swin_stages);
  if (o.window < 1 || o.window > max_window || o.patch < 1 || o.in_channels < 1 || o.classes < 1)
    return join_text("a window of ", o.window, ", patches of ", o.patch, ", ", o.in_channels, " channels and ",
                     o.classes, " classes; all are at least 1, windows at most ", max_window);
  if (o.width < 1 || o.width > std::int64_t{1} << 20) return join_text("a width of ", o.width, "; it is 1 to 1048576");
  for (std::size_t i = 0; i < o.depths.size(); ++i) {
    const std::int64_t width = o.width << i, heads = o.heads[i];
    if (o.depths[i] < 1) return join_text("stage ", i + 1, " has ", o.depths[i], " blocks; each has at least 1");
    if (heads < 1 || width % heads != 0)
      return join_text("the ", width, " channels of stage ", i + 1, " do not divide into ", heads,
                       " heads; use a divisor such as ", fitting_heads(width, heads));
    if (width / heads > max_window_head_width)
      return join_text("heads of ", width / heads, " channels in stage ", i + 1, "; they have at most ",
                       max_window_head_width, ": use more heads, such as ", fitting_heads(width, heads));
  }
  for (const auto& [name, rate] :
       {std::pair("dropout", o.dropout), {"attention_dropout", o.attention_dropout}, {"drop_path", o.drop_path}})
    if (!(rate >= 0 && rate < 1))
      return join_text("\"", name, "\" of ", rate, "; give a rate of at least 0 and below 1");
  if (!(o.mlp_ratio * static_cast<double>(o.width) >= 1 && o.mlp_ratio <= 1024))
    return join_text("an mlp_ratio of ", o.mlp_ratio, " gives a width of ", o.width,
                     " no hidden units, or more than 1024 for each channel");
  if (o.image_size < 0 || o.image_size > std::int64_t{1} << 20)
    return join_text("images (\"image_size\") of ", o.image_size,
                     " pixels a side; they have 1 to 1048576, or 0 for any");
  if (o.absolute_positions && o.image_size == 0)
    return "absolute_positions belong to images of one size; give \"image_size\"";
  return o.image_size > 0 ? fault_of(o, o.image_size, o.image_size) : "";
}

std::string fault_of(const SwinOptions& given, std::int64_t height, std::int64_t width) {
  const SwinOptions o = completed(given);
  const std::string image = join_text("an image of ", height, " x ", width, " pixels");
  if (o.image_size > 0 && (height != o.image_size || width != o.image_size))
    return join_text(image, " where \"image_size\" is ", o.image_size, "; resize it, or the model");
  if (std::min(height, width) < o.patch)
    return join_text(image, " is smaller than a patch of ", o.patch, "; use smaller patches");
  std::int64_t rows = height / o.patch, columns = width / o.patch;
  if (std::min(rows, columns) < o.window)
    return join_text("a window of ", o.window, " x ", o.window, " tokens is larger than the ", rows, " x ", columns,
                     " tokens of ", image, "; use a window of at most ", std::min(rows, columns),
                     ", or smaller patches");
  for (std::size_t stage = 2; stage <= o.depths.size(); ++stage) {
    if (rows == 1 && columns == 1)
      return join_text(image, " is a single token before stage ", stage,
                       ", which would merge 2 x 2; use fewer stages, or smaller patches");
    rows = (rows + 1) / 2;
    columns = (columns + 1) / 2;
  }
  return "";
}

Tensor relative_position_index(const Tensor& table) {
  for (std::int64_t window = 1; table.rank() == 2 && window <= max_window; ++window) {
    const kernels::WindowGrid grid(window, window, window, 0);
    if (grid.entries() != table.dim(0)) continue;
    const std::int64_t tokens = grid.tokens();
    const Tensor index = Tensor::empty({tokens * tokens}, DType::i64);
    for (std::int64_t pair = 0; pair < tokens * tokens; ++pair)
      index.data<std::int64_t>()[pair] = grid.entry(pair / tokens, pair % tokens);
    return index;
  }
  return {};
}

Swin::Swin(const SwinOptions& given) : options_(checked(given)) {
  const SwinOptions& options = options_;
  if (options.absolute_positions) {
    const std::int64_t side = options.image_size / options.patch;
    positions_ = Tensor::zeros({1, side * side, options.width});
    parameter("absolute_pos_embed", positions_, nn::init::normal(initial_deviation));
  }
  features_.add<PatchEmbedding>(options, positions_);
  const std::int64_t blocks_in_all = std::accumulate(options.depths.begin(), options.depths.end(), std::int64_t{0});
  const double rise = options.drop_path / static_cast<double>(std::max<std::int64_t>(blocks_in_all - 1, 1));
  std::int64_t width = options.width, number = 0;
  for (std::size_t stage = 0; stage < options.depths.size(); ++stage) {
    if (stage > 0) {
      features_.add<PatchMerging>(width);
      width *= 2;
    }
    nn::ModuleList& blocks = features_.add<nn::ModuleList>();
    blocks.recompute(options.recompute);
    for (std::int64_t i = 0; i < options.depths[stage]; ++i)
      blocks.add<Block>(options, width, options.heads[stage], i % 2 == 0 ? 0 : options.window / 2,
                        rise * static_cast<double>(number++));
  }
  register_module("features", features_);
  norm_ = std::make_unique<nn::LayerNorm>(width);
  register_module("norm", *norm_);
  head_ = std::make_unique<nn::Linear>(width, options.classes, initial_linear());
  register_module("head", *head_);
}

Tensor Swin::forward(const Tensor& x) { return outputs_of(embedding(x)); }

Tensor Swin::embedding(const Tensor& x) {
  HEARTH_CHECK(ShapeError, x.rank() == 4, "swin: x ", describe(x), " is not [N, H, W, C]");
  const std::string fault = fault_of(options_, x.dim(1), x.dim(2));
  HEARTH_CHECK(ShapeError, fault.empty(), "swin: ", fault, " (x ", describe(x), ")");
  return global_avg_pool((*norm_)(features_(x)));
}

Tensor Swin::outputs_of(const Tensor& embedding) { return (*head_)(embedding); }

}  // namespace hearth::models
