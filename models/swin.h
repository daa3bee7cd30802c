// SPDX-License-Identifier: Apache-2.0
// The hierarchical Transformer for images that attends within shifted windows. Source: Liu et al., "Swin Transformer"
// (ICCV 2021). Parameter names are torchvision's: "features.0.0.weight", "features.1.0.attn.qkv.weight", ...; its
// buffers "attn.relative_position_index" follow from the window and are not kept (models/weights/weights.h drops and
// writes them).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/embedding_model.h"
#include "models/nn/nn.h"

namespace hearth::models {

inline constexpr std::size_t max_swin_stages = 6;

/// The models of the paper; `mini`, of two stages, is for images of some 32 pixels, with windows and patches of 4 or
/// less.
enum class SwinSize { tiny, small, base, mini };

/// Sizes left empty, or at 0, are those of `size`.
struct SwinOptions {
  SwinSize size = SwinSize::tiny;
  std::vector<std::int64_t> depths = {};  ///< blocks of each stage; one to six stages
  std::vector<std::int64_t> heads = {};   ///< of each stage, of 64 channels at most
  std::int64_t width = 0;                 ///< channels of the first stage; each later one has twice as many
  std::int64_t patch = 4;                 ///< rows and columns of pixels in a token
  std::int64_t window = 7;                ///< rows and columns of tokens in a window, 1 to 12
  double mlp_ratio = 4.0;                 ///< hidden units of a block's feed-forward network for each channel
  double dropout = 0.0;                   ///< of what each part gives, and of hidden units
  double attention_dropout = 0.0;         ///< of attention weights
  /// Stochastic depth: the probability that the last block's parts are left out, rising from 0 at the first.
  double drop_path = 0.0;
  /// A learned place "absolute_pos_embed" is added to each token, as in the official code; needs an image_size.
  bool absolute_positions = false;
  std::int64_t image_size = 0;  ///< rows and columns of pixels, if all images have as many; 0 takes any size
  std::int64_t in_channels = 3;
  std::int64_t classes = 1000;
  /// Keep only what goes into each block and compute the rest of it again in the backward pass.
  bool recompute = false;
};

/// What does not fit together in the sizes, with the remedy; empty if nothing.
HEARTH_API std::string fault_of(const SwinOptions& options);
/// Why images of this many pixels do not go through a model of options without a fault; empty if they do.
HEARTH_API std::string fault_of(const SwinOptions& options, std::int64_t height, std::int64_t width);

/// What torchvision keeps beside a table "relative_position_bias_table": the row that each pair of query and key of a
/// window takes, i64 [window^4]. Undefined if `table` is not [(2 window - 1)^2, heads] for any window.
HEARTH_API Tensor relative_position_index(const Tensor& table);

/// Images of any size, unless one is given, in which a window of the first stage fits: rows and columns of pixels
/// that fill no patch are not seen, windows are filled up at the right and at the bottom as torchvision does, and so
/// are odd sides before 2x2 tokens become one. In later stages one window may see more than all tokens.
class HEARTH_API Swin : public nn::Module, public EmbeddingModel {
 public:
  /// ShapeError for what fault_of() tells.
  explicit Swin(const SwinOptions& options);
  /// x [N, H, W, in_channels] to logits [N, classes]. ShapeError for what fault_of() tells of H and W.
  Tensor forward(const Tensor& x) override;
  Tensor embedding(const Tensor& x) override;
  Tensor outputs_of(const Tensor& embedding) override;

 private:
  SwinOptions options_;
  Tensor positions_;  // [1, tokens, width], if wanted
  nn::ModuleList features_;
  std::unique_ptr<nn::LayerNorm> norm_;
  std::unique_ptr<nn::Linear> head_;
};

}  // namespace hearth::models
