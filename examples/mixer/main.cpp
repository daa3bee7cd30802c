// SPDX-License-Identifier: Apache-2.0
// An MLP-mixer (Tolstikhin et al. 2021, arXiv:2105.01601): a model of layer norms and products, like a Transformer
// without attention, for the `hearth` commands.
//
//   mixer train fashion_mixer.json
#include <hearth/hearth.h>

#include <memory>

namespace {

using namespace hearth;

struct MixerOptions {
  std::int64_t patch = 4;
  std::int64_t width = 64;
  std::int64_t token_hidden = 64;
  std::int64_t channel_hidden = 128;
  std::int64_t blocks = 4;
};

void describe(Fields<MixerOptions>& f) {
  f.integer("patch", &MixerOptions::patch, {.min = 1, .max = 256}, "Side of a patch, in pixels.");
  f.integer("width", &MixerOptions::width, {.min = 1, .max = 65536}, "Channels of a token.");
  f.integer("token_hidden", &MixerOptions::token_hidden, {.min = 1, .max = 65536}, "Hidden units across tokens.");
  f.integer("channel_hidden", &MixerOptions::channel_hidden, {.min = 1, .max = 65536}, "Hidden units within a token.");
  f.integer("blocks", &MixerOptions::blocks, {.min = 1, .max = 100}, "Blocks.");
}

/// Mixes across tokens, then within each. x and y [N, T, C].
struct Block : nn::Module {
  nn::LayerNorm token_norm, channel_norm;
  nn::Linear token_in, token_out, channel_in, channel_out;

  Block(std::int64_t tokens, const MixerOptions& o)
      : token_norm(o.width),
        channel_norm(o.width),
        token_in(tokens, o.token_hidden, {.activation = Activation::gelu}),
        token_out(o.token_hidden, tokens),
        channel_in(o.width, o.channel_hidden, {.activation = Activation::gelu}),
        channel_out(o.channel_hidden, o.width) {
    register_module("token_norm", token_norm);
    register_module("token_in", token_in);
    register_module("token_out", token_out);
    register_module("channel_norm", channel_norm);
    register_module("channel_in", channel_in);
    register_module("channel_out", channel_out);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor across = token_out(token_in(transpose(token_norm(x), {0, 2, 1})));
    const Tensor y = x + transpose(across, {0, 2, 1});
    return y + channel_out(channel_in(channel_norm(y)));
  }
};

/// x [N, H, W, C] to logits [N, classes].
struct Mixer : nn::Module {
  nn::Conv2d patches;
  nn::ModuleList blocks;
  nn::LayerNorm norm;
  nn::Linear head;

  Mixer(const MixerOptions& o, const models::InputInfo& input)
      : patches(input.channels, o.width, {.kernel = o.patch, .stride = o.patch}),
        norm(o.width),
        head(o.width, input.classes) {
    HEARTH_CHECK(ConfigError, input.height % o.patch == 0 && input.width % o.patch == 0, "mixer: patches of ", o.patch,
                 " pixels do not divide images of ", input.height, "x", input.width);
    const std::int64_t tokens = (input.height / o.patch) * (input.width / o.patch);
    for (std::int64_t i = 0; i < o.blocks; ++i) blocks.add<Block>(tokens, o);
    register_module("patches", patches);
    register_module("blocks", blocks);
    register_module("norm", norm);
    register_module("head", head);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = patches(x);
    return head(mean(norm(blocks(reshape(y, {y.dim(0), y.dim(1) * y.dim(2), y.dim(3)}))), {1}));
  }
};

}  // namespace

int main(int argc, char** argv) {
  models::add<MixerOptions>(
      "mixer", [](const MixerOptions& o, const models::InputInfo& input) { return std::make_unique<Mixer>(o, input); },
      "An MLP-mixer.");
  return train::run_cli(argc, argv);
}
